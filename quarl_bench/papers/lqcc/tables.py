"""LQCC's tables with our numbers beside them: every line that the paper prints, run here or not."""

from collections.abc import Mapping, Sequence

from quarl_bench.judging.claim import Claim
from quarl_bench.papers.lqcc.claims import AUTHORS
from quarl_bench.papers.lqcc.figures import OURS
from quarl_bench.views.rows import Row, Rows, list_notes
from quarl_bench.views.table import NOT_RUN, TableView, format_number, format_spread, judge_cell

RESOURCES = (("LUTs", 10_400), ("flip-flops", 20_800), ("block RAMs of 36 Kb", 25), ("DSP blocks", 45))  # Table 2

Values = Mapping[tuple[str, str], Mapping[str, float]]  # by algorithm and environment


def view_tables(claims: Mapping[str, Claim], rows: Sequence[Row]) -> tuple[TableView, ...]:
    """Tables 1 to 3 and 6, and the paper's sentences."""
    found = Rows(rows)
    return (
        _view_selected(claims["lqcc-table1"].values, found),
        _view_sentences(claims, found),
        TableView(
            "LQCC, Table 2: the part",
            " ".join(list_notes(found, "lqcc-finn-fit", "lqcc-rtl-fit")) or "designs of 8 and 4 bits: not run",
            ("resource of an XC7A15T", "as printed, and what our designs are held against"),
            tuple((name, f"{count:,}") for name, count in RESOURCES),
        ),
        _view_hardware(claims["lqcc-rtl-latency"].values, found),
        _view_normalization(claims["lqcc-normalization"].values, rows),
    )


def _view_selected(values: Values, found: Rows) -> TableView:
    lines = []
    for (algo, task), printed in values.items():
        row = found.find(f"lqcc-selected-{task.removesuffix('v4')}", algo=algo, env=task)
        returns = f"{format_number(row.reference['mean'])} → {format_number(row.measured['mean'])}" if row else NOT_RUN
        replayed = [
            " ".join(list_notes(found, claim, task=task)) or NOT_RUN for claim in ("lqcc-table1", "lqcc-table1-own")
        ]
        bits = [f"{printed[key]:g}" for key in ("width", "core", "input")]
        lines.append((task, *bits, *replayed, returns, *judge_cell(row)))
    head = (
        "task",
        "hidden width",
        "core bits",
        "input bits",
        "its rule on its authors' runs",
        "its rule on ours",
        "our fp32 → selected",
        "verdict",
    )
    note = "The first three are printed. Ours are mean returns of our own policies in the printed configuration."
    return TableView("LQCC, Table 1: selected configurations", note, head, tuple(lines))


def _view_sentences(claims: Mapping[str, Claim], found: Rows) -> TableView:
    lines = []
    for name, claim in claims.items():
        own = claims.get(f"{name}-own")
        if claim.origin == AUTHORS and own is not None and claim.where.startswith("section"):
            for scheme in claim.schemes:
                rows = [found.find(each.id, algo="sac", scheme=scheme) for each in (claim, own)]
                lines.append((claim.says, scheme, *(_tell(row) for row in rows)))
    head = ("sentence", "scheme", "on the authors' runs", "on ours")
    note = "Of every sentence that both judge: verdict, estimate and limits; partial where ours lack configurations."
    return TableView("LQCC, sections 3.1 and 3.2", note, head, tuple(lines))


def _tell(row: Row | None) -> str:
    if row is None:
        return NOT_RUN
    limits = " [{:.3g}, {:.3g}]".format(*row.interval) if row.interval else ""
    return row.verdict + ("" if row.estimate is None else f" {row.estimate:.3g}{limits}")


def _view_hardware(values: Values, found: Rows) -> TableView:
    lines = []
    for (_, task), printed in values.items():
        sizes = [f"{printed[key]:,g}" for key in ("luts", "ffs", "bram", "dsp", "us", "watts")]
        notes = [" ".join(list_notes(found, claim, task=task)) for claim in ("lqcc-finn-latency", "lqcc-rtl-latency")]
        lines.append((task, *sizes, *(note or NOT_RUN for note in notes)))
    head = (
        "selected policy",
        "LUTs",
        "FFs",
        "BRAM",
        "DSP",
        "latency us",
        "W",
        "FINN's formulas, estimated",
        "our designs, simulated",
    )
    note = "The first six are printed, for an XC7A15T at 100 MHz. Cycles are of 10 ns."
    return TableView("LQCC, Table 3: designs", note, head, tuple(lines))


def _view_normalization(values: Values, rows: Sequence[Row]) -> TableView:
    panels = [panel for row in rows for panel in row.panels or ()]
    ours = {str(panel["task"]): panel for panel in panels if (panel["figure"], panel["source"]) == ("Table 6", OURS)}
    lines = []
    for (_, task), printed in values.items():
        theirs = [format_spread(printed[kind], printed[f"{kind}_sd"]) for kind in ("raw", "normalized")]
        own = [NOT_RUN, NOT_RUN]
        if task in ours:
            own = [format_spread(float(place["mean"]), float(place["sd"])) for place in ours[task]["series"]["fp32"]]
        lines.append((task, *theirs, *own))
    head = ("task", "paper, raw", "paper, normalized", "ours, raw", "ours, normalized")
    note = "Returns of SAC in fp32 with and without normalized observations: mean ± SD over policies."
    return TableView("LQCC, Table 6: normalization", note, head, tuple(lines))
