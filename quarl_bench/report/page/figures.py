"""Figures of the page, drawn from the data of rows, each under the heading of the paper that it is of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure as Drawing

from quarl_bench.papers.registry import find_heading
from quarl_bench.report.documents import Document
from quarl_bench.report.page.exploration import STEPS, WEIGHT, draw_learning, view_learning
from quarl_bench.report.page.memory import draw_memory, view_memory
from quarl_bench.report.page.mixed_precision import draw_convergence, draw_step_times, view_convergence, view_step_times
from quarl_bench.report.page.multi_panel import draw_panels, view_panels
from quarl_bench.report.page.plots import draw_bits, draw_weights, render_svg
from quarl_bench.report.page.row_views import view_plots
from quarl_bench.report.page.sweeps import read_check_curves, read_curves
from quarl_bench.report.page.weight_histograms import read_bins, view_spreads
from quarl_bench.views.rows import Row


@dataclass(frozen=True)
class Figure:
    """A drawing as an SVG element, with its title and a note on what it shows."""

    title: str
    note: str
    svg: str  # an element drawn here, not text of a file


@dataclass(frozen=True)
class Gallery:
    """Figures that the page shows one after the other under one heading."""

    heading: str
    figures: tuple[Figure, ...]


def draw_galleries(documents: Sequence[Document], rows: Sequence[Row]) -> tuple[Gallery, ...]:
    """Everything that rows and sweeps brought to be drawn, by heading."""
    sources = {
        "bits": [*_draw_bits(rows), *_draw_sweeps(documents), *_draw_checks(documents)],
        "exploration": [*_draw_learning(rows)],
        "weights": [*_draw_spreads(rows)],
        "memory": [*_draw_memory(rows)],
        "mixed_precision": [*_draw_step_times(rows), *_draw_convergence(rows)],
        "panels": [*_draw_panels(rows)],
    }
    return tuple(Gallery(find_heading(kind), tuple(figures)) for kind, figures in sources.items() if figures)


def draw_histograms(document: Document) -> Figure:
    """The weights that `quarl weights` described."""
    title = f"{document.data['policy']} under {document.data['scheme']}"
    note = "biases excluded; logarithmic counts; vertical lines are the levels that occur"
    return _render(title, note, draw_weights(read_bins(document.data)), f"weights-{document.name}")


def _draw_bits(rows: Sequence[Row]) -> Iterator[Figure]:
    for index, plot in enumerate(view_plots(rows)):
        note = "mean over policies, with the interval of the verdict"
        yield _render(plot.title, note, draw_bits(plot.curves, plot.reference), f"bits{index}")


def _draw_sweeps(documents: Sequence[Document]) -> Iterator[Figure]:
    for index, document in enumerate(document for document in documents if document.kind == "sweep"):
        title = f"{document.data['policy']} on {document.data['environment']}"
        note = f"one policy, {document.data['episodes']} episodes at every width"
        yield _render(title, note, draw_bits(*read_curves(document.data)), f"sweep{index}")


def _draw_checks(documents: Sequence[Document]) -> Iterator[Figure]:
    for index, document in enumerate(document for document in documents if document.kind == "check"):
        title = f"{document.data['policy']} on {document.data['environment']}"
        note = "one policy, with intervals of the paired difference to fp32"
        yield _render(title, note, draw_bits(*read_check_curves(document.data)), f"check{index}")


def _draw_learning(rows: Sequence[Row]) -> Iterator[Figure]:
    for index, view in enumerate(view_learning(rows)):
        note = f"means over training seeds, smoothed by {WEIGHT} for every {STEPS}th of a run"
        yield _render(view.title, note, draw_learning(view), f"learning{index}")


def _draw_spreads(rows: Sequence[Row]) -> Iterator[Figure]:
    for index, view in enumerate(view_spreads(rows)):
        note = "all weights of the policy of training seed 0; logarithmic counts"
        yield _render(view.title, note, draw_weights(view.bins, shared=True), f"spread{index}")


def _draw_memory(rows: Sequence[Row]) -> Iterator[Figure]:
    for index, view in enumerate(view_memory(rows)):
        note = "resident memory of a process that loads and runs the artefact, its interpreter and runtime included"
        yield _render(view.title, note, draw_memory(view), f"memory{index}")


def _draw_step_times(rows: Sequence[Row]) -> Iterator[Figure]:
    for index, view in enumerate(view_step_times(rows)):
        note = "how many times as fast a training step is in mixed precision, with 90% limits"
        yield _render(view.title, note, draw_step_times(view), f"pace{index}")


def _draw_convergence(rows: Sequence[Row]) -> Iterator[Figure]:
    for index, view in enumerate(view_convergence(rows)):
        note = "mean return over training seeds, with its 90% interval"
        yield _render(view.title, note, draw_convergence(view), f"convergence{index}")


def _draw_panels(rows: Sequence[Row]) -> Iterator[Figure]:
    for index, view in enumerate(view_panels(rows)):
        yield _render(
            view.title, "means over policies, with their standard deviation", draw_panels(view), f"panels{index}"
        )


def _render(title: str, note: str, drawing: Drawing, salt: str) -> Figure:
    return Figure(title, note, render_svg(drawing, salt))
