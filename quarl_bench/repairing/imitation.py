"""How far a student's outputs are from its teacher's, as a loss that tells what decides an action.

Values matter by their differences between actions, logits by the distribution that they stand for, and numbers by the
action behind clipping or tanh.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from quarl_bench.policies.head import ActionHead, HeadKind

SMALLEST = 1e-6  # of a spread that is divided by


class OutputKind(StrEnum):
    """What a policy's outputs are."""

    VALUES = "values"
    LOGITS = "logits"
    ACTIONS = "actions"


def name_outputs(head: ActionHead, *, sampled: bool) -> OutputKind:
    """The kind of the outputs in front of `head`; `sampled` where they are logits of a distribution."""
    if not head.discrete:
        return OutputKind.ACTIONS
    return OutputKind.LOGITS if sampled else OutputKind.VALUES


@dataclass(frozen=True, eq=False)
class Loss:
    """Mean loss of outputs (n, outputs) against a teacher's; 0 where they decide alike everywhere."""

    kind: OutputKind
    head: ActionHead
    unit: float  # median difference between a teacher's best value and another

    @classmethod
    def of(cls, kind: OutputKind, head: ActionHead, teacher: Tensor) -> "Loss":
        """The loss for a teacher whose outputs (n, outputs) in visited states are `teacher`."""
        gaps = teacher.topk(min(2, teacher.shape[1]), dim=1).values
        return cls(kind, head, max(float((gaps[:, 0] - gaps[:, -1]).median()), SMALLEST))

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        """A scalar that gradients follow, for outputs (n, outputs) of both."""
        return LOSSES[self.kind](self, student, teacher)

    def compare_values(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Squared error of the differences to the teacher's best action, over their size and the unit.

        Relative, because an error decides where the difference is small, and hardly anywhere else.
        """
        best = teacher.argmax(dim=1, keepdim=True)
        wanted, found = (values - values.gather(1, best) for values in (teacher, student))
        return ((found - wanted) / (wanted.abs() + self.unit)).square().mean()

    def compare_logits(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Kullback-Leibler divergence of the student's distribution from the teacher's."""
        wanted = teacher.log_softmax(dim=1)
        return torch.nn.functional.kl_div(student.log_softmax(dim=1), wanted, reduction="batchmean", log_target=True)

    def compare_actions(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Squared error behind the squashing, as a share of half the action's range."""
        return (self._squash(student) - self._squash(teacher)).square().mean()

    def _squash(self, outputs: Tensor) -> Tensor:
        """Actions in [-1, 1]; a clip passes gradients, or what lies beyond it would stay there."""
        head = self.head
        if head.kind is HeadKind.TANH:
            limit = float("inf") if head.mean_limit is None else head.mean_limit
            return torch.tanh(_clip(outputs, -limit, limit))
        low, high = torch.from_numpy(head.low), torch.from_numpy(head.high)
        half = ((high - low) / 2).clamp(min=SMALLEST)
        return _clip((outputs - (high + low) / 2) / half, -1.0, 1.0)


LOSSES: dict[OutputKind, Callable[[Loss, Tensor, Tensor], Tensor]] = {
    OutputKind.VALUES: Loss.compare_values,
    OutputKind.LOGITS: Loss.compare_logits,
    OutputKind.ACTIONS: Loss.compare_actions,
}


def _clip(x: Tensor, low: float, high: float) -> Tensor:
    """Clipped, with the gradient of x."""
    return x + (x.clamp(low, high) - x).detach()
