"""`quarl sweep`: one policy at every bit width, and the fewest bits that keep its return.

Every measurement goes through the store that pytest uses, so that a killed sweep goes on where it stopped.
"""

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import WIDEST, add_task, new_command, read_bits, read_path
from quarl_bench.cli.opening import open_task, use_one_thread
from quarl_bench.cli.printing import format_csv, print_result, say
from quarl_bench.errors import SpecError
from quarl_bench.evaluation.profiles import EPISODES
from quarl_bench.judging.outcomes import MARGIN
from quarl_bench.system.atomic import open_folder
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.extras import expect, needing
from quarl_bench.system.places import default_cache
from quarl_bench.views.text import format_table

if TYPE_CHECKING:
    from quarl_bench.checking.answer import SchemeResult
    from quarl_bench.quantization.scheme import Scheme

FAMILIES = ("w", "int")
COLUMNS = ("scheme", "return", "interval", "same action", "keeps 95%?")


def add_command(commands: Any) -> None:
    """Add `quarl sweep`: a policy, the bit widths and families of schemes, and the episodes of each."""
    command = new_command(commands, "sweep", run,
        "quarl sweep baselines/policies/ppo-cartpole-seed0 --bits 2..8 --output sweep")  # fmt: skip
    add_task(command)
    command.add_argument(
        "--bits", type=read_bits, default=tuple(range(WIDEST, 1, -1)), metavar="BITS",
        help="bit widths, as 2..8 or 2,4,8; int<n> has 2 to 8 of them. Default: 2..32.",
    )  # fmt: skip
    command.add_argument(
        "--family", choices=FAMILIES, help="w (weights only) or int (weights and activations). Default: both."
    )
    command.add_argument(
        "--episodes", type=read_episodes, default=EPISODES, help=f"episodes per scheme. Default: {EPISODES}."
    )
    command.add_argument("--output", type=read_path, help="folder for sweep.csv and sweep.png. Default: not written.")


def run(options: argparse.Namespace) -> int:
    """Measure what is missing, judge every width, and name the fewest bits that keep the return."""
    from quarl_bench.checking.cores import collect_lines
    from quarl_bench.checking.subject import Subject
    from quarl_bench.experiments.store import Store, StorePaths
    from quarl_bench.system.atomic import write_file

    use_one_thread()
    stored, environment = open_task(options)
    subject = Subject(stored, environment, Store(StorePaths(default_cache()), note=say), shown=None)
    schemes = list_schemes(options.bits, options.family)
    if options.output is not None:
        expect("report", "a figure", "matplotlib")
    folder = None if options.output is None else open_folder(options.output)
    refused = subject.find_refused(schemes)
    for reason in refused.values():
        say(reason)
    schemes = [scheme for scheme in schemes if scheme.name not in refused]
    lines = collect_lines(subject, schemes, options.episodes, "width")
    reference, rows = lines[0].reference, [_describe(line) for line in lines]
    fewest, refuted = find_limits(lines)
    result = {
        "kind": "sweep",
        "policy_sha256": stored.sha256,
        "policy": options.policy.name,
        "algo": stored.metadata.get("algo"),
        "environment": environment.id,
        "episodes": options.episodes,
        "distinct_episodes": reference.distinct_episodes,
        "margin": MARGIN,
        "source": str(reference.source),
        "fewest_supported": fewest,
        "first_refuted": refuted,
        "rows": rows,
    }
    if folder is not None:
        with needing("report", "a figure"):
            from quarl_bench.report.page.kinds.sweeps import read_curves
            from quarl_bench.report.page.plots import draw_bits, render_png

        write_file(folder / "sweep.csv", format_csv(rows))
        write_file(folder / "sweep.png", render_png(draw_bits(*read_curves(result))))
    text = [
        f"{environment.id}, {options.episodes} episodes each, deterministic, measured on this machine",
        *format_table([COLUMNS, *map(_format, rows)]),
        *(conclude(rows, family, fewest[family], refuted[family]) for family in fewest),
    ]
    print_result(options, result, "\n".join(text))
    return 0


def list_schemes(bits: tuple[int, ...], family: str | None) -> "list[Scheme]":
    """fp32 and fp16 first, then every family's widths, widest first."""
    from quarl_bench.quantization.scheme import BITS, Family, Scheme

    names = ["fp32", "fp16"]
    for kind in FAMILIES:
        if family in (None, kind):
            names += [f"{kind}{width}" for width in bits if width in BITS[Family(kind)]]
    if len(names) == 2:
        raise SpecError(f"--bits {','.join(map(str, bits))}: no width of --family {family}; int<n> has 2 to 8")
    return [Scheme.parse(name) for name in names]


def find_limits(lines: "Sequence[SchemeResult]") -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Per family, the fewest bits that hold, wider ones included, and from wide to narrow the first that is refuted."""
    from quarl_bench.checking.recommendation import holds
    from quarl_bench.spec import Outcome

    fewest: dict[str, int | None] = {}
    refuted: dict[str, int | None] = {}
    for family in FAMILIES:
        members = {line.scheme.widest: line for line in lines if line.scheme.family == family}
        if members:
            kept = (bits for bits, line in members.items() if holds(line, lines))
            lost = (bits for bits, line in members.items() if line.verdict.outcome is Outcome.REFUTED)
            fewest[family], refuted[family] = min(kept, default=None), max(lost, default=None)
    return fewest, refuted


def conclude(rows: list[dict[str, Any]], family: str, fewest: int | None, refuted: int | None) -> str:
    """The line about one family: the fewest bits that keep the return, the first that lose it, and what is chance."""
    from quarl_bench.spec import Outcome

    lost = "none loses it" if refuted is None else f"{family}{refuted} is the first, from wide to narrow, that loses it"
    members = [row for row in rows if row["family"] == family]
    lucky = [
        row["scheme"] for row in members if row["verdict"] == Outcome.SUPPORTED and row["bits"] < (fewest or math.inf)
    ]
    chance = f"; {', '.join(lucky)} may owe it to chance: more bits are not known to do" if lucky else ""
    if fewest is None:
        needed = next((row["needed"] for row in members if row["needed"]), "")
        return f"{family}: no width is known to keep it{needed and f' ({needed})'}; {lost}{chance}"
    return f"{family}: {family}{fewest} is the fewest that keeps it, as all wider ones do; {lost}{chance}"


def _describe(line: "SchemeResult") -> dict[str, Any]:
    verdict = line.verdict
    low, high = line.interval or (None, None)  # of a difference; the plot is about returns
    return {
        "scheme": line.scheme.name,
        "family": str(line.scheme.family),
        "bits": line.scheme.bit_width,
        "return": line.mean,
        "low": None if low is None else line.base + low,
        "high": None if high is None else line.base + high,
        "ratio": verdict.estimate,
        "ratio_low": verdict.low,
        "ratio_high": verdict.high,
        "agreement": line.agreement,
        "verdict": str(verdict.outcome),
        "needed": verdict.needed,
    }


def _format(row: dict[str, Any]) -> tuple[str, ...]:
    interval = "none" if row["low"] is None else f"[{row['low']:.4g}, {row['high']:.4g}]"
    return row["scheme"], f"{row['return']:.4g}", interval, f"{row['agreement']:.2%}", row["verdict"]
