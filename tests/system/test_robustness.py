"""Killed processes, full disks, clocks that run backwards."""

import os
import random
import subprocess
import time

import pytest

from quarl_bench.errors import StoreError
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.spec import Measurement, PolicySpec
from tests.support.kill_nine import kill_benches, kill_trainings
from tests.support.sizes import choose
from tests.support.stores import MEASUREMENT, make_policy


@pytest.mark.parametrize("experiment", choose([kill_trainings], [kill_trainings, kill_benches]))
def test_killing_leaves_nothing_corrupt(experiment, tmp_path):
    report = experiment(
        tmp_path, choose(1, 2), random.Random(1)
    )  # `python -m tests.support.kill_nine`: as many as one likes
    assert report.kills == choose(1, 2)
    assert not report.corrupt


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.needs("mount")
def test_a_full_disk_is_one_line_and_leaves_nothing(tiny_disk):
    from quarl_bench.policies.storage.fp32 import save_policy

    (tiny_disk / "filler").write_bytes(bytes(56 * 1024))
    save_policy(make_policy(0), tiny_disk / "policy0", {})
    with pytest.raises(StoreError, match="No space left on device; choose a writable place"):
        save_policy(make_policy(1), tiny_disk / "policy1", {"padding": "x" * 20_000})
    for folder in tiny_disk.glob("policy*"):
        assert {file.name for file in folder.iterdir()} == {"policy.safetensors", "manifest.json"}
    long = Measurement(("a",), tuple(range(5000)), ("x",) * 5000, ((0.1,) * 5000,), ((1,) * 5000,))
    with pytest.raises(StoreError, match="No space left"):
        Store(StorePaths(tiny_disk / "cache")).measurement({"k": 1}, lambda: long)
    assert not list((tiny_disk / "cache").rglob("*.json"))
    assert not list(tiny_disk.rglob("*.tmp"))


@pytest.mark.needs("mount")
def test_a_learner_tells_of_a_full_disk_and_leaves_nothing(tiny_disk):
    import numpy as np

    from quarl_bench.actorq.acting.task import open_task
    from quarl_bench.actorq.learning.agents import make_agent
    from quarl_bench.actorq.learning.checkpoint import save_checkpoint
    from quarl_bench.actorq.learning.replay import Replay
    from quarl_bench.actorq.settings import choose_settings

    chosen = choose_settings("dqn", "cartpole")
    agent, replay = make_agent(chosen, open_task(chosen)), Replay(chosen.replay, np.random.default_rng(0))
    with pytest.raises(StoreError, match="No space left on device; choose a writable place"):
        save_checkpoint(tiny_disk, chosen, agent, replay, {})
    assert not list(tiny_disk.iterdir())


def test_a_clock_that_runs_backwards_changes_nothing(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return MEASUREMENT

    Store(StorePaths(tmp_path)).measurement({"k": 1}, compute)
    future = time.time() + 10 * 365 * 24 * 3600
    for path in tmp_path.rglob("*"):
        os.utime(path, (future, future))
    assert Store(StorePaths(tmp_path)).measurement({"k": 1}, compute) == MEASUREMENT
    assert len(calls) == 1


def test_read_only_baselines_are_never_written(tmp_path):
    from quarl_bench.policies.storage.fp32 import save_policy

    spec = PolicySpec("ppo", "cartpole", 0)
    save_policy(make_policy(), tmp_path / "baselines" / "policies" / spec.name, {})
    for path in [*(tmp_path / "baselines").rglob("*"), tmp_path / "baselines"]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    store = Store(StorePaths(tmp_path / "cache", tmp_path / "baselines"))
    store.policy(spec)
    store.measurement({"k": 1}, lambda: MEASUREMENT)
    assert sorted(p.name for p in (tmp_path / "baselines" / "policies").iterdir()) == [spec.name]
    for path in [tmp_path / "baselines", *(tmp_path / "baselines").rglob("*")]:
        path.chmod(0o755)
