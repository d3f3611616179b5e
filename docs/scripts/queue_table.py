"""What the queue of trainings still lacks, and the hours that it would take."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quarl_bench.distributed.grid import list_policies, read_tasks
from quarl_bench.experiments.durations import HOUR, estimate_cost, read_trainings
from quarl_bench.report.tables.markdown import write_table
from quarl_bench.spec import PolicySpec


def write_untrained(queue: Path, folder: Path) -> str:
    """The section "What is missing": a table of what `queue` names and `folder` has not, or has not to the end."""
    rows = [["policy", "steps", "hours", "by"]]
    trainings = read_trainings(folder)
    for spec, manifest in _find_untrained(queue, folder):
        cost = estimate_cost(trainings, spec)
        steps = "" if cost.steps is None else f"0 of {cost.steps:,}"
        hours, basis = cost.hours, cost.basis
        if manifest is not None:
            run, planned = manifest["run"], manifest["recipe"]["timesteps"]
            steps, hours = f"{run['timesteps']:,} of {planned:,}", run["seconds"] / run["timesteps"] * planned / HOUR
            basis = f"its own pace on {run.get('device', run['processor'])}"
        rows.append([f"`{spec.name}`", steps, "" if hours is None else f"{hours:.1f}", basis])
    return "\n".join([HEAD, *write_table(rows), ""])


def _find_untrained(queue: Path, folder: Path) -> Iterator[tuple[PolicySpec, dict[str, Any] | None]]:
    """Policies with the manifest of those that ended early, in the queue's order."""
    for spec in (spec for task in read_tasks(queue) for spec in list_policies(task)):
        path = folder / spec.name / "manifest.json"
        if not path.exists():
            yield spec, None
            continue
        manifest = json.loads(path.read_text(encoding="utf-8"))
        planned = manifest["recipe"]["timesteps"]
        if manifest.get("run", {}).get("timesteps", planned) < planned:  # older manifests do not say
            yield spec, manifest


HEAD = """
## What is missing

These policies stand in `baselines/queue.toml`, and were not trained, or not to the end. Hours are those of the whole
training. Of a policy that was stopped, they follow from its own pace. Of others they are what `quarl plan` estimates,
on one core. `quarl grid baselines/queue.toml` trains them.
"""
