"""Counting what a frozen normalization clips: observations that training saw hardly, or never."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import Policy
from quarl_bench.quantization.net import Floats

AnyPolicy = TypeVar("AnyPolicy", bound=Policy)


@dataclass
class ClipCounter:
    """Observed values so far, and those of them that lay at the clip or beyond."""

    seen: int = 0
    clipped: int = 0

    @property
    def share(self) -> float:
        """Of the values seen; 0 before there are any."""
        return self.clipped / self.seen if self.seen else 0.0

    def as_dict(self) -> dict[str, float]:
        """Values clipped, values seen and the share of them, in built-in types for JSON."""
        return {"clipped": self.clipped, "seen": self.seen, "share": self.share}

    def describe(self) -> str:
        """Shares of clipped values in one line."""
        return f"{self.clipped:,} of {self.seen:,} observed values were clipped by the normalization ({self.share:.2g})"


@dataclass(frozen=True, eq=False)
class CountingTransform(ObservationTransform):
    """A transform that tells `counter` what it clips."""

    counter: ClipCounter = field(default_factory=ClipCounter)

    def apply(self, observations: NDArray[Any]) -> Floats:
        """Transform as ObservationTransform does, and count the values that normalisation clipped."""
        inputs = super().apply(observations)
        if self.normalization is not None and np.isfinite(self.normalization.clip):  # ranges of `eq` clip nothing
            self.counter.seen += inputs.size
            self.counter.clipped += int((np.abs(inputs) >= self.normalization.clip).sum())
        return inputs


def count_clipped(policy: AnyPolicy) -> tuple[AnyPolicy, ClipCounter]:
    """The same policy with a counter of what its normalization clips while it acts."""
    counter, plain = ClipCounter(), policy.transform
    parts = {part.name: getattr(plain, part.name) for part in fields(ObservationTransform)}
    return replace(policy, transform=CountingTransform(**parts, counter=counter)), counter
