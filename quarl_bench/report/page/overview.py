"""The two figures of the first screen: the verdict matrix, and the kept return against bits; alone and side by side."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from quarl_bench.report.page.matrix import RULE, SYMBOLS, Matrix
from quarl_bench.report.page.palette import LIGHT
from quarl_bench.report.page.plots import INK, MARKERS, SERIES, fix_style, tidy
from quarl_bench.views.rows import Row

FAMILIES = {"fp": "fp16", "w": "weights only", "int": "weights and activations", "qat": "trained quantized"}
FITTING = 9  # characters of a scheme's name that a column is wide enough for
SCHEME = re.compile(r"(fp|w|int|qat)([0-9]{1,2})")
LOWEST, HIGHEST = -0.05, 1.2  # of what is kept, as drawn; what is outside is drawn at the edge
CELL = (0.56, 0.25)  # inches
NAMES = 1.75  # inches beside the matrix
BESIDE = 4.6  # inches of the curves beside the matrix
TINT = 0.16  # opacity of a verdict's colour behind its symbol


@dataclass(frozen=True)
class Trace:
    """What one environment's policies keep in one family: (bits, share, low, high), from few bits to many."""

    family: str
    points: tuple[tuple[int, float, float, float], ...]


@dataclass(frozen=True)
class KeptView:
    """Traces by algorithm, the share that is claimed to be kept, and all bit widths."""

    panels: dict[str, tuple[Trace, ...]]
    claimed: float
    bits: tuple[int, ...]


def view_kept(rows: Sequence[Row]) -> KeptView | None:
    """What every cell keeps, by algorithm; None where no row says so under a scheme of one bit width."""
    found: dict[str, dict[tuple[str, str, str], dict[int, tuple[int, float, float, float]]]] = {}
    thresholds = []
    for row in rows:
        match = SCHEME.fullmatch(row.scheme)
        if row.kind != "case" or row.rule != RULE or row.board or not match or row.estimate is None:
            continue
        if match[0] == "fp32":
            continue
        low, high = row.interval or (row.estimate, row.estimate)
        traces = found.setdefault(row.algo, {}).setdefault((row.env, row.origin, match[1]), {})
        traces.setdefault(int(match[2]), (int(match[2]), row.estimate, low, high))
        thresholds.append(row.threshold)
    if not found:
        return None
    panels = {
        algo: tuple(
            Trace(key[-1], tuple(points[bits] for bits in sorted(points))) for key, points in sorted(each.items())
        )
        for algo, each in sorted(found.items())
    }
    bits = {point[0] for traces in panels.values() for trace in traces for point in trace.points}
    return KeptView(panels, max(set(thresholds), key=thresholds.count), tuple(sorted(bits)))


def draw_matrix(matrix: Matrix) -> Figure:
    """The matrix alone, as wide as its columns need."""
    with fix_style():
        figure = Figure(_measure(matrix), layout="constrained")
        _fill_matrix(figure.subplots(), matrix)
        return figure


def draw_kept(view: KeptView) -> Figure:
    """The kept share against bits alone, a panel an algorithm."""
    with fix_style():
        figure = Figure((5.6, 0.8 + 1.75 * _count_lines(view)), layout="constrained")
        _fill_kept(figure, view)
        return figure


def draw_overview(matrix: Matrix, view: KeptView) -> Figure:
    """Both beside each other."""
    with fix_style():
        wide, high = _measure(matrix)
        figure = Figure((wide + BESIDE, max(high, 4.0)), layout="constrained")
        halves: Any = figure.subfigures(1, 2, width_ratios=(wide, BESIDE))
        _fill_matrix(halves[0].subplots(), matrix)
        _fill_kept(halves[1], view)
        return figure


def describe_matrix(matrix: Matrix) -> str:
    """What the matrix shows, for those who do not see it."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in matrix.counts.items())
    lines = "; ".join(
        f"{line.environment}{f' ({line.origin})' if line.origin else ''}: "
        + ", ".join(
            f"{column.algo} {column.scheme} {mark.verdict} {mark.share}".rstrip()
            for column, mark in zip(matrix.columns, line.marks, strict=True)
            if mark
        )
        for line in matrix.lines
    )
    return f"{counts}. {lines}"


def describe_kept(view: KeptView) -> str:
    """What the curves show, for those who do not see them: by algorithm and family, the range at every width."""
    told = []
    for algo, traces in view.panels.items():
        for family, name in FAMILIES.items():
            points = [point for trace in traces if trace.family == family for point in trace.points]
            widths = sorted({point[0] for point in points}, reverse=True)
            shares = {bits: [point[1] for point in points if point[0] == bits] for bits in widths}
            spans = [f"{bits} bits {min(kept):.0%} to {max(kept):.0%}" for bits, kept in shares.items()]
            told += [f"{algo}, {name}: {', '.join(spans)}"] if spans else []
    return "; ".join(told)


def _measure(matrix: Matrix) -> tuple[float, float]:
    return NAMES + CELL[0] * len(matrix.columns), 0.95 + CELL[1] * len(matrix.lines)


def _fill_matrix(axes: Axes, matrix: Matrix) -> None:
    across, down = len(matrix.columns), len(matrix.lines)
    axes.set_xlim(0, across)
    axes.set_ylim(down, -1.3)
    for place, line in enumerate(matrix.lines):
        for column, mark in enumerate(line.marks):
            if mark is None:
                continue
            colour = LIGHT[mark.verdict]
            axes.add_patch(
                Rectangle((column + 0.04, place + 0.06), 0.92, 0.88, facecolor=colour, alpha=TINT, linewidth=0)
            )
            text = f"{mark.symbol} {mark.share}".strip()
            axes.text(column + 0.5, place + 0.5, text, color=colour, ha="center", va="center", fontsize=8)
    start = 0
    for algo, width in matrix.groups:
        axes.text(start + width / 2, -0.95, algo, ha="center", va="center", fontsize=9, fontweight="bold")
        if start:
            axes.axvline(start, color=INK, linewidth=0.6)
        start += width
    for column, each in enumerate(matrix.columns):
        size = 8 * min(1.0, FITTING / len(each.scheme))
        axes.text(column + 0.5, -0.3, each.scheme, ha="center", va="center", fontsize=size)
    names = [line.environment + (f", {line.origin}" if line.origin else "") for line in matrix.lines]
    axes.set_yticks([place + 0.5 for place in range(down)], names, fontsize=8)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    marks = [Line2D([], [], linestyle="", label=f"{SYMBOLS[word]} {word}") for word in matrix.counts]
    colours = [LIGHT[word] for word in matrix.counts]
    below: dict[str, Any] = {
        "loc": "upper center",
        "bbox_to_anchor": (0.5, 0.0),
        "ncols": 4,
        "handlelength": 0,
        "handletextpad": 0,
    }
    axes.legend(handles=marks, labelcolor=colours, frameon=False, fontsize=8, **below)


def _count_lines(view: KeptView) -> int:
    return math.ceil(len(view.panels) / 2)


def _fill_kept(figure: Any, view: KeptView) -> None:
    across = min(2, len(view.panels))
    panels = figure.subplots(_count_lines(view), across, sharex=True, sharey=True, squeeze=False).flat
    places = {bits: place for place, bits in enumerate(view.bits)}
    for axes, (algo, traces) in zip(panels, view.panels.items(), strict=False):
        axes.axhline(view.claimed, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        for number, trace in enumerate(traces):
            index = list(FAMILIES).index(trace.family)
            shift = 0.24 * (number / max(len(traces) - 1, 1) - 0.5)  # so that equal returns do not hide each other
            bits = [places[point[0]] + shift for point in trace.points]
            share, low, high = ([min(max(p[side], LOWEST), HIGHEST) for p in trace.points] for side in (1, 2, 3))
            style = {"color": SERIES[index], "linewidth": 0.8}
            axes.plot(bits, share, marker=MARKERS[index], markersize=3.2, **style)
            axes.vlines(bits, low, high, alpha=0.6, **style)
        axes.set_ylim(LOWEST - 0.03, HIGHEST + 0.03)
        axes.set_xticks(list(places.values()), [str(bits) for bits in places])
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.set_title(algo or "policies", fontsize=9, loc="left", fontweight="bold")
        tidy(axes)
    for axes in list(panels)[len(view.panels) :]:
        axes.set_visible(False)
    figure.supxlabel("bits", fontsize=9)
    figure.supylabel("return that is kept, of fp32's", fontsize=9)
    used = {trace.family for traces in view.panels.values() for trace in traces}
    lines = [
        Line2D([], [], color=SERIES[index], marker=MARKERS[index], markersize=4, linewidth=0.8, label=label)
        for index, (family, label) in enumerate(FAMILIES.items())
        if family in used
    ]
    lines.append(
        Line2D([], [], color=INK, linewidth=0.9, linestyle=(0, (4, 3)), label=f"{view.claimed:.0%}, to be kept")
    )
    figure.legend(handles=lines, loc="outside upper center", ncols=3, frameon=False, fontsize=8)


def pick_schemes(rows: Iterable[Row]) -> tuple[str, ...]:
    """The schemes that a picture beside text has room for."""
    shown = ("w8", "int8", "int8repaired", "qat4")
    there = {row.scheme for row in rows}
    return tuple(scheme for scheme in shown if scheme in there)
