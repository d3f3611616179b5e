"""What `quarl weights --json` says, as histograms."""

from typing import Any

from quarl_bench.report.plots import Bins


def read_bins(weights: dict[str, Any]) -> tuple[Bins, ...]:
    """Histograms of every tensor; KeyError, TypeError or ValueError when ill-formed."""
    return tuple(
        Bins(
            title=str(entry["name"]),
            low=float(entry["low"]),
            high=float(entry["high"]),
            counts=tuple(int(count) for count in entry["counts"]),
            levels=tuple(float(level) for level in entry["levels"]),
        )
        for entry in weights["histograms"]
    )
