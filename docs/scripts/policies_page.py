"""docs/policies.md: what was trained, made of the manifests below baselines/policies."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from quarl_bench.experiments.durations import HOUR

SECOND = "LQCC"  # so the sources of the second paper's returns begin; other policies stand beside the zoo's


def read_manifests(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Manifests below `folder` by the policies' name without its seed, in the order of their seeds."""
    cells: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*-seed*/manifest.json")):
        cells[path.parent.name.rpartition("-seed")[0]].append(json.loads(path.read_text(encoding="utf-8")))
    return {name: sorted(found, key=lambda manifest: int(manifest["seed"])) for name, found in cells.items()}


def write_policies(cells: dict[str, list[dict[str, Any]]], printed: dict[str, Any]) -> str:
    """The page "Trained policies"; `printed` is the paper's Table 2."""
    lines = [HEAD]
    for name, members in cells.items():
        algo, environment, *variant = name.split("-")
        argmax = [member["return"]["mean"] for member in members]
        sampled = [member["sampled_return"]["mean"] for member in members if "sampled_return" in member]
        published = members[0]["published"] or {}
        paper = None if variant else printed.get(algo, {}).get(environment, {}).get("fp32")
        score = float(_show(_average(sampled or argmax)).replace(",", ""))  # as it stands beside the other
        short = published.get("sd") is not None and score < published["mean"] - published["sd"]
        beside = f"{_show(published['mean'])}{' (below)' if short else ''}" if published else ""
        second = published.get("source", "").startswith(SECOND)
        columns = (
            f"`{name}`",
            _tell_steps(members[0]),
            _tell_hours(members),
            ", ".join(_show(value) for value in argmax),
            _show(_average(argmax)),
            ", ".join(_show(value) for value in sampled),
            beside if second else "" if paper is None else _show(paper),
            "" if second else beside,
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join([*lines, ""])


def _tell_steps(manifest: dict[str, Any]) -> str:
    """Environment steps of the recipe, behind those that were trained where they are fewer."""
    planned = manifest["recipe"]["timesteps"]
    trained = manifest.get("run", {}).get("timesteps", planned)  # older manifests do not say
    return f"{planned:,}" if trained >= planned else f"{trained:,} of {planned:,}"


def _tell_hours(members: list[dict[str, Any]]) -> str:
    """Mean hours of a policy's training, of those whose manifests say."""
    seconds = [member["run"]["seconds"] for member in members if "seconds" in member.get("run", {})]
    return f"{_average(seconds) / HOUR:.2g}" if seconds else ""


def _average(values: list[float]) -> float:
    return sum(values) / len(values)


def _show(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


HEAD = """# Trained policies

<!-- Made by generate.py from the manifests; nothing to edit. -->

Every committed policy was trained by `quarl train`. Its folder below `baselines/policies` holds the weights and a
manifest. The manifest has the recipe, the learning curve, the return and the hash of the weights. A test plays the
policy again.

Returns are means over 100 episodes, of each training seed and of all. Actions are the argmax or the mean action. The
column `sampled` has the return with sampled actions, where the published agents sample theirs.

Beside our returns stand published ones: fp32 in the paper's Table 2, and the agent of rl-baselines3-zoo. For `lqcc`
they are the second paper's own policies, of 1,000,000 steps. `below` marks a mean (sampled where there is one) that is
too far below the published one: by more than the SD of the zoo's episodes, or of the second paper's ten policies.

Hours are means of what the manifests recorded, of one core or of the device that they name, beside other work. Older
manifests do not say. Policies of `lqcc` were trained together: each has the hours of all.

A name says how a policy was trained: `qat<bits>` with the quantizer, to integers; `bf16` in mixed precision; `lqcc` by
the second paper's hyperparameters. `layernorm`, `control` and `aware` were trained for comparisons.

| policies | steps | hours | return by seed | mean | sampled | paper | zoo |
|---|---:|---:|---|---:|---|---:|---:|"""
