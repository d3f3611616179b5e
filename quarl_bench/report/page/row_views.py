"""Rows as a page shows them: texts, sort keys and places on a bar."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quarl_bench.report.page.matrix import RULE
from quarl_bench.report.page.plots import Curve, Point
from quarl_bench.spec import UNDECIDED
from quarl_bench.views.rows import Row

VERDICTS = ("refuted", *UNDECIDED, "supported")  # worst first, as in the terminal
WIDTH, EDGE = 120.0, 4.0  # of a bar, in its own units
LARGEST_DISTANCE = 0.3  # a bar shows at most this much on either side of its threshold
NOTHING = 1e-9
SCHEME = re.compile(r"(fp|w|int|qat)([0-9]{1,2})([a-z0-9]*)")
FAMILIES = {"fp": "floating point", "w": "weights only", "int": "weights and activations", "qat": "trained quantized"}


@dataclass(frozen=True)
class Bar:
    """An interval against its threshold: x positions on a bar of `WIDTH`, and the numbers in words."""

    low: float
    high: float
    estimate: float
    threshold: float
    text: str


@dataclass(frozen=True)
class CaseView:
    """One line of a table of cells, or of sentences over many cells."""

    id: str
    kind: str  # case, claim or timing
    claim: str
    sentence: str
    locus: str
    ours: str  # fp32's number and the quantized one, as `paper`; of a sentence over many cells its estimate
    reference: float | None
    measured: float | None
    bar: Bar | None
    agreement: float | None
    paper: str  # the same of the paper, else empty
    threshold: str
    verdict: str
    known: str
    source: str
    regression: str
    basis: str
    notes: tuple[str, ...]
    missing: tuple[str, ...]
    nodeid: str


@dataclass(frozen=True)
class ClaimView:
    """One sentence with its cells counted by verdict, and the worst of them."""

    id: str
    counts: tuple[tuple[str, int], ...]
    worst: CaseView


@dataclass(frozen=True)
class PlotView:
    """Return against bits of one algorithm on one environment."""

    title: str
    curves: tuple[Curve, ...]
    reference: float
    kept: float | None = None  # the return at the threshold, where one holds for all points


def view_rows(rows: Sequence[Row]) -> tuple[CaseView, ...]:
    """Rows in the order of their ids; one common scale for the bars."""
    ordered = sorted(rows, key=lambda row: (row.id, row.claim))
    reach = _find_reach(ordered)
    return tuple(_view_row(row, reach) for row in ordered)


def view_claims(rows: Sequence[Row]) -> tuple[ClaimView, ...]:
    """Claims in the order in which rows name them."""
    reach, views = _find_reach(rows), []
    for claim in dict.fromkeys(row.claim for row in rows):
        members = sorted((row for row in rows if row.claim == claim), key=_badness)
        counts = tuple((name, n) for name in VERDICTS if (n := sum(r.verdict == name for r in members)))
        views.append(ClaimView(claim, counts, _view_row(members[0], reach)))
    return tuple(views)


def view_failures(rows: Sequence[Row]) -> tuple[CaseView, ...]:
    """What did not reproduce: refuted rows and moved numbers, those that nobody has explained first."""
    failed = [row for row in rows if row.verdict == "refuted" or row.regression == "moved"]
    reach = _find_reach(failed)
    views = [_view_row(row, reach) for row in failed]
    return tuple(sorted(views, key=lambda view: (bool(view.known), view.claim, view.id)))


def view_plots(rows: Sequence[Row]) -> Iterator[PlotView]:
    """A plot for every algorithm and environment with two quantized schemes or more."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.kind == "case" and SCHEME.fullmatch(row.scheme) and row.scheme != "fp32":
            key = (row.algo, row.env, row.origin)
            cells.setdefault(key, []).append(row)
    for key, members in sorted(cells.items()):
        if len({row.scheme for row in members}) < 2:
            continue
        curves: dict[str, dict[int, Point]] = {}
        for row in sorted(members, key=lambda row: row.id):
            family, bits, options = SCHEME.findall(row.scheme)[0]
            label = " ".join(filter(None, (FAMILIES[family], options, "deployed" if row.board else "")))
            curves.setdefault(label, {}).setdefault(int(bits), _place(row, int(bits)))
        drawn = tuple(Curve(label, tuple(points.values())) for label, points in curves.items())
        # Trained schemes are held against the fp32 policies of their own seeds, which may be few of all.
        widest = max(members, key=lambda row: int(row.reference["policies"]))
        yield PlotView(
            " / ".join(filter(None, key)), drawn, float(widest.reference["mean"]), _find_kept(widest, members)
        )


def _view_row(row: Row, reach: tuple[float, float]) -> CaseView:
    cell = row.kind == "case"
    measured = row.measured if cell else {}
    paper = row.paper
    basis = ""
    if cell:
        episodes, distinct = measured["episodes"], measured["distinct_episodes"]
        basis = f"{measured['policies']} policies x {episodes} episodes ({distinct} distinct)"
        basis += ", deterministic" if measured.get("deterministic", True) else ", sampled"
    return CaseView(
        id=row.id,
        kind=row.kind,
        claim=row.claim,
        sentence=row.sentence,
        locus=row.locus,
        ours=_describe_ours(row),
        reference=float(row.reference["mean"]) if cell else None,
        measured=float(measured["mean"]) if cell else None,
        bar=_draw_bar(row, reach),
        agreement=None if measured.get("agreement") is None else float(measured["agreement"]),
        paper=_describe_pair(paper["reference"], paper["value"], str(paper.get("unit", ""))) if paper else "",
        threshold=f"{row.threshold:g}",
        verdict=row.verdict,
        known=row.known,
        source=row.source,
        regression=row.regression,
        basis=basis,
        notes=tuple(filter(None, (row.needed, *row.caveats, *(row.layers or ())))),
        missing=tuple(row.missing),
        nodeid=row.nodeid,
    )


def _describe_ours(row: Row) -> str:
    if row.kind == "case":
        return _describe_pair(row.reference["mean"], row.measured["mean"])
    if row.kind == "timing" and "ms" in row.measured:
        return _describe_pair(row.reference["ms"]["p50"], row.measured["ms"]["p50"], "ms")
    return "" if row.estimate is None else _format_number(row.estimate)


def _format_number(value: float) -> str:
    """Four digits; what rounding errors leave of 0 is 0."""
    return f"{0.0 if abs(value) < NOTHING else value:.4g}"


def _describe_pair(reference: float, value: float, unit: str = "") -> str:
    return f"{float(reference):.5g} → {float(value):.5g} {unit}".strip()


def _find_reach(rows: Sequence[Row]) -> tuple[float, float]:
    """How far intervals go below and above their thresholds, within `LARGEST_DISTANCE`."""
    spans = [(row.interval, row.threshold) for row in rows if row.interval]
    below = max((threshold - float(interval[0]) for interval, threshold in spans), default=0.0)
    above = max((float(interval[1]) - threshold for interval, threshold in spans), default=0.0)
    return tuple(min(max(reach, 0.01), LARGEST_DISTANCE) for reach in (below, above))  # type: ignore[return-value]


def _draw_bar(row: Row, reach: tuple[float, float]) -> Bar | None:
    if not row.interval:
        return None
    low, high, threshold = float(row.interval[0]), float(row.interval[1]), row.threshold
    estimate = row.estimate if row.estimate is not None else (low + high) / 2
    unit = (WIDTH - 2 * EDGE) / sum(reach)

    def place(value: float) -> float:
        return round(EDGE + unit * (min(max(value - threshold, -reach[0]), reach[1]) + reach[0]), 2)

    text = f"{_format_number(estimate)} [{_format_number(low)}, {_format_number(high)}] against {threshold:g}"
    return Bar(place(low), place(high), place(estimate), place(threshold), text)


def _place(row: Row, bits: int) -> Point:
    """The measured return; the interval is one of ratios, and is drawn where it is about this row's ratio."""
    reference, measured = float(row.reference["mean"]), float(row.measured["mean"])
    interval, unit = row.interval, abs(reference - (row.floor or 0.0))
    if not interval or not unit:
        return Point(bits, measured)
    ratio = 1.0 + (measured - reference) / unit
    if not interval[0] - 1e-9 <= ratio <= interval[1] + 1e-9:
        return Point(bits, measured)
    low, high = (reference + (float(bound) - 1.0) * unit for bound in interval)
    return Point(bits, measured, low, high)


def _find_kept(widest: Row, members: Sequence[Row]) -> float | None:
    """The return that a threshold on its share stands for."""
    if any(row.rule != RULE or row.threshold != widest.threshold or row.floor != widest.floor for row in members):
        return None
    reference = float(widest.reference["mean"])
    return reference - (1.0 - widest.threshold) * abs(reference - (widest.floor or 0.0))


def _badness(row: Row) -> tuple[int, float]:
    return VERDICTS.index(row.verdict), row.interval[0] if row.interval else 0.0
