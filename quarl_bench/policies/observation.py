"""From the raw observation of an environment to the float32 input of the net."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.policies.masks import drop_masks
from quarl_bench.quantization.net import Floats

TINY = 1e-300  # an epsilon that changes no variance
PIXEL = 255.0  # the brightest
BLOCK = 1 << 24  # numbers that are normalized at a time: images among vectors would take much memory in float64


@dataclass(frozen=True, eq=False)
class Normalization:
    """Running statistics of stable-baselines3's VecNormalize, frozen: clip((x - mean) / sqrt(variance + epsilon))."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    clip: float = 10.0
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if self.mean.shape != self.variance.shape:
            raise PolicyError(f"normalization: mean {self.mean.shape} and variance {self.variance.shape} differ")
        if not np.isfinite(self.mean).all() or not np.isfinite(self.variance).all() or (self.variance < 0).any():
            raise PolicyError("normalization: statistics must be finite and variances not negative")
        if not (self.clip > 0 and self.epsilon > 0):
            raise PolicyError(f"normalization: clip {self.clip} and epsilon {self.epsilon} must be positive")

    def apply(self, observations: NDArray[Any]) -> Floats:
        """Computed in float64 and rounded once, as VecNormalize does."""
        if observations.size > BLOCK and len(observations) > 1:
            rows = max(1, BLOCK // observations[0].size)
            parts = [self.apply(observations[i : i + rows]) for i in range(0, len(observations), rows)]
            return np.concatenate(parts)
        scaled = (observations - self.mean) / self._deviation
        return np.asarray(np.minimum(np.maximum(scaled, -self.clip), self.clip), dtype=np.float32)

    @cached_property
    def _deviation(self) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(self.variance + self.epsilon))


@dataclass(frozen=True)
class Part:
    """A part of a Dict of observations, images channel-first; `pixels` are divided by 255, as those of an image are."""

    name: str
    shape: tuple[int, ...]
    pixels: bool = False
    bounded: bool = False  # within [-1, 1], as ones and zeros are

    @property
    def width(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def normalize_parts(
    parts: Sequence[Part], statistics: Mapping[str, Normalization] = MappingProxyType({})
) -> Normalization | None:
    """What is done to a flat observation of `parts`, by name those with `statistics`; None where nothing is.

    In float64, rounded once, p / 255 is the float32 that a division in float32 gives, for each of the 256 pixels: the
    digits of a quotient by 255 repeat themselves every 8 bits, so that none is near a tie. PolicyError where the clip
    of the statistics would reach a part that has none.
    """
    clip, epsilon = next(((one.clip, one.epsilon) for one in statistics.values()), (math.inf, TINY))
    known = [part for part in parts if part.name in statistics]
    loose = [part.name for part in parts if part not in known and not (part.pixels or part.bounded)]
    if not known and not any(part.pixels for part in parts):
        return None
    if known and (loose or clip < 1):
        raise PolicyError(
            f"a VecNormalize of a part of the observations, without {(loose or ['those in [0, 1]'])[0][:80]!r}, has no "
            "portable form; normalize all vectors or none"
        )
    mean = [statistics[part.name].mean.ravel() if part in known else np.zeros(part.width) for part in parts]
    variance = [
        statistics[part.name].variance.ravel()
        if part in known
        else np.full(part.width, (PIXEL if part.pixels else 1.0) ** 2 - epsilon)
        for part in parts
    ]
    return Normalization(np.concatenate(mean), np.concatenate(variance), clip, epsilon)


@dataclass(frozen=True, eq=False)
class ObservationTransform:
    """Raw observations (n, *shape) -> net inputs (n, *input_shape), float32.

    Images are uint8 and divided by 255; images that come channel-last are transposed. Everything else is
    normalized where the policy was trained so, and flattened.
    """

    shape: tuple[int, ...]
    image: bool = False
    normalization: Normalization | None = None

    def __post_init__(self) -> None:
        if self.normalization is not None and self.normalization.mean.shape != self.shape:
            raise PolicyError(f"statistics of shape {self.normalization.mean.shape} for observations of {self.shape}")
        if self.image and (len(self.shape) != 3 or self.normalization is not None):
            raise PolicyError(f"image observations are (channels, height, width) without statistics, not {self.shape}")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the net's input without the batch axis."""
        return self.shape if self.image else (math.prod(self.shape),)

    def apply(self, observations: NDArray[Any]) -> Floats:
        """Transform a batch, without masks; PolicyError for a wrong shape or dtype."""
        observations = drop_masks(observations)
        self.check(observations)
        if self.image:
            if observations.shape[1:] != self.shape:
                observations = observations.transpose(0, 3, 1, 2)
            return np.ascontiguousarray(observations, dtype=np.float32) / np.float32(255)
        if self.normalization is not None:
            return self.normalization.apply(observations).reshape(len(observations), *self.input_shape)
        return np.ascontiguousarray(observations, dtype=np.float32).reshape(len(observations), *self.input_shape)

    def divide(self, ranges: NDArray[np.float64]) -> "ObservationTransform":
        """This transform with every feature divided by its range; PolicyError for what has no such form.

        An image is scaled as it is. Statistics clip all features alike, in units that no longer would be alike.
        """
        if self.image:
            raise PolicyError("eq: an image's pixels have one range already; leave eq out")
        if self.normalization is not None:
            raise PolicyError("eq: the observations are normalized, feature by feature, already; leave eq out")
        squares = ranges.reshape(self.shape) ** 2
        return replace(self, normalization=Normalization(np.zeros(self.shape), squares, math.inf, TINY))

    def check(self, observations: NDArray[Any]) -> None:
        """Refuse what is not a batch of this policy's observations."""
        channel_last = (*self.shape[1:], self.shape[0]) if self.image else self.shape
        if observations.shape[1:] not in (self.shape, channel_last):
            raise PolicyError(
                f"observations of shape {observations.shape} for a policy of (n, {', '.join(map(str, self.shape))}); "
                "pass a batch of this policy's environment"
            )
        wanted = "u" if self.image else "fiu"
        if observations.dtype.kind not in wanted or (self.image and observations.dtype != np.uint8):
            kind = "uint8 images" if self.image else "real numbers"
            raise PolicyError(f"observations of dtype {observations.dtype} for a policy that takes {kind}")
