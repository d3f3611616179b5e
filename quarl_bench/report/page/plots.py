"""Figures, without pyplot: one function draws, one renders. Nothing here is read from the environment.

An SVG is made to stand inside an HTML page: its ink takes the page's colours, its ids are unique to `salt`.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from quarl_bench.report.page.palette import LIGHT, follow_reader, write_variables

INK, GRID = LIGHT["ink"], LIGHT["grid"]
SERIES = tuple(LIGHT[f"series-{index}"] for index in range(6))
MARKERS = ("o", "s", "^", "D", "v", "P")
NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
FIXED = {  # whatever a user's matplotlibrc says, the same data give the same picture
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.parse_math": False,
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Point:
    """Return at a bit width, with the interval of its mean where there is one."""

    bits: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """The points of one family of schemes, joined by a line, with its label in the legend."""

    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Bins:
    """A histogram of equal bins, with the levels to draw over it."""

    title: str
    low: float
    high: float
    counts: tuple[int, ...]
    levels: tuple[float, ...] = ()


def draw_bits(curves: Sequence[Curve], reference: float, kept: float | None = None, title: str = "") -> Figure:
    """Return against bit width, with intervals; the fp32 return, and the one that has to be `kept`, as lines."""
    with open_panel(("bits", "mean return"), columns=3, height=3.6) as (figure, axes):
        axes.set_title(title, fontsize=10, loc="left")
        axes.axhline(reference, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), label="fp32", zorder=1)
        if kept is not None:
            axes.axhline(kept, color=SERIES[1], linewidth=1.0, linestyle=(0, (1, 2)), label="to be kept", zorder=1)
        for index, curve in enumerate(curves):
            points = sorted(curve.points, key=lambda point: point.bits)
            color = SERIES[index % len(SERIES)]
            shift = 0.08 * (index - (len(curves) - 1) / 2)  # so that equal returns do not hide each other
            bits = [point.bits + shift for point in points]
            marker = MARKERS[index % len(MARKERS)]
            values = [point.value for point in points]
            axes.plot(bits, values, color=color, marker=marker, markersize=4, linewidth=1.2, label=curve.label)
            for place, point in zip(bits, points, strict=True):
                if point.low is not None and point.high is not None:
                    axes.vlines(place, point.low, point.high, color=color, linewidth=1.0)
        widths = sorted({point.bits for curve in curves for point in curve.points})
        axes.set_xticks(widths if len(widths) <= 16 else [b for b in widths if b % 2 == 0])
    return figure


def draw_weights(histograms: Sequence[Bins], *, shared: bool = False) -> Figure:
    """Weights per tensor on a logarithmic count axis, the quantizer's levels as lines over them.

    On a `shared` axis of weights the spreads can be compared.
    """
    with fix_style():
        figure = Figure((6.4, 1.5 * len(histograms) + 0.4), layout="constrained")
        for axes, bins in zip(
            figure.subplots(len(histograms), sharex=shared, squeeze=False)[:, 0], histograms, strict=True
        ):
            width = (bins.high - bins.low) / len(bins.counts)
            edges = [bins.low + width * index for index in range(len(bins.counts) + 1)]
            axes.stairs(bins.counts, edges, fill=True, color=SERIES[0])
            top = 2.0 * max(*bins.counts, 1)
            axes.vlines(bins.levels, 0.5, top, color=SERIES[1], linewidth=0.5 if len(bins.levels) < 32 else 0.2)
            axes.set_ylim(0.5, top)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")  # the usual one speaks TeX
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_title(bins.title, fontsize=9, loc="left")
            axes.set_ylabel("weights")
            tidy(axes)
        return figure


@contextmanager
def open_panel(labels: tuple[str, str], columns: int, height: float = 3.0) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one panel to draw into, with `labels` of x and y, and its legend above in so many columns."""
    with fix_style():
        figure = Figure((5.6, height), layout="constrained")
        axes = figure.subplots()
        yield figure, axes
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        tidy(axes)
        figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=8)


def render_png(figure: Figure) -> bytes:
    """The figure on white, for a file of its own."""
    stream = io.BytesIO()
    with fix_style():
        figure.savefig(stream, format="png", dpi=144, facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def render_svg(figure: Figure, salt: str) -> str:
    """The figure as an `<svg>` element for a page; `salt` sets its ids apart from those of other figures there."""
    stream = io.StringIO()
    silent = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with fix_style(), mpl.rc_context({"svg.hashsalt": salt}):
        figure.savefig(stream, format="svg", transparent=True, metadata=silent)
    text = stream.getvalue()
    text = text[text.index("<svg") :]  # an XML declaration has no place inside a page
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # names like axes_1, the same in every figure
    return follow_reader(text).strip()


def render_svg_file(figure: Figure, salt: str, title: str, words: str) -> str:
    """The figure as an SVG file of its own, in the reader's colours, with a title and its content in words."""
    drawn = render_svg(figure, salt).removeprefix("<svg")
    attributes, body = drawn.split(">", maxsplit=1)
    names = f'role="img" aria-labelledby="{salt}-title {salt}-words" style="color: var(--ink)"'
    told = f'<title id="{salt}-title">{escape(title)}</title>\n<desc id="{salt}-words">{escape(words)}</desc>'
    ground = f'<style>{write_variables("svg")}</style>\n<rect width="100%" height="100%" fill="var(--page)"/>'
    return f"<svg {NAMESPACES} {names}{attributes}>\n{told}\n{ground}{body}\n"


def tidy(axes: Axes) -> None:
    """Horizontal grid lines behind the data, and no box."""
    axes.grid(visible=True, axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def fix_style() -> AbstractContextManager[None]:
    """The style in which every figure is drawn and rendered."""
    return style.context(["default", FIXED])
