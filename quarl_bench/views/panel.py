"""A panel of a figure: series of means over policies, with their spread, beside the band of fp32."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class MeanPoint:
    """Mean over policies and their standard deviation at one x."""

    x: float
    mean: float
    sd: float


@dataclass(frozen=True)
class Panel:
    """One task of one figure; the band is fp32's where that is no series of its own."""

    figure: str
    source: str
    task: str
    axis: str
    series: Mapping[str, tuple[MeanPoint, ...]]
    band: MeanPoint | None = None

    def as_dict(self) -> dict[str, Any]:
        """The panel's fields in built-in types, as JSON carries them."""
        return asdict(self)
