"""MuJoCo's stopwatch stands while bodies step, and goes on behind them."""

import numpy as np
import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.environments.stopwatch import stop_watch
from quarl_bench.evaluation.batches.episodes import SteppedEpisodes, start_episodes

pytestmark = pytest.mark.needs("mujoco")


@pytest.fixture
def clocked():
    """Steps a small body, and tells whether MuJoCo looked at the clock for it."""
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )

    def step():
        data = mujoco.MjData(model)
        mujoco.mj_step(model, data)
        return data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration > 0

    return step


def test_it_stands_within_and_goes_on_behind(clocked):
    assert clocked()
    with stop_watch():
        assert not clocked()
        with stop_watch():
            assert not clocked()
        assert not clocked()
    assert clocked()


def test_it_goes_on_behind_an_error(clocked):
    with pytest.raises(ZeroDivisionError), stop_watch():
        raise ZeroDivisionError
    assert clocked()


@pytest.mark.parametrize("slug", ["hopperv4", "humanoidv4"])
def test_episodes_step_without_it(slug, clocked):
    environment = find_environment(slug)
    episodes = start_episodes(environment, [1])
    episodes.reset()
    scalar = (episodes._environments if isinstance(episodes, SteppedEpisodes) else [episodes._scalar])[0]
    data = scalar.unwrapped.data
    before = data.timer[0].duration
    episodes.step(np.arange(1), np.zeros((1, *scalar.action_space.shape), np.float32))
    assert data.timer[0].duration == before
    assert clocked()
    episodes.close()


def test_it_is_left_alone_where_it_is_not_found(monkeypatch, clocked):
    monkeypatch.setattr("quarl_bench.environments.stopwatch._find_clock", lambda: None)
    with stop_watch():
        assert clocked()
