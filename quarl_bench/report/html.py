"""Results files -> one HTML page that needs nothing beside itself: no network, no other file, no script to be read."""

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from quarl_bench.atomic import write_file
from quarl_bench.errors import StoreError
from quarl_bench.report.documents import Document
from quarl_bench.report.learning import STEPS, WEIGHT, draw_learning, view_learning
from quarl_bench.report.paces import draw_convergence, draw_paces, view_convergence, view_paces
from quarl_bench.report.panels import draw_panels, view_panels
from quarl_bench.report.plots import draw_bits, draw_weights, render_svg
from quarl_bench.report.sweeps import read_curves
from quarl_bench.report.views import VERDICTS, view_claims, view_plots, view_rows
from quarl_bench.report.weights import read_bins, view_spreads

TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class Figure:
    """A drawing with what it shows."""

    title: str
    note: str
    svg: str  # an element drawn here, not text of a file


def write_report(path: Path, documents: Sequence[Document]) -> None:
    """Write the page of `render_report`."""
    write_file(path, render_report(documents))


def render_report(documents: Sequence[Document]) -> str:
    """The page; the same documents give the same text. StoreError for rows that are not what they claim to be."""
    results = [document for document in documents if document.kind == "results"]
    rows = [row for document in results for row in document.data["rows"]]
    try:
        views = view_rows(rows)
        return (
            _environment()
            .get_template(TEMPLATE)
            .render(
                claims=view_claims(rows),
                cases=[view for view in views if view.kind == "case"],
                items=[view for view in views if view.kind != "case"],
                counts=[(name, n) for name in VERDICTS if (n := sum(view.verdict == name for view in views))],
                figures=_draw_returns(documents, rows),
                weights=[_draw_weights(document) for document in documents if document.kind == "weights"],
                checks=[document.data for document in documents if document.kind == "check"],
                skipped=sorted(_group_skips(results).items()),
                notes=[note for document in results for note in document.data.get("notes", ())],
                runs=[(document.name, _describe_run(document)) for document in documents],
            )
        )
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, jinja2.TemplateError) as error:
        names = ", ".join(document.name for document in documents)
        raise StoreError(f"{names}: a row is ill-formed ({error!r}); make the file again") from error


def _draw_returns(documents: Sequence[Document], rows: Sequence[dict[str, Any]]) -> list[Figure]:
    figures: list[Figure] = []
    for plot in view_plots(rows):
        svg = render_svg(draw_bits(plot.curves, plot.reference), f"bits{len(figures)}")
        figures.append(Figure(plot.title, "mean over policies, with the interval of the verdict", svg))
    for learning in view_learning(rows):
        note = f"means over training seeds, smoothed by {WEIGHT} for every {STEPS}th of a run"
        figures.append(Figure(learning.title, note, render_svg(draw_learning(learning), f"learning{len(figures)}")))
    for pace in view_paces(rows):
        note = "how many times as fast a training step is in mixed precision, with 90% limits"
        figures.append(Figure(pace.title, note, render_svg(draw_paces(pace), f"pace{len(figures)}")))
    for runs in view_convergence(rows):
        note = "mean return over training seeds, with its 90% interval"
        figures.append(Figure(runs.title, note, render_svg(draw_convergence(runs), f"convergence{len(figures)}")))
    for panels in view_panels(rows):
        svg = render_svg(draw_panels(panels), f"panels{len(figures)}")
        figures.append(Figure(panels.title, "means over policies, with their standard deviation", svg))
    for spread in view_spreads(rows):
        svg = render_svg(draw_weights(spread.bins, shared=True), f"spread{len(figures)}")
        figures.append(Figure(spread.title, "all weights of the policy of training seed 0; logarithmic counts", svg))
    for document in documents:
        if document.kind == "sweep":
            curves, reference = read_curves(document.data)
            svg = render_svg(draw_bits(curves, reference), f"bits{len(figures)}")
            title = f"{document.data['policy']} on {document.data['environment']}"
            note = f"one policy, {document.data['episodes']} episodes at every width"
            figures.append(Figure(title, note, svg))
    return figures


def _draw_weights(document: Document) -> tuple[Figure, list[dict[str, Any]]]:
    bins = read_bins(document.data)
    title = f"{document.data['policy']} under {document.data['scheme']}"
    note = "biases excluded; logarithmic counts; vertical lines are the levels that occur"
    svg = render_svg(draw_weights(bins), f"weights-{document.name}")
    return Figure(title, note, svg), document.data["rows"]


def _group_skips(results: Sequence[Document]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for entry in (entry for document in results for entry in document.data.get("skipped", ())):
        reasons.setdefault(str(entry["reason"]), []).append(str(entry["nodeid"]))
    return reasons


def _describe_run(document: Document) -> list[tuple[str, str]]:
    """Provenance in pairs: machine, commit, versions, settings, and the date where there is one."""
    data = document.data
    if document.kind != "results":
        keys = ("policy", "policy_sha256", "environment", "episodes", "scheme", "source", "date")
        return [(key, str(data[key])) for key in keys if data.get(key) is not None]
    versions: dict[str, set[str]] = {}
    for row in data["rows"]:
        for name, version in dict(row.get("versions") or {}).items():
            versions.setdefault(str(name), set()).add(str(version))
    return [
        (name, text)
        for name, text in (
            ("date", str(data.get("date", ""))),
            ("machine", _join(data.get("machine"))),
            ("commit", str(data.get("commit", ""))),
            ("versions", "; ".join(f"{name} {', '.join(sorted(found))}" for name, found in sorted(versions.items()))),
            ("settings", _join(data.get("settings"))),
        )
        if text
    ]


def _join(values: Any) -> str:
    return "; ".join(f"{key} {value}" for key, value in dict(values or {}).items())


def _environment() -> jinja2.Environment:
    template = importlib.resources.files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    return jinja2.Environment(
        autoescape=True,
        loader=jinja2.DictLoader({TEMPLATE: template}),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
