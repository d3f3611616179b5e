"""Results files -> one HTML page that needs nothing beside itself: no network, no other file, no script to be read."""

import importlib.resources
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from quarl_bench.errors import StoreError
from quarl_bench.judging.outcomes import QUANTIZABLE
from quarl_bench.report.documents import Document
from quarl_bench.report.page.figures import draw_all
from quarl_bench.report.page.matrix import view_matrix
from quarl_bench.report.page.palette import write_variables
from quarl_bench.report.page.row_views import VERDICTS, view_claims, view_failures, view_rows
from quarl_bench.report.page.tables import split_tables
from quarl_bench.report.terminal import ANSWERS, name_kind
from quarl_bench.report.unjudged import list_unjudged
from quarl_bench.system.atomic import write_file
from quarl_bench.views.rows import Row

TEMPLATE, SUFFIX = "page.html.jinja", ".jinja"


def write_report(path: Path, documents: Sequence[Document], *, shown: bool | None = False) -> None:
    """Write the page of `render_report`."""
    write_file(path, render_report(documents, shown=shown))


def render_report(documents: Sequence[Document], *, shown: bool | None = False) -> str:
    """The page; the same documents give the same text. `shown` says whether a bar of its figures is.

    StoreError for rows that are not what they claim to be.
    """
    results = [document for document in documents if document.kind == "results"]
    rows = [row for document in results for row in document.rows]
    try:
        views = view_rows(rows)
        cases = [view for view in views if view.kind == "case"]
        own = bool(rows) and all(row.claim == QUANTIZABLE for row in rows)
        skips = _group_skips(results)
        drawings = draw_all(documents, rows, shown=shown)
        weights = [document.data["rows"] for document in documents if document.kind == "weights"]
        return (
            _environment()
            .get_template(TEMPLATE)
            .render(
                title=_name_page(documents, own=own),
                sentence=_tell(rows, own=own),
                own=own,
                palette=Markup(write_variables()),  # noqa: S704 (colours of ours)
                matrix=view_matrix(rows),
                curves=drawings.curves,
                targets={(view.id, view.claim): f"case-{number}" for number, view in enumerate(cases)},
                ranks=VERDICTS,
                judged=bool(results),
                failures=view_failures(rows),
                changes=_list_changes(results),
                claims=view_claims(rows),
                tables=split_tables(rows),
                cases=cases,
                items=[view for view in views if view.kind != "case"],
                counts=[(name, n) for name in VERDICTS if (n := sum(view.verdict == name for view in views))],
                galleries=drawings.galleries,
                weights=list(zip(drawings.histograms, weights, strict=True)),
                checks=[(d.data, _find_common_caveats(d.data)) for d in documents if d.kind == "check"],
                skipped=_sort_skips(skips),
                unjudged=list_unjudged(rows, [node for nodes in skips.values() for node in nodes]),
                notes=[note for document in results for note in document.data.get("notes", ())],
                runs=[(document.name, _describe_run(document)) for document in documents],
            )
        )
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, jinja2.TemplateError) as error:
        names = ", ".join(document.name for document in documents)
        raise StoreError(f"{names}: a row is ill-formed ({error!r}); make the file again") from error


def _name_page(documents: Sequence[Document], *, own: bool) -> str:
    if own:
        return "May these policies run in fewer bits?"
    kinds = sorted({document.kind for document in documents})
    return "Do the sentences of the papers hold?" if "results" in kinds else f"quarl {' and '.join(kinds)}"


def _tell(rows: Sequence[Row], *, own: bool) -> str:
    """What the page says, in one sentence; empty without rows. Replays measure nothing, and are counted apart."""
    found, rows = rows, [row for row in rows if not row.replay]
    replays = f" {len(found) - len(rows)} replays apart." if len(rows) < len(found) else ""
    if not rows:
        return replays.strip()
    counts = Counter(ANSWERS[row.verdict] for row in rows)
    yes, no, open_ = (counts[answer] for answer in dict.fromkeys(ANSWERS.values()))
    asked = "a policy keep its return in fewer bits" if own else "a sentence of the papers hold for these policies"
    times = "once" if len(rows) == 1 else f"{len(rows)} times"
    return f"Does {asked}? Asked {times}: {yes} yes, {no} no, {open_} not decided.{replays}"


def _group_skips(results: Sequence[Document]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for entry in (entry for document in results for entry in document.data.get("skipped", ())):
        reasons.setdefault(str(entry["reason"]), []).append(str(entry["nodeid"]))
    return reasons


def _sort_skips(skips: dict[str, list[str]]) -> list[tuple[str, int, list[tuple[str, list[str]]]]]:
    """By what reasons begin with: how many were skipped, and each reason with its node ids."""
    kinds: dict[str, list[tuple[str, list[str]]]] = {}
    for reason, nodes in sorted(skips.items()):
        kinds.setdefault(name_kind(reason), []).append((reason, nodes))
    return [(kind, sum(len(nodes) for _, nodes in reasons), reasons) for kind, reasons in kinds.items()]


def _find_common_caveats(check: dict[str, Any]) -> list[str]:
    """What is said of every scheme, to be said once."""
    first, *others = (row["caveats"] for row in check["rows"])
    return [caveat for caveat in first if all(caveat in caveats for caveats in others)]


def _list_changes(results: Sequence[Document]) -> list[dict[str, Any]] | None:
    """What the runs that were compared with an earlier one say; None where none was."""
    compared = [document.data["changes"] for document in results if "changes" in document.data]
    return [change for changes in compared for change in changes] if compared else None


def _describe_run(document: Document) -> list[tuple[str, str]]:
    """Provenance in pairs: machine, commit, versions, settings, and the date where there is one."""
    data = document.data
    if document.kind != "results":
        keys = ("policy", "policy_sha256", "environment", "episodes", "scheme", "margin", "floor", "source", "date")
        return [(key, str(data[key])) for key in keys if data.get(key) is not None]
    versions: dict[str, set[str]] = {}
    for row in document.rows:
        for name, version in (row.versions or {}).items():
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
    told = ((key, ", ".join(value) if isinstance(value, list) else value) for key, value in dict(values or {}).items())
    return "; ".join(f"{key} {value}" for key, value in told)


def _environment() -> jinja2.Environment:
    folder = importlib.resources.files(__package__) / "templates"
    templates = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(SUFFIX)}
    return jinja2.Environment(
        autoescape=True,
        loader=jinja2.DictLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
