"""The store: layers, locks, repairs."""

import json
import re
import textwrap
import time
import tomllib
from dataclasses import replace
from subprocess import PIPE

import pytest

from quarl_bench.errors import MissingBaseline, PolicyError, SpecError, StoreError
from quarl_bench.evaluation.measurement_key import EVALUATION_CODE, EVALUATION_LOOP, LIBRARIES
from quarl_bench.experiments.store import AWARE_CODE, TRAINING_CODE, Store, StorePaths, Train
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.spec import PolicySpec
from quarl_bench.system.code_epoch import hash_code
from tests.support.forks import Fork, run_python
from tests.support.places import POLICIES, ROOT
from tests.support.stores import MEASUREMENT, FakeTrainer, make_policy

SPEC = PolicySpec("ppo", "cartpole", 0)


def test_a_missing_baseline_says_how_to_train_it(tmp_path):
    with pytest.raises(MissingBaseline, match=r"quarl train ppo cartpole --seed 0.*--quarl-train missing"):
        Store(StorePaths(tmp_path)).policy(SPEC)


@pytest.mark.parametrize(("algo", "environment"), [("ppq", "cartpole"), ("ppo", "poolcart")])
def test_unknown_names_list_the_known_ones(tmp_path, algo, environment):
    with pytest.raises(SpecError, match="known are"):
        Store(StorePaths(tmp_path)).policy(PolicySpec(algo, environment, 0))


def test_baselines_come_before_the_cache_and_are_not_written(tmp_path):
    baselines = tmp_path / "baselines"
    stored = save_policy(make_policy(), baselines / "policies" / SPEC.name, {})
    before = sorted(p.stat().st_mtime_ns for p in baselines.rglob("*"))
    trainer = FakeTrainer()
    store = Store(StorePaths(tmp_path / "cache", baselines), Train.MISSING, trainer=trainer)
    assert store.policy(SPEC).sha256 == stored.sha256
    assert trainer.calls == 0
    assert sorted(p.stat().st_mtime_ns for p in baselines.rglob("*")) == before


def test_a_damaged_baseline_is_an_error_not_a_training(tmp_path):
    folder = tmp_path / "baselines" / "policies" / SPEC.name
    save_policy(make_policy(), folder, {})
    (folder / "policy.safetensors").write_bytes(b"truncated")
    store = Store(StorePaths(tmp_path / "cache", tmp_path / "baselines"), Train.MISSING, trainer=FakeTrainer())
    with pytest.raises(PolicyError, match="sha256"):
        store.policy(SPEC)


def test_missing_trains_once_and_a_second_store_finds_it(tmp_path):
    trainer, notes = FakeTrainer(), []
    first = Store(StorePaths(tmp_path), Train.MISSING, trainer=trainer, note=notes.append).policy(SPEC)
    assert not [note for note in notes if "damaged" in note]
    assert notes == [f"training {SPEC.name}: 100,000 steps"]
    second = Store(StorePaths(tmp_path), Train.MISSING, trainer=trainer).policy(SPEC)
    third = Store(StorePaths(tmp_path)).policy(SPEC)
    assert first.sha256 == second.sha256 == third.sha256
    assert trainer.calls == 1


def test_always_trains_once_per_run(tmp_path):
    trainer = FakeTrainer()
    shas = [
        Store(StorePaths(tmp_path), Train.ALWAYS, trainer=trainer, run=run).policy(SPEC).sha256
        for run in ("one", "one", "two")
    ]
    assert trainer.calls == 2
    assert shas[0] == shas[1] != shas[2]


def test_a_damaged_cached_policy_is_reported_and_made_again(tmp_path):
    trainer, notes = FakeTrainer(), []
    Store(StorePaths(tmp_path), Train.MISSING, trainer=trainer).policy(SPEC)
    (file,) = tmp_path.rglob("policy.safetensors")
    file.write_bytes(file.read_bytes()[:-7])
    Store(StorePaths(tmp_path), Train.MISSING, trainer=trainer, note=notes.append).policy(SPEC)
    assert trainer.calls == 2
    assert "damaged" in notes[0]
    assert str(file) in notes[0]


def test_a_measurement_is_computed_once_and_survives_the_process(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return MEASUREMENT

    for _ in range(2):
        store = Store(StorePaths(tmp_path))
        assert store.measurement({"k": 1}, compute) == MEASUREMENT
        assert store.measurement({"k": 1}, compute) == MEASUREMENT
    assert len(calls) == 1
    Store(StorePaths(tmp_path)).measurement({"k": 2}, compute)
    assert len(calls) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda _: "[]",
        lambda text: text.replace('"returns"', '"retunrs"'),
        lambda text: text.replace("1.0, 2.0", "1.0"),
        lambda text: text.replace('"k": 1', '"k": 3'),
    ],
    ids=["truncated", "empty", "other-json", "missing-key", "short-row", "other-key"],
)
def test_a_damaged_measurement_is_reported_and_made_again(tmp_path, damage):
    notes = []
    Store(StorePaths(tmp_path)).measurement({"k": 1}, lambda: MEASUREMENT)
    (file,) = (tmp_path / "measurements").rglob("*.json")
    file.write_text(damage(file.read_text()))
    store = Store(StorePaths(tmp_path), note=notes.append)
    assert store.measurement({"k": 1}, lambda: MEASUREMENT) == MEASUREMENT
    assert "damaged" in notes[0]
    assert json.loads(file.read_text())["measurement"] == MEASUREMENT.as_dict() | json.loads(
        json.dumps(MEASUREMENT.as_dict())
    )


def test_a_failed_computation_leaves_nothing(tmp_path):
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Store(StorePaths(tmp_path)).measurement({"k": 1}, fail)
    assert not list(tmp_path.rglob("*.json*")) or all(p.name.endswith(".lock") for p in tmp_path.rglob("*.json*"))


def test_an_unwritable_cache_is_one_line_with_the_remedy(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="--quarl-cache-dir"):
        Store(StorePaths(tmp_path / "file" / "cache")).measurement({}, lambda: MEASUREMENT)


COMPUTE = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from quarl_bench.spec import Measurement
    from quarl_bench.experiments.store import Store, StorePaths
    root, log = Path(sys.argv[1]), Path(sys.argv[2])
    def compute():
        with log.open("a") as stream:
            stream.write("computed\\n")
        time.sleep(float(sys.argv[3]))
        return Measurement(("a",), (1, 2), ("x", "y"), ((1.0, 2.0),), ((1, 2),))
    print(Store(StorePaths(root)).measurement({"k": 1}, compute).mean)
""")


def start(tmp_path, seconds):
    return Fork("-c", COMPUTE, tmp_path / "cache", tmp_path / "log", seconds, stdout=PIPE)


def test_processes_wait_for_the_first_and_share_its_result(tmp_path):
    processes = [start(tmp_path, 0.5) for _ in range(3)]
    assert [process.read(timeout=120).strip() for process in processes] == ["1.5"] * 3
    assert (tmp_path / "log").read_text().count("computed") == 1


def test_a_killed_process_releases_its_lock_and_leaves_nothing(tmp_path):
    with start(tmp_path, 600):
        deadline = time.monotonic() + 60
        while not (tmp_path / "log").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not list((tmp_path / "cache").rglob("*.json"))
    store = Store(StorePaths(tmp_path / "cache"))
    assert store.measurement({"k": 1}, lambda: MEASUREMENT) == MEASUREMENT


def test_the_epoch_depends_on_the_code_it_names():
    net = "quantization/net.py"
    assert hash_code("quantization") == hash_code("quantization") != hash_code("policies")
    assert len({hash_code("quantization"), hash_code("quantization", net), hash_code(net)}) == 3


def test_code_that_moved_is_missed():
    with pytest.raises(FileNotFoundError, match=r"quant.*not there"):
        hash_code("quant")


# Each module in a fork of one process that has imported torch, and nothing of ours.
LIST_LOADED = """
import importlib, os, sys
for name in [name for name in sys.modules if name.partition(".")[0] == "quarl_bench"]:
    del sys.modules[name]
for module in sys.argv[1:]:
    if not os.fork():
        importlib.import_module(module)
        print(module, *(name for name in sys.modules if name.startswith("quarl_bench.")), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, module
"""
EPOCHS = ("quarl_bench.policies.policy", "quarl_bench.evaluation.rollouts", "quarl_bench.training.schemes")


@pytest.fixture(scope="module")
def loaded():
    """Modules of the package that importing one of these loads, by it, without those that decide no number."""
    lines = run_python("-c", LIST_LOADED, *EPOCHS, check=True).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*EPOCHS]
    return {line.split()[0]: drop_others(line.split()[1:]) for line in lines}


# They find things, and keep them, and compute nothing.
SYSTEM = ("atomic", "bars", "extras", "interruption", "machine", "places", "processor", "programs", "registry")
HELPERS = {"errors", "version", *(f"system.{name}" for name in SYSTEM)}


def drop_others(names):
    found = {name.removeprefix("quarl_bench.") for name in names}
    rooms = {name.rpartition(".")[0] for name in found}
    return {name for name in found - rooms - HELPERS if not name.startswith("policies.storage")}


def name_modules(*files):
    """`quantization/net.py` -> quantization.net."""
    return {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}


def test_the_epoch_names_all_that_quantizes_a_policy(loaded):
    """Other training code stands beside it in quantization/ and may change without measuring everything again."""
    found = loaded["quarl_bench.policies.policy"]
    assert found
    named = name_modules(*EVALUATION_CODE)
    rooms = ("quantization.", "policies.")
    assert found == {name for name in named if name.startswith(rooms)}


def test_the_epoch_names_all_that_plays_a_policy(loaded):
    found = loaded["quarl_bench.evaluation.rollouts"]
    assert "evaluation.batches.episodes" in found
    assert found <= name_modules(*EVALUATION_CODE, *EVALUATION_LOOP)


def test_the_epoch_names_all_that_trains_a_policy(loaded):
    """What rounds is in the epoch of quantization-aware runs, whose folder is named whole."""
    found = loaded["quarl_bench.training.schemes"]
    assert "training.sb3.run" in found
    aware = {name for name in found if name.startswith("quantization.")}
    assert found - aware <= name_modules(*TRAINING_CODE, *AWARE_CODE)


def test_every_library_of_an_environment_counts():
    """Of those that an extra pins beside gymnasium, whose rewards or physics a return depends on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for extra, libraries in LIBRARIES.items():
        pinned = {re.split(r"[\[=<>]", pin)[0].lower() for pin in extras[extra]}
        assert {library.lower() for library in libraries} == pinned - {"gymnasium", "numpy"}, extra


def test_every_committed_policy_belongs_to_a_recipe():
    """A baseline whose recipe has changed since would be compared with the wrong published score."""
    from dataclasses import fields

    from quarl_bench.policies.storage.folder import load_stored
    from quarl_bench.training.multi_seed.recipe import MultiSeedRecipe as LqccRecipe
    from quarl_bench.training.recipes import find_recipe

    own_fields = [field.name for field in fields(LqccRecipe)]
    folders = sorted(POLICIES.glob("*-seed*"))
    if not folders:
        pytest.skip("no baselines in this checkout")
    for folder in folders:
        algo, environment, *kind, seed = folder.name.split("-")
        about = load_stored(folder).metadata
        scheme = next((part for part in kind if part.startswith("qat")), "")
        origin = next((part for part in kind if part != scheme), "")
        assert f"seed{about['seed']}" == seed
        if about.get("trained_with"):  # many seeds at once: its manifest holds the whole recipe
            assert LqccRecipe(**{key: about["recipe"][key] for key in own_fields}).sha256 == about["recipe"]["sha256"]
            continue
        assert about["recipe"]["sha256"] == find_recipe(algo, environment, origin, scheme).sha256, folder.name


def test_what_is_missing_of_several_is_computed_together(tmp_path):
    asked = []

    def compute(places):
        asked.append(places)
        return [replace(MEASUREMENT, policies=(str(place),)) for place in places]

    def ask(store, *keys):
        return [measurement.policies[0] for measurement in store.measurements([{"k": key} for key in keys], compute)]

    store = Store(StorePaths(tmp_path))
    assert ask(store, 1, 2, 3) == ["0", "1", "2"]
    assert ask(store, 3, 1) == ["2", "0"]
    assert ask(Store(StorePaths(tmp_path)), 5, 3, 4, 1) == ["0", "2", "2", "0"]
    assert asked == [[0, 1, 2], [0, 2]]


def test_nothing_of_several_is_kept_where_one_fails(tmp_path):
    store = Store(StorePaths(tmp_path))
    with pytest.raises(ZeroDivisionError):
        store.measurements([{"k": 1}, {"k": 2}], lambda _: [MEASUREMENT, 1 // 0])
    assert not [*(tmp_path / "measurements").rglob("*.json")]
