"""Tables of rows of the stored nightly.

Cells (docs/findings.md), exploration and half precision (docs/training.md), and what took longest (docs/nightly.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quarl_bench.report.tables.markdown import write_table, write_verdict
from quarl_bench.views.rows import Row, Rows
from quarl_bench.views.table import format_number

SCHEMES = ("w8", "int8", "w8floor")
ZOO = "zoo-cell"
CELLS = (  # of docs/findings.md: claim, algorithm, environment
    ("table2-cell", "a2c", "cartpole"),
    ("table2-cell", "ppo", "cartpole"),
    ("table2-cell", "ppo", "lunarlander"),
    ("table2-cell", "ppo", "mountaincarcontinuous"),
    ("table2-cell", "ddpg", "mountaincarcontinuous"),
    ("table2-cell", "dqn", "cartpole"),
    ("table2-cell", "dqn", "mountaincar"),
    ("table2-cell", "dqn", "lunarlander"),
    (ZOO, "dqn", "cartpole"),
    (ZOO, "sac", "halfcheetahv4"),
)
STATES = {
    "fixed ones": ("exploration-fixed", "exploration-norm-fixed"),
    "of a policy's own episodes, as in the paper": ("exploration-visited", "exploration-norm-visited"),
}
AWARE = ("qat8", "qat6", "qat4", "qat2")
MIXED = {"ponga": ("table5-small", "A"), "pongb": ("table5-large", "B"), "pongc": ("table5-large", "C")}
HALF = "-half"  # so end the claims about fp16


def list_cells(rows: Sequence[Row], cells: Iterable[tuple[str, str, str]] = CELLS) -> list[str]:
    """A table of cells: mean returns in fp32 and in 8 bits, with the least and the greatest policy's, and verdicts."""
    found = Rows(rows)
    table = [["algorithm and environment", "policies", "fp32", *(f"`{scheme}`" for scheme in SCHEMES)]]
    for claim, algorithm, environment in cells:
        row = {scheme: found.find(claim, algo=algorithm, env=environment, scheme=scheme) for scheme in SCHEMES}
        if first := next(filter(None, row.values()), None):
            name = f"{'zoo: ' if claim == ZOO else ''}{algorithm.upper()} {environment}"
            told = (_tell_case(row[scheme]) for scheme in SCHEMES)
            table.append([name, str(first.reference["policies"]), _tell_side(first.reference), *told])
    return write_table(table)


def list_exploration(rows: Sequence[Row]) -> list[str]:
    """A table of fp32's variance over that of other trainings: a row for each set of states."""
    found = Rows(rows)
    table = [["states", *(f"{scheme.removeprefix('qat')} bits" for scheme in AWARE), "layer normalization"]]
    for states, (aware, normalized) in STATES.items():
        told = (*(found.find(aware, scheme=scheme) for scheme in AWARE), found.find(normalized))
        table.append([states, *map(write_verdict, told)])
    return write_table(table)


def list_mixed(rows: Sequence[Row]) -> list[str]:
    """A table of training steps in half precision beside fp32's: a row for each policy, a column for each processor.

    The paper's column is what its minutes give.
    """
    found = Rows(rows)
    claims = dict.fromkeys(f"{claim}{ending}" for claim, _ in MIXED.values() for ending in ("", HALF))
    ways = dict.fromkeys((row.scheme, row.processor) for claim in claims for row in found.find_all(claim))
    table = [["policy / 8", *(f"{scheme}, {processor}" for scheme, processor in ways), "the paper"]]
    for environment, (claim, policy) in MIXED.items():
        told = [
            found.find(claim + (HALF if scheme == "fp16" else ""), env=environment, scheme=scheme, processor=processor)
            for scheme, processor in ways
        ]
        paper = next((row.paper for row in told if row and row.paper), None)
        printed = f"{paper['reference'] / paper['value']:.2f}x" if paper else ""
        table.append([policy, *(write_verdict(row, "x") for row in told), printed])
    return write_table(table)


def list_dearest(rows: Iterable[Row], count: int = 30) -> list[str]:
    """A table of the `count` rows whose tests took longest, with seconds of wall clock in one process, dearest first.

    The first of a cell pays for what the others find: its policies, and their episodes in fp32.
    """
    timed = [(row.seconds, row) for row in rows if row.seconds]
    dearest = sorted(timed, key=lambda entry: -entry[0])[:count]
    told = [[f"`{row.id}`", f"[{row.claim}](claims.md#{row.claim})", f"{seconds:,.0f}"] for seconds, row in dearest]
    total = [[f"all {len(timed)} rows", "", f"{sum(seconds for seconds, _ in timed):,.0f}"]]
    return write_table([["case", "claim", "seconds"], *told, *total])


def _tell_case(row: Row | None) -> str:
    """The mean return, and what of fp32's it is in the judge's eyes."""
    return f"{_tell_side(row.measured)}; {write_verdict(row)}" if row else ""


def _tell_side(side: Mapping[str, Any]) -> str:
    policies = side.get("per_policy") or [side["mean"]]
    spread = f" ({format_number(min(policies))} to {format_number(max(policies))})"
    return f"{format_number(side['mean'])}{spread if min(policies) != max(policies) else ''}"
