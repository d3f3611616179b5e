"""The first screen's figures as files: the verdict matrix, the curves, and both beside each other."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from quarl_bench.errors import StoreError
from quarl_bench.report.page.matrix import view_matrix
from quarl_bench.report.page.overview import (
    describe_kept,
    describe_matrix,
    draw_kept,
    draw_matrix,
    draw_overview,
    pick_schemes,
    view_kept,
)
from quarl_bench.report.page.plots import render_png, render_svg_file
from quarl_bench.system.atomic import open_folder, write_file
from quarl_bench.system.bars import open_bar, step
from quarl_bench.views.rows import Row

SUFFIXES = (".svg", ".png")
MATRIX, CURVES = "Verdicts by environment, algorithm and scheme", "Return against bits, as a share of fp32's"


def write_figures(
    folder: Path, rows: Sequence[Row], suffixes: Sequence[str] = SUFFIXES, *, shown: bool | None = False
) -> list[Path]:
    """Write `verdicts`, `bits` and `overview` into `folder`, in each format; what was written.

    The overview is made to stand beside text, and shows few schemes. `shown` says whether a bar is. StoreError where no
    row says what was kept.
    """
    matrix, view = view_matrix(rows), view_kept(rows)
    small = view_matrix(rows, pick_schemes(rows))
    if matrix is None or view is None or small is None:
        raise StoreError("no row here says what is kept of a return; name a file of pytest's --quarl-json")
    told = (describe_matrix(matrix), describe_kept(view))
    drawings = {
        "verdicts": (partial(draw_matrix, matrix), MATRIX, told[0]),
        "bits": (partial(draw_kept, view), CURVES, told[1]),
        "overview": (partial(draw_overview, small, view), f"{MATRIX}, beside the return that is kept", ". ".join(told)),
    }
    written = []
    open_folder(folder)
    with open_bar(len(drawings) * len(suffixes), "file", "drawing", shown=shown) as bar:
        for name, (draw, title, words) in drawings.items():
            figure = draw()
            for suffix in suffixes:
                content = render_png(figure) if suffix == ".png" else render_svg_file(figure, name, title, words)
                written.append(folder / f"{name}{suffix}")
                write_file(written[-1], content)
                step(bar, written[-1].name)
    return written
