"""A policy that says how many observations it is given, for whoever shows how far it has come."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from numpy.typing import NDArray

from quarl_bench.policies.clipping import AnyPolicy
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.quantization.net import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class WatchedTransform(ObservationTransform):
    """What `inner` is, and `tell` hears of every batch how many observations are in it."""

    inner: ObservationTransform
    tell: Callable[[int], None]

    def apply(self, observations: NDArray[Any]) -> Floats:
        """Transform as `inner` does."""
        self.tell(len(observations))
        return self.inner.apply(observations)


def watch_policy(policy: AnyPolicy, tell: Callable[[int], None]) -> AnyPolicy:
    """The same policy; `tell` hears of every batch of observations how many there are: the episodes that still run."""
    plain = policy.transform
    parts = {part.name: getattr(plain, part.name) for part in fields(ObservationTransform)}
    return replace(policy, transform=WatchedTransform(**parts, inner=plain, tell=tell))
