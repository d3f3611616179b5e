"""Histograms of weights: what `quarl weights --json` lists, and what rows compare (QuaRL, Figures 2 and 3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from quarl_bench.report.page.plots import Bins
from quarl_bench.views.rows import Row


@dataclass(frozen=True)
class SpreadView:
    """Policies whose weights stand under each other on one axis."""

    title: str
    bins: tuple[Bins, ...]


def read_bins(weights: dict[str, Any]) -> tuple[Bins, ...]:
    """Histograms of every tensor; KeyError, TypeError or ValueError when ill-formed."""
    return tuple(_read(entry, str(entry["name"])) for entry in weights["histograms"])


def view_spreads(rows: Sequence[Row]) -> Iterator[SpreadView]:
    """Per task its algorithms (Figure 3), and per algorithm its tasks (Figure 2), where there are two or more."""
    tasks: dict[str, dict[str, Bins]] = {}
    algorithms: dict[str, dict[str, Bins]] = {}
    for row in rows:
        for environment, found in (row.histograms or {}).items():
            for name, entry in found.items():
                tasks.setdefault(str(environment), {})[str(name)] = _read(entry, str(name))
                algorithms.setdefault(str(name), {})[str(environment)] = _read(entry, str(environment))
    for what, groups in (("on", tasks), ("of", algorithms)):
        for name, bins in sorted(groups.items()):
            if len(bins) > 1:
                yield SpreadView(f"weights {what} {name}", tuple(bins[key] for key in sorted(bins)))


def _read(entry: dict[str, Any], title: str) -> Bins:
    return Bins(
        title=title,
        low=float(entry["low"]),
        high=float(entry["high"]),
        counts=tuple(int(count) for count in entry["counts"]),
        levels=tuple(float(level) for level in entry["levels"]),
    )
