"""From the outputs of the net to the action the environment takes."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.quantization.net import Floats, Outputs


class HeadKind(StrEnum):
    """How an algorithm turns outputs into deterministic actions."""

    ARGMAX = "argmax"  # DQN's values; A2C's and PPO's logits
    CLIP = "clip"  # A2C's and PPO's Gaussian mean, clipped to the action space
    TANH = "tanh"  # DDPG, TD3, SAC: tanh, then rescaled to the action space


@dataclass(frozen=True, eq=False)
class ActionHead:
    """Deterministic action of a policy; `low` and `high` (actions,) bound continuous actions.

    `mean_limit` clips the outputs to [-mean_limit, mean_limit] before the tanh (SAC's clip_mean).
    """

    kind: HeadKind
    low: Floats | None = None
    high: Floats | None = None
    mean_limit: float | None = None

    def __post_init__(self) -> None:
        if self.discrete:
            if self.low is not None or self.high is not None:
                raise PolicyError("an argmax head has no action bounds")
            return
        if self.low is None or self.high is None or self.low.shape != self.high.shape or self.low.ndim != 1:
            raise PolicyError(f"a {self.kind} head needs bounds low and high of shape (actions,)")
        if not (np.isfinite(self.low) & np.isfinite(self.high) & (self.low <= self.high)).all():
            raise PolicyError("action bounds must be finite and low <= high")
        if self.mean_limit is not None and not self.mean_limit > 0:
            raise PolicyError(f"mean_limit {self.mean_limit} must be positive, or None")

    @property
    def discrete(self) -> bool:
        """Whether actions are indices from 0 (argmax of the outputs) and not vectors."""
        return self.kind is HeadKind.ARGMAX

    def check_outputs(self, outputs: int) -> None:
        """Refuse a net whose outputs are not one per action."""
        if self.low is not None and self.low.shape != (outputs,):
            raise PolicyError(f"a net of {outputs} outputs for {len(self.low)} action bounds")

    def act(self, outputs: Outputs) -> NDArray[np.int64] | Floats:
        """Actions for outputs (n, outputs): indices (n,) or values (n, outputs). The lowest index wins ties."""
        if self.low is None or self.high is None:
            return np.asarray(outputs.argmax(axis=1))
        outputs = outputs.astype(np.float32, copy=False)
        if self.kind is HeadKind.CLIP:
            return np.asarray(np.clip(outputs, self.low, self.high))
        if self.mean_limit is not None:
            outputs = np.clip(outputs, -self.mean_limit, self.mean_limit).astype(np.float32)
        squashed = np.tanh(outputs)
        rescaled = self.low + np.float32(0.5) * (squashed + np.float32(1)) * (self.high - self.low)
        return np.asarray(rescaled, dtype=np.float32)
