"""Memory over time of two artefacts on one board, as rows of timings bring it (QuaRL, Figure 4)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from quarl_bench.report.page.plots import SERIES, open_panel
from quarl_bench.views.rows import Row

SIDES = {"reference": "fp32", "measured": "int8"}
MIB = 1 << 20


@dataclass(frozen=True)
class MemoryView:
    """By artefact, (seconds, resident bytes, swapped bytes) from its start on."""

    title: str
    traces: dict[str, list[list[float]]]


def view_memory(rows: Sequence[Row]) -> Iterator[MemoryView]:
    """One view per policy and board, from the first of its rows."""
    seen = set()
    for row in rows:
        traces = {label: getattr(row, side).get("memory") for side, label in SIDES.items() if row.kind == "timing"}
        key = f"{row.env} on {row.board}"
        if traces and all(traces.values()) and key not in seen:
            seen.add(key)
            yield MemoryView(key, traces)


def draw_memory(view: MemoryView) -> Figure:
    """Resident memory, and what was swapped out as a dashed line where anything was."""
    with open_panel(("seconds", "MiB"), columns=4) as (figure, axes):
        for index, (name, trace) in enumerate(view.traces.items()):
            seconds, resident, swapped = zip(*trace, strict=True)
            color = SERIES[index]
            axes.plot(seconds, [size / MIB for size in resident], color=color, linewidth=1.2, label=name)
            if any(swapped):
                sizes = [size / MIB for size in swapped]
                axes.plot(seconds, sizes, color=color, linewidth=1.2, linestyle=(0, (4, 2)), label=f"{name}, swapped")
        axes.set_ylim(bottom=0.0)
    return figure
