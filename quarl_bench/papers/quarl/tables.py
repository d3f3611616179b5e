"""QuaRL's tables with our numbers beside them: every line that the paper prints, run here or not."""

from collections.abc import Mapping, Sequence

from quarl_bench.judging.claim import Claim
from quarl_bench.views.rows import Row, Rows
from quarl_bench.views.table import NOT_RUN, TableView, format_number, format_percent, format_range, judge_cell

COLUMNS = ("fp16", "w8", "int8")  # of Table 2; the paper's int8 is our w8
BREAKOUT = "breakout"  # the game of Table 3

Values = Mapping[tuple[str, str], Mapping[str, float]]  # by algorithm and environment


def view_tables(claims: Mapping[str, Claim], rows: Sequence[Row]) -> tuple[TableView, ...]:
    """Tables 2 to 5."""
    found = Rows(rows)
    return (
        _view_table2(claims["table2-cell"], found),
        _view_table3(claims["table2-cell"].values, found),
        _view_table4(claims["table4-speed"].values, claims["table4-success"].values, found),
        _view_table5(claims["table5-small"].values, rows),
    )


def _view_table2(claim: Claim, found: Rows) -> TableView:
    lines = []
    for algo, environment in claim.cells:
        printed = claim.values.get((algo, environment), {})
        rows = [found.find(claim.id, algo=algo, env=environment, scheme=scheme) for scheme in COLUMNS]
        theirs = [format_number(printed.get(column)) for column in ("fp32", "fp16", "w8")]
        reference = next((row.reference["mean"] for row in rows if row), None)
        ours = [NOT_RUN if reference is None else format_number(reference)]
        ours += [format_number(row.measured["mean"]) if row else "" for row in rows]
        lines.append((f"{algo} {environment}", *theirs, *ours, *judge_cell(rows[1]), *judge_cell(rows[2])))
    for algo in dict.fromkeys(algo for algo, _ in claim.cells):
        losses = [_average_losses(claim.values, algo, column) for column in ("fp16", "w8")]
        rows = [found.find("table2-mean", algo=algo, scheme=scheme) for scheme in COLUMNS]
        estimates = [format_percent(row.estimate) if row else NOT_RUN for row in rows]
        lines.append(
            (
                f"{algo} mean error",
                "",
                *map(format_percent, losses),
                "",
                *estimates,
                *judge_cell(rows[1]),
                *judge_cell(rows[2]),
            )
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
        losses = [format_percent(_lose(printed["fp32"], printed[column])) for column in ("w8", "fp16")]
        ours = [format_percent(_lose(row.reference["mean"], row.measured["mean"])) if row else "" for row in rows]
        reference = next((format_number(row.reference["mean"]) for row in rows if row), NOT_RUN)
        lines.append((f"{algo} breakout", format_number(printed["fp32"]), *losses, reference, *ours))
    for algo in ("dqn", "ppo", "a2c"):
        rows = [found.find("classic-mean", algo=algo, scheme=scheme) for scheme in ("w8", "fp16")]
        ours = [format_percent(row.estimate) if row else NOT_RUN for row in rows]
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
        rates = [flown.reference["mean"], flown.measured["mean"]] if flown else [None, None]
        timed: Sequence[Row | None] = found.find_all("table4-speed", env=environment) or [None]
        for row in timed:
            sides = (row.reference, row.measured) if row else ({}, {})
            times = [side.get("ms", {}).get("p50") for side in sides]
            lines.append(
                (
                    f"{name}, {row.board if row else 'no board'}",
                    format_number(printed["fp32"]),
                    format_number(printed["int8"]),
                    f"{theirs:.3g}x",
                    f"{success['fp32']:.0%}, {success['w8']:.0%}",
                    *((format_number(time) or "void") if row else NOT_RUN for time in times),
                    f"{row.estimate:.3g}x" if row and row.estimate is not None else "",
                    ", ".join(f"{rate:.0%}" for rate in rates if rate is not None) or NOT_RUN,
                    *judge_cell(row),
                )
            )
    head = (
        "policy, our board", "paper fp32 ms", "paper int8 ms", "paper ratio", "paper success fp32, int8",
        "our fp32 ms", "our int8 ms", "our ratio", "our success fp32, int8", "verdict",
    )  # fmt: skip
    note = "The paper's board is a Raspberry Pi 3b+. Its times are a reference, not a target: boards differ."
    return TableView("QuaRL, Table 4: deployment", note, head, tuple(lines))


def _view_table5(values: Values, rows: Sequence[Row]) -> TableView:
    lines = []
    for (_, environment), printed in values.items():
        gained = {
            f"{row.scheme}, {(row.device or {})['name']}": gains[environment]
            for row in rows
            if environment in (gains := row.gains or {})
        }
        for name, gains in gained.items() or {"": {}}.items():
            ours = [format_range(limits) for limits in gains.values()] if gains else [NOT_RUN, NOT_RUN]
            paper = f"{printed['fp32'] / printed['mixed']:.2f}x"
            lines.append(
                (
                    f"Policy {environment[-1].upper()}",
                    format_number(printed["fp32"]),
                    format_number(printed["mixed"]),
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


def _average_losses(values: Values, algo: str, column: str) -> float | None:
    losses = [_lose(row["fp32"], row[column]) for (name, _), row in values.items() if name == algo]
    return sum(losses) / len(losses) if losses else None


def _lose(reference: float, value: float) -> float:
    """Relative loss of a return, as the papers' E."""
    return (reference - value) / abs(reference) if reference else 0.0
