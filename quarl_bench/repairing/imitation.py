"""How far a student's outputs are from its teacher's, as a loss that tells what decides an action.

Values matter by their differences between actions, logits by the distribution that they stand for, and numbers by the
action behind clipping or tanh.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from quarl_bench.policies.head import MASKED, ActionHead, HeadKind

Parts = tuple[Tensor, ...]  # logits or values (n, choices) of each part of an action
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
    def of(cls, kind: OutputKind, head: ActionHead, teacher: Tensor, masks: Tensor | None = None) -> "Loss":
        """The loss for a teacher whose outputs (n, outputs) in visited states, of these `masks`, are `teacher`."""
        if kind is OutputKind.ACTIONS:
            return cls(kind, head, SMALLEST)
        tops = [part.topk(min(2, part.shape[1]), dim=1).values for part in _split(head, teacher, masks)]
        gaps = torch.cat([top[:, 0] - top[:, -1] for top in tops])
        return cls(kind, head, max(float(gaps.median()), SMALLEST))

    def __call__(self, student: Tensor, teacher: Tensor, masks: Tensor | None = None) -> Tensor:
        """A scalar that gradients follow, for outputs (n, outputs) of both, of actions that `masks` allow."""
        if self.kind is OutputKind.ACTIONS:
            return self.compare_actions(student, teacher)
        return LOSSES[self.kind](self, *(_split(self.head, outputs, masks) for outputs in (student, teacher)))

    def compare_values(self, student: Parts, teacher: Parts) -> Tensor:
        """Squared error of the differences to the teacher's best action, over their size and the unit.

        Relative, because an error decides where the difference is small, and hardly anywhere else.
        """
        errors = []
        for values, others in zip(teacher, student, strict=True):
            best = values.argmax(dim=1, keepdim=True)
            wanted, found = (each - each.gather(1, best) for each in (values, others))
            errors.append((found - wanted) / (wanted.abs() + self.unit))
        return torch.cat(errors, dim=1).square().mean()

    def compare_logits(self, student: Parts, teacher: Parts) -> Tensor:
        """Kullback-Leibler divergence of the student's distribution from the teacher's, the sum over the parts."""
        terms = [
            torch.nn.functional.kl_div(
                found.log_softmax(dim=1), wanted.log_softmax(dim=1), reduction="batchmean", log_target=True
            )
            for found, wanted in zip(student, teacher, strict=True)
        ]
        return torch.stack(terms).sum()

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


LOSSES: dict[OutputKind, Callable[[Loss, Parts, Parts], Tensor]] = {
    OutputKind.VALUES: Loss.compare_values,
    OutputKind.LOGITS: Loss.compare_logits,
}


def _split(head: ActionHead, outputs: Tensor, masks: Tensor | None) -> Parts:
    """As `ActionHead.weigh` and `split`, with gradients."""
    sizes = head.list_choices(outputs.shape[1])
    if head.kind is HeadKind.BITS:
        outputs = torch.stack([torch.zeros_like(outputs), outputs], dim=2).flatten(1)
    if masks is not None:
        outputs = torch.where(masks, outputs, float(MASKED))
    parts: Parts = torch.split(outputs, list(sizes), dim=1)
    return parts


def _clip(x: Tensor, low: float, high: float) -> Tensor:
    """Clipped, with the gradient of x."""
    return x + (x.clamp(low, high) - x).detach()
