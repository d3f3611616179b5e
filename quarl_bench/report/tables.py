"""The papers' tables with our numbers beside them: every line that a paper prints, run here or not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quarl_bench.claims.catalog import Claim, read_catalog
from quarl_bench.claims.panels import OURS
from quarl_bench.report.rows import Row

OPEN = "not run"
AUTHORS_ORIGIN = "authors"  # of claims that are judged on the authors' own runs
COLUMNS = ("fp16", "w8", "int8")  # of Table 2; the paper's int8 is our w8
BREAKOUT = "breakout"  # the game of Table 3
RESOURCES = (("LUTs", 10_400), ("flip-flops", 20_800), ("block RAMs of 36 Kb", 25), ("DSP blocks", 45))  # LQCC, Table 2

Values = Mapping[tuple[str, str], Mapping[str, float]]  # by algorithm and environment


@dataclass(frozen=True)
class TableView:
    """A table of texts; the first of a line names it, a verdict stands as its word."""

    title: str
    note: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


class Rows:
    """Rows of results, found by claim and cell."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._claims: dict[str, list[Row]] = {}
        for row in rows:
            self._claims.setdefault(str(row["claim"]), []).append(row)

    def find(self, claim: str, **cell: str) -> Row | None:
        """The first row of `claim` of which all of `cell` is true; None where there is none."""
        return next(iter(self.find_all(claim, **cell)), None)

    def find_all(self, claim: str, **cell: str) -> list[Row]:
        """All of them."""
        rows = self._claims.get(claim, ())
        return [row for row in rows if all(str(row.get(key, "")) == value for key, value in cell.items())]

    def name_claims(self) -> set[str]:
        """The ids of all claims there are rows of."""
        return set(self._claims)


def view_tables(rows: Sequence[Row]) -> tuple[TableView, ...]:
    """Tables 2 to 5 of QuaRL, 1 to 3 and 6 of LQCC, and its sentences; none where no row is about one of the papers."""
    claims, found = {claim.id: claim for claim in read_catalog()}, Rows(rows)
    if not found.name_claims() & claims.keys():
        return ()
    return (
        _view_table2(claims["table2-cell"], found),
        _view_table3(claims["table2-cell"].values, found),
        _view_table4(claims["table4-speed"].values, claims["table4-success"].values, found),
        _view_table5(claims["table5-small"].values, rows),
        _view_selected(claims["lqcc-table1"].values, found),
        _view_sentences(claims, found),
        TableView(
            "LQCC, Table 2: the part",
            " ".join(_list_notes(found, "lqcc-finn-fit", "lqcc-rtl-fit")) or "designs of 8 and 4 bits: not run",
            ("resource of an XC7A15T", "as printed, and what our designs are held against"),
            tuple((name, f"{count:,}") for name, count in RESOURCES),
        ),
        _view_hardware(claims["lqcc-rtl-latency"].values, found),
        _view_normalization(claims["lqcc-normalization"].values, rows),
    )


def _view_table2(claim: Claim, found: Rows) -> TableView:
    lines = []
    for algo, environment in claim.cells:
        printed = claim.values.get((algo, environment), {})
        rows = [found.find(claim.id, algo=algo, env=environment, scheme=scheme) for scheme in COLUMNS]
        theirs = [_number(printed.get(column)) for column in ("fp32", "fp16", "w8")]
        reference = next((row["reference"]["mean"] for row in rows if row), None)
        ours = [OPEN if reference is None else _number(reference)]
        ours += [_number(row["measured"]["mean"]) if row else "" for row in rows]
        lines.append((f"{algo} {environment}", *theirs, *ours, *_judge(rows[1]), *_judge(rows[2])))
    for algo in dict.fromkeys(algo for algo, _ in claim.cells):
        losses = [_average_losses(claim.values, algo, column) for column in ("fp16", "w8")]
        rows = [found.find("table2-mean", algo=algo, scheme=scheme) for scheme in COLUMNS]
        estimates = [_percent(row["estimate"]) if row else OPEN for row in rows]
        lines.append(
            (f"{algo} mean error", "", *map(_percent, losses), "", *estimates, *_judge(rows[1]), *_judge(rows[2]))
        )
    head = ("cell", "paper fp32", "paper fp16", "paper int8", "our fp32", "our fp16", "our w8", "our int8")
    note = (
        "Mean returns. The paper's int8 rounds weights only, as our w8; ours is integers from end to end. Errors are "
        "means over those of the paper's tasks that were run. Tasks without printed values are not in the paper."
    )
    title = "QuaRL, Table 2: post-training quantization"
    return TableView(title, note, (*head, "w8 verdict", "int8 verdict"), tuple(lines))


def _view_table3(values: Values, found: Rows) -> TableView:
    lines = []
    for algo in ("dqn", "ppo", "a2c"):
        printed = values[algo, BREAKOUT]
        rows = [found.find("table2-cell", algo=algo, env=BREAKOUT, scheme=scheme) for scheme in ("w8", "fp16")]
        losses = [_percent(_lose(printed["fp32"], printed[column])) for column in ("w8", "fp16")]
        ours = [_percent(_lose(row["reference"]["mean"], row["measured"]["mean"])) if row else "" for row in rows]
        reference = next((_number(row["reference"]["mean"]) for row in rows if row), OPEN)
        lines.append((f"{algo} breakout", _number(printed["fp32"]), *losses, reference, *ours))
    for algo in ("dqn", "ppo", "a2c"):
        rows = [found.find("classic-mean", algo=algo, scheme=scheme) for scheme in ("w8", "fp16")]
        ours = [_percent(row["estimate"]) if row else OPEN for row in rows]
        lines.append((f"{algo} classic control, mean", "", "", "", "", *ours))
    head = ("policy", "paper fp32", "paper E int8", "paper E fp16", "our fp32", "our E w8", "our E fp16")
    note = (
        "E is the relative loss of mean return. Classic control is ours: the same comparison where all three are cheap."
    )
    return TableView("QuaRL, Table 3: algorithms on Breakout", note, head, tuple(lines))


def _view_table4(values: Values, successes: Values, found: Rows) -> TableView:
    lines = []
    for (algo, environment), printed in values.items():
        success = successes[algo, environment]
        name, theirs = f"Policy {'I' * int(environment[-1])}", printed["fp32"] / printed["int8"]
        flown = found.find("table4-success", env=environment, scheme="int8")
        rates = [flown["reference"]["mean"], flown["measured"]["mean"]] if flown else [None, None]
        timed: Sequence[Row | None] = found.find_all("table4-speed", env=environment) or [None]
        for row in timed:
            times = [row[side].get("ms", {}).get("p50") if row else None for side in ("reference", "measured")]
            lines.append(
                (
                    f"{name}, {row['board'] if row else 'no board'}",
                    _number(printed["fp32"]),
                    _number(printed["int8"]),
                    f"{theirs:.3g}x",
                    f"{success['fp32']:.0%}, {success['w8']:.0%}",
                    *((_number(time) or "void") if row else OPEN for time in times),
                    f"{row['estimate']:.3g}x" if row and row["estimate"] is not None else "",
                    ", ".join(f"{rate:.0%}" for rate in rates if rate is not None) or OPEN,
                    *_judge(row),
                )
            )
    head = (
        "policy, our board", "paper fp32 ms", "paper int8 ms", "paper ratio", "paper success fp32, int8",
        "our fp32 ms", "our int8 ms", "our ratio", "our success fp32, int8", "verdict",
    )  # fmt: skip
    note = "The paper's board is a Raspberry Pi 3b+. Its times are a reference, not a target: boards differ."
    return TableView("QuaRL, Table 4: deployment", note, head, tuple(lines))


def _view_table5(values: Values, rows: Sequence[Row]) -> TableView:
    measured = [row for row in rows if row.get("gains")]
    lines = []
    for (_, environment), printed in values.items():
        gained = {
            f"{row['scheme']}, {row['device']['name']}": row["gains"][environment]
            for row in measured
            if environment in row["gains"]
        }
        for name, gains in gained.items() or {"": {}}.items():
            ours = [_range(limits) for limits in gains.values()] if gains else [OPEN, OPEN]
            paper = f"{printed['fp32'] / printed['mixed']:.2f}x"
            lines.append(
                (
                    f"Policy {environment[-1].upper()}",
                    _number(printed["fp32"]),
                    _number(printed["mixed"]),
                    paper,
                    name,
                    *ours,
                )
            )
    head = (
        "policy", "paper fp32 min", "paper mixed min", "paper gain", "ours in, on", "our gain over SB3's fp32",
        "our gain over a good fp32",
    )  # fmt: skip
    note = "Gains are how many times as fast; ours are of a training step, with 90% limits."
    return TableView("QuaRL, Table 5: mixed precision", note, head, tuple(lines))


def _view_selected(values: Values, found: Rows) -> TableView:
    lines = []
    for (algo, task), printed in values.items():
        row = found.find(f"lqcc-selected-{task.removesuffix('v4')}", algo=algo, env=task)
        returns = f"{_number(row['reference']['mean'])} → {_number(row['measured']['mean'])}" if row else OPEN
        replayed = [
            " ".join(_list_notes(found, claim, task=task)) or OPEN for claim in ("lqcc-table1", "lqcc-table1-own")
        ]
        bits = [f"{printed[key]:g}" for key in ("width", "core", "input")]
        lines.append((task, *bits, *replayed, returns, *_judge(row)))
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
        if claim.origin == AUTHORS_ORIGIN and own is not None and claim.locus.startswith("section"):
            for scheme in claim.schemes:
                rows = [found.find(each.id, algo="sac", scheme=scheme) for each in (claim, own)]
                lines.append((claim.sentence, scheme, *(_tell(row) for row in rows)))
    head = ("sentence", "scheme", "on the authors' runs", "on ours")
    note = "Of every sentence that both judge: verdict, estimate and limits; partial where ours lack configurations."
    return TableView("LQCC, sections 3.1 and 3.2", note, head, tuple(lines))


def _tell(row: Row | None) -> str:
    if row is None:
        return OPEN
    limits = " [{:.3g}, {:.3g}]".format(*row["interval"]) if row["interval"] else ""
    return str(row["verdict"]) + ("" if row["estimate"] is None else f" {row['estimate']:.3g}{limits}")


def _view_hardware(values: Values, found: Rows) -> TableView:
    lines = []
    for (_, task), printed in values.items():
        sizes = [f"{printed[key]:,g}" for key in ("luts", "ffs", "bram", "dsp", "us", "watts")]
        notes = [" ".join(_list_notes(found, claim, task=task)) for claim in ("lqcc-finn-latency", "lqcc-rtl-latency")]
        lines.append((task, *sizes, *(note or OPEN for note in notes)))
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
    panels = [panel for row in rows for panel in row.get("panels") or ()]
    ours = {str(panel["task"]): panel for panel in panels if (panel["figure"], panel["source"]) == ("Table 6", OURS)}
    lines = []
    for (_, task), printed in values.items():
        theirs = [_spread(printed[kind], printed[f"{kind}_sd"]) for kind in ("raw", "normalized")]
        own = [OPEN, OPEN]
        if task in ours:
            own = [_spread(float(place["mean"]), float(place["sd"])) for place in ours[task]["series"]["fp32"]]
        lines.append((task, *theirs, *own))
    head = ("task", "paper, raw", "paper, normalized", "ours, raw", "ours, normalized")
    note = "Returns of SAC in fp32 with and without normalized observations: mean ± SD over policies."
    return TableView("LQCC, Table 6: normalization", note, head, tuple(lines))


def _average_losses(values: Values, algo: str, column: str) -> float | None:
    losses = [_lose(row["fp32"], row[column]) for (name, _), row in values.items() if name == algo]
    return sum(losses) / len(losses) if losses else None


def _list_notes(found: Rows, *claims: str, task: str = "") -> Iterator[str]:
    """What rows of `claims` say, about `task` if one is named: their notes begin with it."""
    notes = dict.fromkeys(str(note) for claim in claims for row in found.find_all(claim) for note in row["caveats"])
    start = f"{task}: " if task else ""
    yield from (note.removeprefix(start) for note in notes if note.startswith(start))


def _judge(row: Row | None) -> tuple[str]:
    return (str(row["verdict"]) if row else "",)


def _lose(reference: float, value: float) -> float:
    """Relative loss of a return, as the papers' E."""
    return (reference - value) / abs(reference) if reference else 0.0


def _number(value: Any) -> str:
    return "" if value is None else f"{float(value):,.4g}" if abs(float(value)) < 1e4 else f"{float(value):,.0f}"


def _percent(value: Any) -> str:
    return "" if value is None else f"{float(value):.2%}"


def _range(limits: Sequence[float]) -> str:
    middle, low, high = map(float, limits)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def _spread(mean: float, sd: float) -> str:
    return f"{mean:,.0f} ± {sd:,.0f}"
