"""Grids of trainings on Ray: every entry of a list is trained, quantized and measured into the store.

A task does what `quarl train` and a bench would do, through the same store, under the same locks: what is there is
kept, what a killed worker began goes on at its checkpoint, and a bench run afterwards finds everything.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from quarl_bench.distributed.engine import open_engine
from quarl_bench.distributed.tasks import run_tasks
from quarl_bench.environments.registry import find_environment, identify_environment
from quarl_bench.errors import EngineError, SpecError
from quarl_bench.evaluation.profiles import Profile
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells, PolicySet
from quarl_bench.experiments.member import FP32, LazyPolicy
from quarl_bench.experiments.store import Store, StorePaths, Train
from quarl_bench.policies.policy import Policy
from quarl_bench.policies.storage.folder import Stored
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Case, PolicySpec
from quarl_bench.system.counts import MOST_SEED
from quarl_bench.system.toml_file import read_toml
from quarl_bench.training.multi_seed.recipe import MultiSeedRecipe, name_policy
from quarl_bench.training.multi_seed.recipe import find_recipe as find_shared_recipe
from quarl_bench.training.multi_seed.train import complete_seeds
from quarl_bench.training.recipes import Recipe, find_recipe
from quarl_bench.training.sb3.run import TrainingOptions
from quarl_bench.training.schemes import train_policy

KEYS: dict[str, type] = {
    "algo": str, "environments": list, "seeds": list, "schemes": list, "origin": str, "multi_seed": bool, "steps": int,
    "cores": int, "memory": int,
}  # fmt: skip
RENAMED = {"lqcc": "multi_seed"}  # refused by name
Mean = tuple[str, str, float]  # policy, scheme, mean return
REQUIRED = ("algo", "environments", "seeds")
NAMES = ("environments", "schemes")  # lists of text


@dataclass(frozen=True)
class GridTask:
    """One unit of work: a policy under its schemes, or all seeds of one configuration."""

    algo: str
    environment: str
    seeds: tuple[int, ...]
    schemes: tuple[str, ...]  # to measure it under; a single trained one for a policy that is trained with it
    origin: str = ""
    multi_seed: bool = False  # all seeds in one process, into the folder of baselines
    steps: int = 0  # of such a training; 0: its recipe's
    cores: int = 1
    memory: int = 1 << 30  # bytes that are reserved

    @property
    def name(self) -> str:
        """`ppo-cartpole-qat8-seed0`; of many seeds `sac-hopperv4-i8c3o8-seeds0..9`, or `seeds0,5`."""
        trained = self.schemes[0] if self.multi_seed or Scheme.parse(self.schemes[0]).trained else ""
        first, last = self.seeds[0], self.seeds[-1]
        whole = len(self.seeds) > 1 and self.seeds == tuple(range(first, last + 1))
        listed = f"{first}..{last}" if whole else ",".join(map(str, self.seeds))
        numbers = f"seed{'s' if len(self.seeds) > 1 else ''}{listed}"
        return "-".join(part for part in (self.algo, self.environment, trained, self.origin, numbers) if part)


@dataclass(frozen=True)
class FinishedTask:
    """What became of a task: mean returns by policy and scheme, or why there are none."""

    task: GridTask
    means: tuple[Mean, ...] = ()
    retries: int = 0
    failure: str = ""


@dataclass(frozen=True)
class GridPlan:
    """Where results go and how policies are measured; folders are shared by all machines of a cluster."""

    cache: Path
    baselines: Path
    profile: Profile


def read_tasks(path: Path) -> tuple[GridTask, ...]:
    """The tasks of a TOML file with one `[[task]]` table per line of the grid; SpecError, naming entry and key."""
    data = read_toml(path, f"grid {path}", "pass a readable TOML file")
    entries = data.get("task")
    if not isinstance(entries, list) or not entries:
        raise SpecError(f"grid {path}: holds no [[task]]; write one per line of the grid")
    tasks = [task for number, entry in enumerate(entries, 1) for task in _expand(entry, f"grid {path}, task {number}")]
    twice = next((task.name for task in tasks if tasks.count(task) > 1), None)
    if twice:
        raise SpecError(f"grid {path}: {twice} is listed twice; remove one")
    return tuple(tasks)


def list_policies(task: GridTask) -> tuple[PolicySpec, ...]:
    """What a task trains, a policy for each of its seeds."""
    if task.multi_seed:
        return tuple(name_policy(_find_shared(task), task.environment, seed) for seed in task.seeds)
    return tuple(PolicySpec(task.algo, task.environment, seed, task.origin, _name_trained(task)) for seed in task.seeds)


def list_precisions(tasks: Iterable[GridTask]) -> set[str]:
    """Precisions of the recipes that the tasks train by, such as {"fp32", "bf16"}."""
    return {(_find_shared if task.multi_seed else _find_own)(task).precision for task in tasks}


def run_task(task: GridTask, plan: GridPlan) -> tuple[Mean, ...]:
    """Train what is missing and measure it, in this process: (policy, scheme, mean return), found or made."""
    torch.set_num_threads(task.cores)
    options = TrainingOptions(resume=True, workers=task.cores)
    places = StorePaths(plan.cache, plan.baselines)
    store = Store(places, Train.MISSING, trainer=partial(_train, options))
    stored = list(_train_seeds(task, plan, options) if task.multi_seed else _find_policy(task, store))
    return tuple(mean for spec, found in stored for mean in _measure(store, plan, task, spec, found))


Work = Callable[[GridTask, GridPlan], tuple[Mean, ...]]


def run_grid(
    tasks: tuple[GridTask, ...], plan: GridPlan, *, address: str | None = None, workers: int = 1,
    progress: bool = False, should_stop: Callable[[], bool] = lambda: False,
    note: Callable[[str], None] = lambda _: None,
    work: Work = run_task,
) -> Iterator[FinishedTask]:  # fmt: skip
    """Run all tasks, `workers` cores of this machine at a time or what the cluster at `address` has, as they finish.

    A task whose worker dies is tried three times more. Ends early, without an error, when asked to stop.
    """
    needed = max(task.cores for task in tasks)
    with open_engine(address, needed if address else max(workers, needed), progress=progress) as ray:
        _check_memory(tasks, int(ray.cluster_resources().get("memory", 0)))
        remote = ray.remote(max_calls=1)(work)  # a process of its own per task

        def submit(task: GridTask) -> Any:
            return remote.options(num_cpus=task.cores, memory=task.memory, max_retries=0).remote(task, plan)

        for done in run_tasks(
            ray, tasks, submit, lambda task: task.name, "grid", progress=progress, should_stop=should_stop, note=note
        ):
            yield FinishedTask(done.task, done.value or (), done.retries, done.failure)


def _check_memory(tasks: tuple[GridTask, ...], there: int) -> None:
    """Ray waits for ever for what no machine has."""
    largest = max(tasks, key=lambda task: task.memory)
    if largest.memory > there:
        raise EngineError(
            f"{largest.name} reserves {largest.memory:,} bytes of memory, all machines have {there:,}; lower the key "
            "'memory'"
        )


def _train(options: TrainingOptions, spec: PolicySpec, recipe: Recipe, folder: Path, checkpoint: Path) -> Stored:
    return train_policy(spec, recipe, folder, checkpoint, options)


def _name_trained(task: GridTask) -> str:
    """The scheme that a task's policies are trained with; empty where they are trained in floats."""
    return task.schemes[0] if Scheme.parse(task.schemes[0]).trained else ""


def _find_own(task: GridTask) -> Recipe:
    return find_recipe(task.algo, task.environment, task.origin, _name_trained(task))


def _find_shared(task: GridTask) -> MultiSeedRecipe:
    recipe = find_shared_recipe(task.algo).quantize(task.schemes[0])
    return recipe.override(timesteps=task.steps) if task.steps else recipe


def _find_policy(task: GridTask, store: Store) -> Iterator[tuple[PolicySpec, Stored]]:
    (spec,) = list_policies(task)
    yield spec, store.integers(spec) if spec.scheme else store.policy(spec)


def _train_seeds(task: GridTask, plan: GridPlan, options: TrainingOptions) -> Iterator[tuple[PolicySpec, Stored]]:
    """All seeds of one configuration; those that are missing are trained together."""
    yield from complete_seeds(_find_shared(task), task.environment, task.seeds, plan.baselines / "policies", options)


def _measure(store: Store, plan: GridPlan, task: GridTask, spec: PolicySpec, stored: Stored) -> Iterator[Mean]:
    """The mean return of a policy under every scheme of its task, through the store."""
    cells = Cells(store, Protocol.of(1, plan.profile), plan.cache)
    for scheme in map(Scheme.parse, task.schemes):
        case = Case(spec.algo, spec.environment, scheme.name, spec.origin)
        policies = PolicySet(case, (LazyPolicy(stored, partial(_return, stored.policy)),))
        if scheme.name != FP32 and not spec.scheme:
            policies = cells.quantize(policies, scheme)
        measured = cells.measure(policies)
        yield spec.name, case.scheme, measured.mean
        if measured.sampled is not None:
            yield spec.name, f"{case.scheme} sampled", measured.sampled.mean


def _return(policy: Policy) -> Policy:
    return policy


def _expand(entry: Any, where: str) -> Iterator[GridTask]:
    """A task per environment and seed, and per trained scheme; with `multi_seed` per environment and scheme."""
    _check(entry, where)
    schemes = [Scheme.parse(name).name for name in entry.get("schemes", [FP32])]
    seeds = tuple(entry["seeds"])
    shared = {key: entry[key] for key in ("origin", "multi_seed", "steps", "cores", "memory") if key in entry}
    for named in entry["environments"]:
        environment = find_environment(identify_environment(named).slug).slug  # one of those that are trained on
        if entry.get("multi_seed"):
            for scheme in schemes:
                find_shared_recipe(entry["algo"]).quantize(scheme)
                yield GridTask(entry["algo"], environment, seeds, (scheme,), **shared)
            continue
        groups = [(name,) for name in schemes if Scheme.parse(name).trained]
        applied = tuple(name for name in schemes if not Scheme.parse(name).trained)
        for group in [applied, *groups] if applied else groups:
            trained = group[0] if group in groups else ""
            find_recipe(entry["algo"], environment, entry.get("origin", ""), trained)
            for seed in seeds:
                yield GridTask(entry["algo"], environment, (seed,), group, **shared)


def _check(entry: Any, where: str) -> None:
    if not isinstance(entry, dict):
        raise SpecError(f"{where}: must be a table")
    for key in REQUIRED:
        if key not in entry:
            raise SpecError(f"{where}: the key {key!r} is missing")
    for key, value in entry.items():
        if key in RENAMED:
            raise SpecError(f"{where}: the key {key!r} is called {RENAMED[key]!r} now; rename it")
        if key not in KEYS:
            raise SpecError(f"{where}: unknown key {key!r}; known are {', '.join(KEYS)}")
        boolean = isinstance(value, bool) and KEYS[key] is not bool  # true would be 1
        if boolean or not isinstance(value, KEYS[key]) or (KEYS[key] is list and not value):
            raise SpecError(f"{where}, key {key!r}: must be a {KEYS[key].__name__}, and not empty")
    _check_values(entry, where)


def _check_values(entry: dict[str, Any], where: str) -> None:
    for key in ("cores", "memory", "steps"):
        if entry.get(key, 1) < 1:
            raise SpecError(f"{where}, key {key!r}: must be at least 1")
    for key in NAMES:
        if not all(isinstance(name, str) for name in entry.get(key, ())):
            raise SpecError(f"{where}, key {key!r}: must be a list of names in quotes")
    if "steps" in entry and not entry.get("multi_seed"):
        raise SpecError(f"{where}, key 'steps': goes with `multi_seed = true`; others train by their recipe")
    if "origin" in entry and entry.get("multi_seed"):
        raise SpecError(f"{where}, key 'origin': is a variant of a recipe, and many seeds have none; leave it out")
    seeds = entry["seeds"]
    if any(type(seed) is not int or not 0 <= seed <= MOST_SEED for seed in seeds):
        raise SpecError(f"{where}, key 'seeds': must be whole numbers from 0 on, at most {MOST_SEED}")
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        raise SpecError(f"{where}, key 'seeds': {twice} is listed twice; remove one")
