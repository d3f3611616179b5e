"""A figure of many panels: one per task, as rows brought them, drawn beside each other."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from quarl_bench.report.page.plots import INK, MARKERS, SERIES, fix_style, tidy
from quarl_bench.views.rows import Row

PANELS_PER_ROW = 3  # panels beside each other
MARKERS_BELOW = 10  # points from which on a series has no markers
LOGARITHMIC = "hidden width"  # the axis whose values double


@dataclass(frozen=True)
class PanelsView:
    """One figure from one source: its panels, ordered by task."""

    title: str
    panels: tuple[dict[str, Any], ...]


def view_panels(rows: Sequence[Row]) -> Iterator[PanelsView]:
    """One view per figure and source; a task that several rows show is drawn once."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        for panel in row.panels or ():
            found.setdefault((str(panel["figure"]), str(panel["source"])), {})[str(panel["task"])] = panel
    for (figure, source), panels in sorted(found.items()):
        yield PanelsView(f"{figure}: {source}", tuple(panels[task] for task in sorted(panels)))


def draw_panels(view: PanelsView) -> Figure:
    """Mean returns with one standard deviation over policies; fp32's band is shaded."""
    with fix_style():
        down = math.ceil(len(view.panels) / PANELS_PER_ROW)
        figure = Figure((6.4, 2.2 * down + 0.5), layout="constrained")
        grid = figure.subplots(down, min(PANELS_PER_ROW, len(view.panels)), squeeze=False).flatten()
        colors: dict[str, str] = {}
        for axes, panel in zip(grid, view.panels, strict=False):
            _draw(axes, panel, colors)
        for axes in grid[:: min(PANELS_PER_ROW, len(view.panels))]:
            axes.set_ylabel("return")
        for axes in grid[len(view.panels) :]:
            axes.set_axis_off()
        labelled = {
            label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            labelled.values(), labelled.keys(), loc="outside upper center", ncols=5, frameon=False, fontsize=8
        )
        return figure


def _draw(axes: Axes, panel: dict[str, Any], colors: dict[str, str]) -> None:
    if panel["band"] is not None:
        mean, sd = float(panel["band"]["mean"]), float(panel["band"]["sd"])
        axes.axhspan(mean - sd, mean + sd, color=INK, alpha=0.08, linewidth=0)
        axes.axhline(mean, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), label="fp32")
    for name, places in panel["series"].items():
        color = colors.setdefault(str(name), SERIES[len(colors) % len(SERIES)])
        x, means, sds = ([float(place[key]) for place in places] for key in ("x", "mean", "sd"))
        marker = MARKERS[list(colors).index(str(name)) % len(MARKERS)] if len(x) < MARKERS_BELOW else ""
        axes.plot(x, means, color=color, marker=marker, markersize=3, linewidth=1.1, label=str(name))
        low, high = ([m + side * s for m, s in zip(means, sds, strict=True)] for side in (-1, 1))
        if len(x) > 1:
            axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
        else:
            axes.vlines(x, low, high, color=color, linewidth=1.0)
    if panel["axis"] == LOGARITHMIC:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")  # the usual one speaks TeX
    elif str(panel["axis"]).endswith("bits"):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_title(str(panel["task"]), fontsize=9, loc="left")
    axes.set_xlabel(str(panel["axis"]))
    tidy(axes)
