"""Trained policies and measurements, found by content: memory, then baselines/ (read only), then the cache, then work.

Work happens under a lock per key, so that any number of processes train or measure each thing once. Entries appear
whole or not at all; a damaged one is reported and made again.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.errors import MissingBaseline, PolicyError, SpecError, StoreError
from quarl_bench.evaluation.measurement_key import EVALUATION_LOOP
from quarl_bench.evaluation.rollouts import End
from quarl_bench.experiments.measurements import read_measurement, write_measurement
from quarl_bench.experiments.states import read_states, write_states
from quarl_bench.experiments.zoo_agents import find_zip, read_agent
from quarl_bench.policies.algorithm import find_algorithm
from quarl_bench.policies.storage.folder import Stored, load_stored
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.policies.storage.integers import StoredIntegers, load_integers
from quarl_bench.spec import ZOO, Measurement, PolicySpec
from quarl_bench.system.atomic import write_file
from quarl_bench.system.code_epoch import hash_code
from quarl_bench.training.multi_seed.recipe import ORIGIN as MANY_SEEDS
from quarl_bench.training.multi_seed.recipe import list_options
from quarl_bench.training.recipes import Recipe, find_recipe

TRAINING_CODE = (  # of what is trained and which policy of a run is kept; recipes have hashes of their own
    *EVALUATION_LOOP,
    "quantization/net.py",
    "quantization/branches.py",
    "quantization/products/packed.py",
    "policies/algorithm.py",
    "policies/clipping.py",
    "policies/head.py",
    "policies/masks.py",
    "policies/sources/batch_norm.py",
    "policies/sources/torch_layers.py",
    "policies/observation.py",
    "policies/policy.py",
    "policies/watching.py",
    "policies/sources/sb3/contrib.py",
    "policies/sources/sb3/model.py",
    "training/sb3/checkpoints.py",
    "environments/registry.py",
    "environments/environments.toml",
    "evaluation/episode_bars.py",
    "evaluation/exploration.py",
    "training/algorithms.py",
    "training/sb3/mixed_precision.py",
    "training/sb3/models.py",
    "training/sb3/layer_norm.py",
    "training/recipes/__init__.py",
    "training/sb3/run.py",
    "training/sb3/loss_scaling.py",
    "training/sb3/scaled_cnn.py",
    "training/schemes.py",
    "training/sb3/vector.py",
    "training/sb3/atari_workers.py",
    "training/sb3/games.py",
)
AWARE_CODE = ("training/sb3/aware.py", "quantization")  # of quantization-aware runs as well
EXTRAS = ("origin", "scheme")  # options of `quarl train` that a policy may need
Entry = TypeVar("Entry")
Trainer = Callable[[PolicySpec, Recipe, Path, Path], Stored]


class Train(StrEnum):
    """When the store may train a policy: never, when it is missing, or anew even if it exists."""

    NEVER = "never"
    MISSING = "missing"
    ALWAYS = "always"


@dataclass(frozen=True)
class StorePaths:
    """Where a store looks: a writable cache, committed baselines and other people's agents, if any."""

    cache: Path
    baselines: Path | None = None
    zoo: Path | None = None


class Store:
    """The layers of one process. `note` is told, in one line each, what was repaired or trained.

    `run` names the test run: under `Train.ALWAYS`, processes of one run share what the first of them trained.
    """

    def __init__(
        self,
        places: StorePaths,
        train: Train = Train.NEVER,
        *,
        trainer: Trainer | None = None,
        run: str = "",
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.places, self.train, self.run = places, train, run
        self._trainer, self._note = trainer, note
        self._policies: dict[PolicySpec, Stored] = {}
        self._measurements: dict[str, Measurement] = {}
        self._shared: defaultdict[tuple[str, Environment, bool], dict[int, End]] = defaultdict(dict)

    def policy(self, spec: PolicySpec) -> StoredPolicy:
        """The fp32 policy of `spec`; MissingBaseline when there is none and training is not allowed."""
        stored = self._find(spec)
        if not isinstance(stored, StoredPolicy):
            raise StoreError(f"{spec.name} holds integers, not fp32 weights; restore it")
        return stored

    def integers(self, spec: PolicySpec) -> StoredIntegers:
        """The quantization-aware policy of `spec`, which has a scheme; MissingBaseline as for `policy`."""
        stored = self._find(spec)
        if not isinstance(stored, StoredIntegers):
            raise StoreError(f"{spec.name} holds fp32 weights, not integers; restore it")
        return stored

    def find_repaired(self, spec: PolicySpec, scheme: str, sha256: str) -> StoredIntegers | None:
        """What a repair chose for the fp32 policy of `spec` in the bits of `scheme`; None where none is committed.

        StoreError where that was another policy than the one with this hash.
        """
        folder = self.place_repaired(spec, scheme)
        if folder is None:
            return None
        found = load_integers(folder)
        if found.metadata.get("quantization", {}).get("source_sha256") != sha256:
            raise StoreError(f"{folder}: repaired from another policy than {spec.name}; run `quarl repair` again")
        return found

    def place_repaired(self, spec: PolicySpec, scheme: str) -> Path | None:
        """The folder of what a repair chose for it; None where none is committed."""
        if self.places.baselines is None:
            return None
        folder = self.places.baselines / "repaired" / f"{spec.name}-{scheme}"
        return folder if folder.exists() else None

    def _find(self, spec: PolicySpec) -> Stored:
        if spec not in self._policies:
            self._policies[spec] = self._find_policy(spec)
        return self._policies[spec]

    def find_seeds(self, spec: PolicySpec) -> tuple[int, ...]:
        """The training seeds of this kind of policy that are there to be used, ascending; its own seed says nothing."""
        if spec.origin == ZOO:
            return () if self._find_zip(spec) is None else (0,)
        if self.train is Train.ALWAYS:
            return ()
        stem, digits = replace(spec, seed=0).name.removesuffix("0"), re.compile(r"[0-9]+")
        folders = [] if self.places.baselines is None else [(self.places.baselines / "policies", "")]
        with suppress(SpecError):  # without a recipe nothing is in the cache
            path = self._cached_policy(spec, find_recipe(spec.algo, spec.environment, spec.origin, spec.scheme))
            folders.append((path.parent, path.name.removeprefix(spec.name)))
        found = (
            path.name.removeprefix(stem).removesuffix(end)
            for folder, end in folders
            for path in folder.glob(f"{stem}*{end}")
        )
        return tuple(sorted({int(seed) for seed in found if digits.fullmatch(seed)}))

    def measurement(self, key: dict[str, Any], compute: Callable[[], Measurement]) -> Measurement:
        """The measurement that `key` (JSON types) describes, computed at most once by all processes together."""
        return self.measurements([key], lambda _: [compute()])[0]

    def measurements(
        self, keys: Sequence[dict[str, Any]], compute: Callable[[list[int]], Sequence[Measurement]]
    ) -> list[Measurement]:
        """The same of several; those that nobody has are computed together, and `compute` is told their places."""
        names = [_name_key(key) for key in keys]
        missing: dict[int, Path] = {}
        with ExitStack() as locks:
            for name, place in sorted(dict(zip(names, range(len(names)), strict=True)).items()):  # one order for all
                if name not in self._measurements:
                    path = self.places.cache / "measurements" / name[:2] / f"{name}.json"
                    locks.enter_context(self._locked(path))
                    found = self._read_entry("measurement was", path, keys[place], read_measurement)
                    if found is None:
                        missing[place] = path
                    else:
                        self._measurements[name] = found
            places = sorted(missing)
            for place, made in zip(places, compute(places) if places else [], strict=True):
                write_file(missing[place], write_measurement(made, keys[place]))
                self._measurements[names[place]] = made
        return [self._measurements[name] for name in names]

    def share_episodes(self, sha256: str, environment: Environment, *, sampled: bool) -> dict[int, End]:
        """By environment seed, what this process knows of a policy's episodes without having played them."""
        return self._shared[sha256, environment, sampled]

    def states(self, key: dict[str, Any], visit: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """The observations (n, ...) that `key` (JSON types) describes, visited at most once by all processes."""
        name = _name_key(key)
        path = self.places.cache / "states" / name[:2] / f"{name}.npz"
        return self._find_entry("states were", path, key, visit, read=read_states, write=write_states)

    def _find_zip(self, spec: PolicySpec) -> Path | None:
        return None if self.places.zoo is None else find_zip(self.places.zoo, spec.algo, spec.environment)

    def _find_policy(self, spec: PolicySpec) -> Stored:
        if spec.origin == ZOO:
            path = self._find_zip(spec)
            if path is None:
                raise MissingBaseline(
                    f"no zoo agent of {spec.algo} on {spec.environment}: pass --quarl-zoo=PATH, the folder of "
                    "`quarl fetch zoo --output PATH`"
                )
            return read_agent(path, spec.algo).store()
        if self.train is not Train.ALWAYS and self.places.baselines is not None:
            folder = self.places.baselines / "policies" / spec.name
            if folder.exists():
                return load_stored(folder)
        recipe = _find_recipe(spec)
        folder = self._cached_policy(spec, recipe)
        with self._locked(folder):
            if folder.exists() and self._is_current(folder):
                try:
                    return load_stored(folder)
                except PolicyError as error:
                    self._note(f"stored policy was damaged and is made again: {error}")
            if self.train is Train.NEVER or self._trainer is None:
                options = "".join(
                    f" --{name} {value}" for name, value in vars(spec).items() if name in EXTRAS and value
                )
                raise MissingBaseline(
                    f"no baseline for {spec.name}: train it with `quarl train {spec.algo} {spec.environment} "
                    f"--seed {spec.seed}{options}`, or allow it with "
                    "--quarl-train missing"
                )
            self._note(f"training {spec.name}: {recipe.timesteps:,} steps")
            stored = self._trainer(spec, recipe, folder, folder.with_suffix(".checkpoint"))
            write_file(folder.with_suffix(".run"), self.run)
            return stored

    def _cached_policy(self, spec: PolicySpec, recipe: Recipe) -> Path:
        epoch = hash_code(*TRAINING_CODE, *(AWARE_CODE if spec.scheme else ()))
        return self.places.cache / "policies" / f"{spec.name}-{recipe.sha256[:12]}-{epoch}"

    def _is_current(self, folder: Path) -> bool:
        """Under `always`, only what this run has trained."""
        marker = folder.with_suffix(".run")
        return self.train is not Train.ALWAYS or (marker.exists() and marker.read_text() == self.run != "")

    def _find_entry(
        self,
        what: str,
        path: Path,
        key: dict[str, Any],
        compute: Callable[[], Entry],
        *,
        read: Callable[[Path, dict[str, Any]], Entry],
        write: Callable[[Entry, dict[str, Any]], str | bytes],
    ) -> Entry:
        """What the cache has at `path`, or what `compute` makes now; `what` says so where it is damaged."""
        with self._locked(path):
            found = self._read_entry(what, path, key, read)
            if found is None:
                found = compute()
                write_file(path, write(found, key))
            return found

    def _read_entry(
        self, what: str, path: Path, key: dict[str, Any], read: Callable[[Path, dict[str, Any]], Entry]
    ) -> Entry | None:
        """What the cache has at `path`; None where nothing, or nothing whole, is there."""
        if not path.exists():
            return None
        try:
            return read(path, key)
        except StoreError as error:
            self._note(f"stored {what} damaged and made again: {error}")
            return None

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """One process at a time per entry; the system releases the lock of a killed process."""
        lock = path.with_name(path.name + ".lock")
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            guard = FileLock(lock)
            guard.acquire()
        except OSError as error:
            raise StoreError(
                f"cannot write the cache {self.places.cache}: {error.strerror or error}; choose another place with "
                "QUARL_CACHE_DIR (of pytest --quarl-cache-dir)"
            ) from error
        try:
            yield
        finally:
            guard.release()


def _find_recipe(spec: PolicySpec) -> Recipe:
    """The recipe of a policy; without one, a cell of a real task lacks its baseline and nothing is misspelt."""
    find_environment(spec.environment)
    find_algorithm(spec.algo)
    if spec.origin.startswith(MANY_SEEDS):
        needed = " ".join(("--seeds LIST", *list_options(spec.origin, spec.scheme), "--output FOLDER/policies"))
        remedy = f"quarl train {spec.algo} {spec.environment} {needed}"
        raise MissingBaseline(f"no baseline for {spec.name}; train it with `{remedy}`")
    try:
        return find_recipe(spec.algo, spec.environment, spec.origin, spec.scheme)
    except SpecError as error:
        raise MissingBaseline(f"no baseline for {spec.name}, and no recipe to train it: {error}") from error


def _name_key(key: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
