"""From the outputs of the net to the action the environment takes."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.quantization.net import Floats, Outputs

Masks = NDArray[np.bool_]
MASKED = np.float32(-1e8)  # the logit of a choice that a mask forbids, as in sb3-contrib


class HeadKind(StrEnum):
    """How an algorithm turns outputs into deterministic actions."""

    ARGMAX = "argmax"  # DQN's values; A2C's and PPO's logits
    PARTS = "parts"  # several choices, whose logits stand behind one another: the argmax of each
    BITS = "bits"  # a logit each: 1 where it is above 0
    CLIP = "clip"  # A2C's and PPO's Gaussian mean, clipped to the action space
    TANH = "tanh"  # DDPG, TD3, SAC: tanh, then rescaled to the action space


@dataclass(frozen=True, eq=False)
class ActionHead:
    """Deterministic action of a policy; `low` and `high` (actions,) bound continuous actions.

    `mean_limit` clips the outputs to [-mean_limit, mean_limit] before the tanh (SAC's clip_mean). `sizes` are of the
    parts, in order. A `masked` policy was trained within the masks of its environment, and plays within them.
    """

    kind: HeadKind
    low: Floats | None = None
    high: Floats | None = None
    mean_limit: float | None = None
    sizes: tuple[int, ...] = ()
    masked: bool = False

    def __post_init__(self) -> None:
        if (self.kind is HeadKind.PARTS) != bool(self.sizes) or not all(size > 0 for size in self.sizes):
            raise PolicyError(f"{self.kind} head with parts of {self.sizes}: sizes are of a head of parts, above 0")
        if self.discrete:
            if self.low is not None or self.high is not None:
                raise PolicyError(f"{self.kind} head: no action bounds, which are of continuous actions")
            return
        if self.masked:
            raise PolicyError(f"{self.kind} head with masks; they are of discrete actions")
        if self.low is None or self.high is None or self.low.shape != self.high.shape or self.low.ndim != 1:
            raise PolicyError(f"a {self.kind} head needs bounds low and high of shape (actions,)")
        if not (np.isfinite(self.low) & np.isfinite(self.high) & (self.low <= self.high)).all():
            raise PolicyError("action bounds must be finite and low <= high")
        if self.mean_limit is not None and not self.mean_limit > 0:
            raise PolicyError(f"mean_limit {self.mean_limit} must be positive, or None")

    @cached_property
    def discrete(self) -> bool:
        """Whether actions are indices from 0, one or several, and not real numbers."""
        return self.kind not in (HeadKind.CLIP, HeadKind.TANH)

    @property
    def single(self) -> bool:
        """Whether an action is one index, and no vector."""
        return self.kind is HeadKind.ARGMAX

    def check_outputs(self, outputs: int) -> None:
        """Refuse a net whose outputs are not one per action."""
        if self.low is not None and self.low.shape != (outputs,):
            raise PolicyError(f"a net of {outputs} outputs for {len(self.low)} action bounds")
        if self.sizes and sum(self.sizes) != outputs:
            raise PolicyError(f"a net of {outputs} outputs for choices among {' + '.join(map(str, self.sizes))}")

    def list_choices(self, outputs: int) -> tuple[int, ...]:
        """Of discrete actions: among how many each choice is, for a net of `outputs`; a bit is one among two."""
        return self.sizes or ((2,) * outputs if self.kind is HeadKind.BITS else (outputs,))

    def weigh(self, outputs: Outputs, masks: Masks | None = None) -> Outputs:
        """Of discrete actions: logits (n, sum of choices) for outputs (n, outputs), without what `masks` forbid.

        Masks are of the logits' shape. A bit's two logits are 0 and its output.
        """
        if self.kind is HeadKind.BITS:
            pairs: Outputs = np.stack([np.zeros_like(outputs), outputs], axis=2)
            outputs = pairs.reshape(len(outputs), -1)
        if masks is None:
            return outputs
        if masks.shape != outputs.shape:
            raise PolicyError(f"masks of shape {masks.shape} for choices of {outputs.shape}; one entry each")
        return np.where(masks, outputs, MASKED)

    def pick(self, logits: Outputs) -> NDArray[np.int64]:
        """Indices (n,), or (n, parts), of the largest logits (n, sum of choices); the lowest index wins ties."""
        if self.single:
            return np.asarray(logits.argmax(axis=1))
        return np.stack([part.argmax(axis=1) for part in self.split(logits)], axis=1)

    def split(self, logits: Outputs) -> list[Outputs]:
        """The logits of each choice (n, its size), of all (n, sum of choices)."""
        if self.single:
            return [logits]
        sizes = self.sizes or (2,) * (logits.shape[1] // 2)
        return np.split(logits, np.cumsum(sizes)[:-1], axis=1)

    def read_chosen(self, logits: Outputs, actions: NDArray[np.int64]) -> Outputs:
        """The logits (n, choices) of the actions (n,) or (n, choices), of all (n, sum of choices)."""
        rows = np.arange(len(logits))
        columns = np.asarray(actions).reshape(len(logits), -1).T
        chosen = [part[rows, column] for part, column in zip(self.split(logits), columns, strict=True)]
        return np.stack(chosen, axis=1)

    def act(self, outputs: Outputs, masks: Masks | None = None) -> NDArray[np.int64] | Floats:
        """Actions for outputs (n, outputs): indices (n,) or (n, parts), or values (n, outputs).

        The lowest index wins ties. What `masks` (n, sum of choices) forbid is not chosen.
        """
        if self.low is None or self.high is None:
            if masks is None and self.kind is HeadKind.ARGMAX:
                return np.asarray(outputs.argmax(axis=1))
            return self.pick(self.weigh(outputs, masks))
        outputs = outputs.astype(np.float32, copy=False)
        if self.kind is HeadKind.CLIP:
            return np.asarray(np.minimum(np.maximum(outputs, self.low), self.high))
        if self.mean_limit is not None:
            outputs = np.clip(outputs, -self.mean_limit, self.mean_limit).astype(np.float32)
        squashed = np.tanh(outputs)
        rescaled = self.low + np.float32(0.5) * (squashed + np.float32(1)) * (self.high - self.low)
        return np.asarray(rescaled, dtype=np.float32)
