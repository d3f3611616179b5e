"""Which policies are kept, and how long training takes: recorded in manifests, or estimated from like trainings."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import SpecError, StoreError
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import PolicySpec
from quarl_bench.training.recipes import find_recipe, name_reference

HOUR = 3600.0
RECORDED = "recorded"


@dataclass(frozen=True)
class Training:
    """One finished training: how many environment steps, and the seconds of one core where they were recorded."""

    spec: PolicySpec
    steps: int
    seconds: float | None

    @property
    def pace(self) -> float | None:
        """Seconds per environment step."""
        return None if self.seconds is None else self.seconds / self.steps


@dataclass(frozen=True)
class Cost:
    """What training one policy takes: its steps, and hours of one core with what they rest on; None where unknown."""

    steps: int | None
    hours: float | None
    basis: str


def read_trainings(folder: Path) -> tuple[Training, ...]:
    """What the manifests below `folder` say; StoreError, with the file, for one that cannot be read."""
    found = []
    for path in sorted(folder.glob("*-seed*/manifest.json")):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            steps, run = int(manifest["recipe"]["timesteps"]), manifest.get("run") or {}
            spec = read_name(path.parent.name)
            unknown = run.get("seconds") is None or ended_early(manifest)  # then it is not what the recipe takes
            seconds = None if unknown else float(run["seconds"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: no manifest of a trained policy ({error}); restore it") from error
        found.append(Training(spec, steps, seconds))
    return tuple(found)


def ended_early(manifest: Mapping[str, Any]) -> bool:
    """Whether a policy was kept before its training had made all steps of its recipe; older manifests do not say."""
    steps = int(manifest["recipe"]["timesteps"])
    return int((manifest.get("run") or {}).get("timesteps", steps)) < steps


def read_name(name: str) -> PolicySpec:
    """The inverse of `PolicySpec.name`; ValueError for another form."""
    algo, environment, *rest, seed = name.split("-")
    schemes = [part for part in rest if _is_trained(part)]
    origins = [part for part in rest if part not in schemes]
    if len(schemes) > 1 or len(origins) > 1:
        raise ValueError(f"{name!r} has two origins or schemes")
    return PolicySpec(algo, environment, int(seed.removeprefix("seed")), *(origins or [""]), *(schemes or [""]))


def list_seeds(trainings: Iterable[Training], spec: PolicySpec) -> tuple[int, ...]:
    """Training seeds of which policies like `spec` are there."""
    return tuple(sorted(each.spec.seed for each in trainings if each.spec.kind == spec.kind))


def estimate_cost(trainings: tuple[Training, ...], spec: PolicySpec) -> Cost:
    """What one more policy like `spec` takes: as recorded, or by the pace of the likest trainings that have a record.

    Likest are those of the same algorithm and task, then those of the same algorithm that see the same kind of
    observations, images or not. Other algorithms' paces say nothing.
    """
    steps = _find_steps(trainings, spec)
    if steps is None:
        return Cost(None, None, "no recipe")
    image = find_environment(spec.environment).atari
    task = f"{spec.algo} {spec.environment}"
    circles = (
        (RECORDED, lambda one: one.kind == spec.kind),
        (f"estimated from other trainings of {task}", lambda one: one.environment == spec.environment),
        (
            f"estimated from {spec.algo} on other tasks",
            lambda one: find_environment(one.environment).atari == image,
        ),
    )
    timed = [each for each in trainings if each.spec.algo == spec.algo and each.pace is not None]
    for basis, holds in circles:
        paces = [each.pace for each in timed if holds(each.spec) and each.pace is not None]
        if paces:
            return Cost(steps, steps * sum(paces) / len(paces) / HOUR, basis)
    seen = " on images" if image else ""
    return Cost(steps, None, f"unknown: no training of {spec.algo}{seen} has a recorded duration")


def _find_steps(trainings: tuple[Training, ...], spec: PolicySpec) -> int | None:
    """Of policies like it; else of fp32 ones that it is compared with, of its recipe, or of other schemes' policies.

    None where there is none of these.
    """
    like = [each for each in trainings if each.spec.kind == spec.kind]
    if spec.scheme:
        origin = name_reference(spec.algo, spec.environment, spec.origin)
        fp32 = replace(spec, origin=origin, scheme="")
        like += [each for each in trainings if each.spec.kind == fp32.kind]
    if like:
        return like[0].steps
    try:
        return find_recipe(spec.algo, spec.environment, spec.origin, spec.scheme).timesteps
    except SpecError:
        others = (each for each in trainings if replace(each.spec, seed=spec.seed, scheme=spec.scheme) == spec)
        return next((each.steps for each in others), None)


def _is_trained(name: str) -> bool:
    try:
        return Scheme.parse(name).trained
    except SpecError:
        return False
