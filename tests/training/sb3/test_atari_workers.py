"""Games stepped in several processes are the games of one process."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, check_output

import numpy as np
import pytest
import stable_baselines3 as sb3

from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.errors import SpecError
from quarl_bench.training.sb3 import atari_workers
from quarl_bench.training.sb3.atari_workers import WorkerVector
from quarl_bench.training.sb3.vector import make_vector
from tests.support.forks import Fork, run_python, start_server

pytestmark = pytest.mark.needs("atari")
SEED = 5
PARENT = """
from quarl_bench.environments.registry import find_environment
from quarl_bench.training.sb3.atari_workers import WorkerVector
if __name__ == "__main__":
    vector = WorkerVector(find_environment("pong"), 2, 0, 2)
    print(*(process.pid for process in vector._processes), flush=True)
    while True:
        vector.reset()
"""


@pytest.fixture
def breakout() -> Environment:
    return find_environment("breakout")


@pytest.fixture(scope="module", autouse=True)
def forked() -> Iterator[None]:
    """Processes that have imported torch; those of a program of its own, below, are clean ones as always."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atari_workers.multiprocessing, "get_context", lambda _: start_server())
        yield


@pytest.fixture
def shared(breakout: Environment) -> Iterator[WorkerVector]:
    vector = WorkerVector(breakout, 3, SEED, 2)
    yield vector
    vector.close()


@pytest.fixture(scope="module")
def used() -> Iterator[WorkerVector]:
    """One for tests that do not mind which games were played before, and leave it alive."""
    vector = WorkerVector(find_environment("breakout"), 3, SEED, 2)
    yield vector
    vector.close()


def test_a_run_does_not_see_how_many_processes_step_it(shared: WorkerVector, breakout: Environment) -> None:
    alone = make_vector(breakout, 3, SEED)
    assert (shared.num_envs, shared.observation_space, shared.action_space) == (
        alone.num_envs,
        alone.observation_space,
        alone.action_space,
    )
    assert np.array_equal(shared.reset(), alone.reset())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(400):
        actions = rng.integers(4, size=3)
        found, expected = shared.step(actions), alone.step(actions)
        for left, right in zip(found[:3], expected[:3], strict=True):
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)
        for info, other in zip(found[3], expected[3], strict=True):
            assert info.keys() == other.keys()
            if "episode" in info:
                assert (info["episode"]["r"], info["episode"]["l"]) == (other["episode"]["r"], other["episode"]["l"])
        ends += int(found[2].sum())
    assert ends > 3
    alone.close()


def test_stable_baselines_trains_on_it(used: WorkerVector) -> None:
    model = sb3.PPO("CnnPolicy", used, n_steps=32, batch_size=48, n_epochs=1, seed=0, device="cpu")
    model.learn(96)
    assert model.get_env() is used
    assert model.num_timesteps == 96


def test_closing_ends_the_processes_and_may_be_repeated(breakout: Environment) -> None:
    vector = WorkerVector(breakout, 1, SEED, 8)  # more processes than games
    before = multiprocessing.active_children()
    vector.close(), vector.close()
    assert len(multiprocessing.active_children()) == len(before) - 1


def test_a_dead_process_is_one_line(shared: WorkerVector) -> None:
    shared.reset()
    os.kill(shared._processes[1].pid or 0, signal.SIGKILL)
    shared._processes[1].join()
    with pytest.raises(SpecError, match=r"BreakoutNoFrameskip-v4: a process that stepped games has died; .*--resume"):
        shared.step(np.zeros(3, dtype=np.int64))


def test_a_signal_to_the_whole_group_is_for_the_parent(used: WorkerVector) -> None:
    """As a terminal, `timeout` and batch systems send it: the parent has yet to write its checkpoint."""
    used.reset()
    for number in (signal.SIGINT, signal.SIGTERM):
        for process in used._processes:
            os.kill(process.pid or 0, number)
        for _ in range(20):
            used.step(np.zeros(3, dtype=np.int64))


def test_processes_do_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with Fork(script, stdout=PIPE) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(children) == 2
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(is_running(pid) for pid in children):
        time.sleep(0.1)
    assert not any(is_running(pid) for pid in children)


def test_a_vector_that_nobody_closed_does_not_keep_its_process(tmp_path: Path) -> None:
    """As after Ctrl-C: at its end Python waits for daemons, which ignore what it sends them."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT.replace("    while True:\n        vector.reset()\n", "    raise KeyboardInterrupt\n"))
    ended = run_python(script, timeout=60)
    assert "KeyboardInterrupt" in ended.stderr


def test_a_process_that_steps_games_has_no_torch() -> None:
    """It would take seconds, and half a gigabyte in each."""
    code = "import sys, quarl_bench.training.sb3.games; print('torch' in sys.modules)"
    assert check_output([sys.executable, "-c", code], text=True).split() == ["False"]


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
