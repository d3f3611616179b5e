"""Figures of the page, drawn from the data of rows, each under the heading of the paper that it is of."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.figure import Figure as Drawing

from quarl_bench.judging.outcomes import QUANTIZABLE
from quarl_bench.papers.registry import find_heading
from quarl_bench.report.documents import Document
from quarl_bench.report.page.kinds.exploration import STEPS, WEIGHT, draw_learning, view_learning
from quarl_bench.report.page.kinds.memory import draw_memory, view_memory
from quarl_bench.report.page.kinds.mixed_precision import (
    draw_convergence,
    draw_step_times,
    view_convergence,
    view_step_times,
)
from quarl_bench.report.page.kinds.multi_panel import draw_panels, view_panels
from quarl_bench.report.page.kinds.sweeps import read_check_curves, read_curves
from quarl_bench.report.page.kinds.weight_histograms import read_bins, view_spreads
from quarl_bench.report.page.overview import describe_kept, draw_kept, view_kept
from quarl_bench.report.page.plots import Curve, draw_bits, draw_weights, render_svg
from quarl_bench.report.page.row_views import view_plots
from quarl_bench.system.bars import open_bar, step
from quarl_bench.views.rows import Row


@dataclass(frozen=True)
class Figure:
    """A drawing as an SVG element, with its title and a note on what it shows."""

    title: str
    note: str
    svg: str  # an element drawn here, not text of a file
    words: str = ""  # what it shows, for those who do not see it; the note by default


@dataclass(frozen=True, eq=False)
class Sketch:
    """A figure that is not drawn yet: its title, its note, what draws it, and the beginning of its ids."""

    title: str
    note: str
    draw: Callable[[], Drawing]
    salt: str
    words: str = ""

    def render(self) -> Figure:
        """Draw it, which takes most of the time of a page."""
        return Figure(self.title, self.note, render_svg(self.draw(), self.salt), self.words)


@dataclass(frozen=True)
class Gallery:
    """Figures that the page shows one after the other under one heading."""

    heading: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Drawings:
    """All figures of a page. `curves` is None where no row says what was kept; `histograms` has one per document."""

    curves: Figure | None
    galleries: tuple[Gallery, ...]
    histograms: tuple[Figure, ...]


@dataclass(frozen=True)
class RowFigures:
    """How rows become figures of one kind: `view` finds what they brought, `draw` draws one view of it."""

    heading: str
    name: str  # in the ids of the drawing
    view: Callable[[Sequence[Row]], Iterator[Any]]
    draw: Callable[[Any], Drawing]
    note: str


ROW_FIGURES = (
    RowFigures("exploration", "learning", view_learning, draw_learning,
               f"means over training seeds, smoothed by {WEIGHT} for every {STEPS}th of a run"),
    RowFigures("weights", "spread", view_spreads, lambda view: draw_weights(view.bins, shared=True),
               "all weights of the policy of training seed 0; logarithmic counts"),
    RowFigures("memory", "memory", view_memory, draw_memory,
               "resident memory of a process that loads and runs the artefact, its interpreter and runtime included"),
    RowFigures("mixed_precision", "pace", view_step_times, draw_step_times,
               "how many times as fast a training step is in mixed precision, with 90% limits"),
    RowFigures("mixed_precision", "convergence", view_convergence, draw_convergence,
               "mean return over training seeds, with its 90% interval"),
    RowFigures("panels", "panels", view_panels, draw_panels, "means over policies, with their standard deviation"),
)  # fmt: skip
ReadCurves = Callable[[dict[str, Any]], tuple[tuple[Curve, ...], float, float | None]]
BITS: tuple[tuple[str, ReadCurves, str], ...] = (  # documents beside rows: kind, how its curves are read, note
    ("sweep", read_curves, "one policy, {episodes} episodes at every width"),
    ("check", read_check_curves, "one policy, with intervals of the paired difference to fp32"),
)


def draw_all(documents: Sequence[Document], rows: Sequence[Row], *, shown: bool | None = False) -> Drawings:
    """Everything that rows and other documents brought to be drawn; `shown` says whether a bar of the figures is."""
    curves, galleries = sketch_curves(rows), list_galleries(documents, rows)
    histograms = [sketch_histograms(document) for document in documents if document.kind == "weights"]
    sketches = [*([] if curves is None else [curves]), *itertools.chain(*galleries.values()), *histograms]
    figures = {}
    with open_bar(len(sketches), "figure", "drawing", shown=shown) as bar:
        for sketch in sketches:
            figures[sketch] = sketch.render()
            step(bar, sketch.title)
    return Drawings(
        None if curves is None else figures[curves],
        tuple(Gallery(name, tuple(figures[sketch] for sketch in found)) for name, found in galleries.items()),
        tuple(figures[sketch] for sketch in histograms),
    )


def list_galleries(documents: Sequence[Document], rows: Sequence[Row]) -> dict[str, list[Sketch]]:
    """What rows and sweeps brought to be drawn, by heading; papers are named beside rows about them only."""
    sources = {"bits": [*_sketch_plots(rows), *(each for kind in BITS for each in _sketch_documents(documents, *kind))]}
    for kind in ROW_FIGURES:
        sources.setdefault(kind.heading, []).extend(_sketch_kind(kind, rows))
    of_papers = any(row.claim != QUANTIZABLE for row in rows)
    headings = {kind: find_heading(kind) for kind in sources}
    headings = {kind: name if of_papers else name.partition(" (")[0] for kind, name in headings.items()}
    return {headings[kind]: sketches for kind, sketches in sources.items() if sketches}


def sketch_histograms(document: Document) -> Sketch:
    """The weights that `quarl weights` described."""
    title = f"{document.data['policy']} under {document.data['scheme']}"
    note = "biases excluded; logarithmic counts; vertical lines are the levels that occur"
    return Sketch(title, note, lambda: draw_weights(read_bins(document.data)), f"weights-{document.name}")


def sketch_curves(rows: Sequence[Row]) -> Sketch | None:
    """What every cell keeps against its bits, in one figure; None where no row says so."""
    view = view_kept(rows)
    if view is None:
        return None
    note = "every line is one environment, with intervals; what is below nothing or above 120% is drawn at the edge"
    title = "Return against bits, as a share of fp32's"
    return Sketch(title, note, partial(draw_kept, view), "kept", describe_kept(view))


def _sketch_plots(rows: Sequence[Row]) -> Iterator[Sketch]:
    for index, plot in enumerate(view_plots(rows)):
        note = "mean over policies, with the interval of the verdict"
        draw = partial(draw_bits, plot.curves, plot.reference, plot.kept, plot.title)
        yield Sketch(plot.title, note, draw, f"bits{index}")


def _sketch_documents(documents: Sequence[Document], kind: str, read: ReadCurves, note: str) -> Iterator[Sketch]:
    for index, document in enumerate(document for document in documents if document.kind == kind):
        title = f"{document.data['policy']} on {document.data['environment']}"
        draw = partial(draw_bits, *read(document.data), title)
        yield Sketch(title, note.format_map(document.data), draw, f"{kind}{index}")


def _sketch_kind(kind: RowFigures, rows: Sequence[Row]) -> Iterator[Sketch]:
    for index, view in enumerate(kind.view(rows)):
        yield Sketch(view.title, kind.note, partial(kind.draw, view), f"{kind.name}{index}")
