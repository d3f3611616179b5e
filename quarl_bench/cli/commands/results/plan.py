"""`quarl plan`: which policies would decide a claim."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import new_command, read_path
from quarl_bench.cli.printing import print_result

if TYPE_CHECKING:
    from quarl_bench.judging.power import Item
    from quarl_bench.report.plan import Plan

STORED = Path("docs/results/nightly.json.xz")  # of a checkout


def add_command(commands: Any) -> None:
    """Add `quarl plan`: claims, cases or items by id, and the results that they were judged in."""
    command = new_command(commands, "plan", run,
        "quarl plan classic-trained ppo-lunarlander-qat8")  # fmt: skip
    command.add_argument(
        "names", nargs="*", metavar="CLAIM_OR_CASE",
        help="id of a claim, or of one of its cases or items, as docs/claims.md and `quarl list claims` name them",
    )  # fmt: skip
    command.add_argument(
        "--all", action="store_true", help="every claim that was judged and not decided, the cheapest first."
    )
    command.add_argument(
        "--results", type=read_path, default=STORED, metavar="FILE",
        help=f"results file of pytest --quarl-json. Default: {STORED}.",
    )  # fmt: skip
    command.add_argument(
        "--baselines", type=read_path, metavar="DIR",
        help="folder with trained policies, whose manifests say what there is and how long it took. Default: "
        "baselines/policies.",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print the plan of every item that is named."""
    from quarl_bench.errors import SpecError, StoreError
    from quarl_bench.experiments.durations import read_trainings
    from quarl_bench.experiments.policy_source import BASELINES
    from quarl_bench.report.documents import read_results
    from quarl_bench.report.plan import Planner, rank
    from quarl_bench.system.bars import collect

    if options.all == bool(options.names):
        raise SpecError("name claims or cases, or pass --all for every one that is undecided: one of the two")
    folder = options.baselines or BASELINES
    if not folder.is_dir():
        raise StoreError(f"{folder}: no folder of trained policies; name one by --baselines")
    planner = Planner(read_results(options.results).rows, read_trainings(folder))
    items = [item for item in _list_items() if planner.is_open(item)] if options.all else _find_items(options.names)
    plans = rank(collect(map(planner.plan, items), len(items), "items", lambda plan: plan.item.id))
    print_result(options, {"plans": [_as_dict(plan) for plan in plans]}, "\n".join(_tell(plans)))
    return 0


def _list_items() -> "list[Item]":
    from quarl_bench.judging.claim import expand
    from quarl_bench.papers.registry import read_catalog

    return [item for claim in read_catalog() for item in expand(claim)]


def _find_items(names: Iterable[str]) -> "list[Item]":
    """All that a name stands for, once each; SpecError for one that is unknown."""
    import difflib

    from quarl_bench.errors import SpecError

    items, found = _list_items(), {}
    for name in names:
        mine = [item for item in items if name in (item.id, item.claim.id)]
        if not mine:
            near = difflib.get_close_matches(name, {n for item in items for n in (item.id, item.claim.id)}, 1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            meant = "a results file stands behind --results; " if Path(name).is_file() else meant
            raise SpecError(f"{name!r} is no claim, case or item; {meant}`quarl list claims` names them")
        found.update({(item.claim.id, item.id): item for item in mine})
    return list(found.values())


def _as_dict(plan: "Plan") -> dict[str, Any]:
    from dataclasses import asdict

    row = plan.row
    return {
        "claim": plan.item.claim.id,
        "id": plan.item.id,
        "verdict": None if row is None else row.verdict,
        "estimate": None if row is None else row.estimate,
        "interval": None if row is None else row.interval,
        "threshold": plan.item.claim.threshold if row is None else row.threshold,
        "answer": plan.answer,
        "why": plan.why,
        "policies": plan.policies,
        "outcome": plan.outcome or None,
        "hours": plan.hours,
        "train": [asdict(each) | {"seeds": list(each.seeds)} for each in plan.wanted],
    }


def _tell(plans: "list[Plan]") -> list[str]:
    """Every plan with the policies that it wants, and how many there are of each answer."""
    lines = []
    for plan in plans:
        lines.append(f"{plan.item.claim.id} {plan.item.id}: {plan.answer}: {plan.why}{_tell_hours(plan)}")
        for each in plan.wanted:
            name = " ".join(filter(None, (each.algo, each.environment, each.scheme, each.origin)))
            steps = "unknown steps" if each.steps is None else f"{each.steps:,} steps"
            hours = "" if each.hours is None else f"{each.hours:.2f} h, "
            lines.append(f"  train {name}, {_tell_seeds(each.seeds)}, {steps} each: {hours}{each.basis}")
    if len(plans) > 1:
        answers = dict.fromkeys(plan.answer for plan in plans)
        counts = (f"{sum(plan.answer == answer for plan in plans)} {answer}" for answer in answers)
        lines += ["", f"{len(plans)} items: {', '.join(counts)}"]
    return lines or ["nothing is undecided"]


def _tell_hours(plan: "Plan") -> str:
    if not plan.wanted:
        return ""
    return "; hours unknown" if plan.hours is None else f"; {plan.hours:.1f} hours of one core"


def _tell_seeds(seeds: tuple[int, ...]) -> str:
    """`seed 3`, `seeds 3..7`, or the seeds one by one."""
    first, last = seeds[0], seeds[-1]
    if first == last:
        return f"seed {first}"
    return f"seeds {first}..{last}" if last - first + 1 == len(seeds) else f"seeds {', '.join(map(str, seeds))}"
