"""What the queue of trainings still lacks, and the hours that it would take."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quarl_bench.distributed.grid import list_policies, read_tasks
from quarl_bench.experiments.durations import HOUR, ended_early, estimate_cost, read_trainings
from quarl_bench.report.tables.markdown import write_table
from quarl_bench.spec import PolicySpec


def write_untrained(queue: Path, folder: Path) -> str:
    """The section "What is missing": a table of what `queue` names and `folder` has not, or has not to the end."""
    rows = [["policies", "seeds", "steps", "hours", "by"]]
    trainings = read_trainings(folder)
    for (name, steps), found in _group(queue, folder).items():
        (spec, run), seeds = found[0], ", ".join(str(spec.seed) for spec, _ in found)
        cost = estimate_cost(trainings, spec)
        planned, hours, basis = cost.steps, cost.hours, cost.basis
        if run is not None:
            planned, hours = run["planned"], run["seconds"] / run["timesteps"] * run["planned"] / HOUR
            basis = f"its own pace on {run.get('device', run['processor'])}"
        told = "" if planned is None else f"{steps:,} of {planned:,}"
        rows.append([f"`{name}`", seeds, told, "" if hours is None else f"{hours:.1f}", basis])
    return "\n".join([HEAD, *write_table(rows), ""])


def _group(queue: Path, folder: Path) -> dict[tuple[str, int], list[tuple[PolicySpec, dict[str, Any] | None]]]:
    """By name without a seed and steps that were trained, the policies and what the manifests say of these runs."""
    groups = defaultdict(list)
    for spec, run in _find_untrained(queue, folder):
        groups[spec.name.rpartition("-seed")[0], 0 if run is None else run["timesteps"]].append((spec, run))
    return groups


def _find_untrained(queue: Path, folder: Path) -> Iterator[tuple[PolicySpec, dict[str, Any] | None]]:
    """Policies, and of those that ended early what their manifests say of the run, in the queue's order."""
    for spec in (spec for task in read_tasks(queue) for spec in list_policies(task)):
        path = folder / spec.name / "manifest.json"
        if not path.exists():
            yield spec, None
            continue
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if ended_early(manifest):
            yield spec, manifest["run"] | {"planned": manifest["recipe"]["timesteps"]}


HEAD = """
## What is missing

These policies stand in `baselines/queue.toml`, and were not trained, or not to the end. Hours are those of a policy's
whole training, or of all seeds of `lqcc`, which are trained together. Of a policy that was stopped, they follow from
its own pace. Others are estimated as by `quarl plan`, on one core. `quarl grid baselines/queue.toml` trains them.
"""
