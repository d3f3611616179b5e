"""Our dynamics equal Gymnasium's scalar environments bit by bit."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import acrobot
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quarl_bench.environments.classic_control import DYNAMICS, State, _square_torque, _wrap_angles
from quarl_bench.environments.registry import Environment, find_environment, make_environment
from quarl_bench.evaluation.batches import episodes
from quarl_bench.evaluation.batches.episodes import SteppedEpisodes, VectorEpisodes
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.policy import Policy
from tests.support.strategies import SEEDS, make_linear_policy

CARTPOLE, ACROBOT, PENDULUM = "CartPole-v1", "Acrobot-v1", "Pendulum-v1"
PLACES_ONLY = find_environment("cartpolenovel").id
CAR, CONTINUOUS_CAR = "MountainCar-v0", "MountainCarContinuous-v0"
Act = Callable[[np.random.Generator, NDArray[Any]], NDArray[Any]]

# What ends episodes, or reaches every limit of a state.
GOOD: dict[str, Policy] = {
    CARTPOLE: make_linear_policy(np.array([[0, 0, 0, 0], [-1, 0, 5, 0.5]])),
    PLACES_ONLY: make_linear_policy(np.array([[0, 0, 0, 0], [-1, 0, 5, 0]])),
    ACROBOT: make_linear_policy(np.array([[0, 0, 0, 0, 1, -0.1], [0] * 6, [0, 0, 0, 0, -1, 0.1]])),
    CAR: make_linear_policy(np.array([[0, -1], [0, 0], [0, 1]])),
    CONTINUOUS_CAR: make_linear_policy(np.array([[0, 50]]), (-1, 1)),
    PENDULUM: make_linear_policy(np.array([[0.0, 1.0, 5.0]]), (-2, 2)),
}
BOUNDS = {CONTINUOUS_CAR: 1.0, PENDULUM: 2.0}
CHOICES = {CARTPOLE: 2, PLACES_ONLY: 2, ACROBOT: 3, CAR: 3}
everywhere = pytest.mark.parametrize("name", DYNAMICS)


def act_randomly(name: str) -> Act:
    def act(rng: np.random.Generator, observations: NDArray[Any]) -> NDArray[Any]:
        if name in CHOICES:
            return rng.integers(0, CHOICES[name], len(observations))
        return rng.uniform(-BOUNDS[name], BOUNDS[name], (len(observations), 1)).astype(np.float32)

    return act


def act_well(name: str) -> Act:
    return lambda _, observations: GOOD[name].act(observations)


def act_well_at_times(name: str) -> Act:
    def act(rng: np.random.Generator, observations: NDArray[Any]) -> NDArray[Any]:
        rows = rng.random(len(observations)) < 0.3
        actions = np.array(GOOD[name].act(observations))
        actions[rows] = act_randomly(name)(rng, observations[rows])
        return actions

    return act


def step_scalar(environment: gymnasium.Env[Any, Any], action: Any) -> tuple[NDArray[Any], float, bool, bool]:
    observation, reward, terminated, truncated, _ = environment.step(action.item() if action.ndim == 0 else action)
    return observation, float(reward), bool(terminated), bool(truncated)


def assert_same_bits(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


@pytest.mark.parametrize("act_as", [act_randomly, act_well, act_well_at_times], ids=lambda f: f.__name__)
@everywhere
def test_whole_episodes_are_equal_bit_by_bit(name: str, act_as: Callable[[str], Act]) -> None:
    seeds, rng, act = range(12), np.random.default_rng(0), act_as(name)
    twins = [gymnasium.make(name) for _ in seeds]
    played = VectorEpisodes(Environment("e", name), seeds)
    observations = played.reset()
    for twin, seed, observation in zip(twins, seeds, observations, strict=True):
        assert_same_bits(observation, twin.reset(seed=seed)[0])
    active = np.arange(len(seeds))
    while len(active):
        actions = act(rng, observations)
        observations, rewards, done = played.step(active, actions)
        assert (rewards.dtype, done.dtype, observations.shape[0]) == (np.float64, np.bool_, len(active))
        for row, index in enumerate(active):
            observation, reward, terminated, truncated = step_scalar(twins[index], actions[row])
            assert_same_bits(observations[row], observation)
            state = np.asarray(twins[index].unwrapped.state)
            assert_same_bits(np.ascontiguousarray(played._state[:, row]), state)
            assert rewards[row] == reward
            assert done[row] == (terminated or truncated)
        active, observations = active[~done], observations[~done]


@pytest.mark.parametrize("name", [CARTPOLE, PLACES_ONLY, ACROBOT, CAR, CONTINUOUS_CAR])
def test_the_good_policies_end_episodes(name: str) -> None:
    """Else the tests above would compare truncations only."""
    rollouts = roll_out(GOOD[name], Environment("e", name), range(12))
    assert len(set(rollouts.lengths.tolist())) > 1


@everywhere
def test_both_kinds_play_the_same_episodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment("e", name)
    ours = roll_out(GOOD[name], environment, range(20, 50), keep_every=1)
    monkeypatch.setattr(episodes, "DYNAMICS", {})
    theirs = roll_out(GOOD[name], environment, range(20, 50), keep_every=1)
    assert type(episodes.start_episodes(environment, [1])) is SteppedEpisodes
    assert ours.starts == theirs.starts
    assert ours.lengths.tolist() == theirs.lengths.tolist()
    assert ours.returns.tolist() == theirs.returns.tolist()
    assert ours.observations is not None
    assert theirs.observations is not None
    assert_same_bits(ours.observations, theirs.observations)


@everywhere
def test_an_episode_does_not_depend_on_its_batch(name: str) -> None:
    environment, act, rng = Environment("e", name), act_randomly(name), np.random.default_rng(1)
    together = VectorEpisodes(environment, range(40))
    observations = together.reset()
    alone = {index: VectorEpisodes(environment, [index]) for index in (0, 17, 39)}
    for index, single in alone.items():
        assert_same_bits(single.reset()[0], observations[index])
    active = np.arange(40)
    for _ in range(60):
        actions = act(rng, observations)
        observations, rewards, done = together.step(active, actions)
        for row, index in enumerate(active.tolist()):
            if index in alone:
                x, reward, ended = alone[index].step(np.arange(1), actions[row : row + 1])
                assert_same_bits(x[0], observations[row])
                assert (reward[0], ended[0]) == (rewards[row], done[row])
        active, observations = active[~done], observations[~done]
        if not len(active):
            break


@pytest.mark.parametrize("drop", [[0], [3], [0, 1, 2], [1, 3]], ids=str)
def test_the_batch_shrinks(drop: list[int]) -> None:
    """Whatever the caller leaves out of `active` is gone, and the rest steps on where it was."""
    environment = Environment("e", PENDULUM)
    kept = np.setdiff1d(np.arange(4), drop)
    shrinking, alone = VectorEpisodes(environment, range(4)), VectorEpisodes(environment, kept.tolist())
    actions = np.linspace(-2, 2, 4, dtype=np.float32)[:, None]
    shrinking.reset(), alone.reset()
    shrinking.step(np.arange(4), actions)
    expected = alone.step(np.arange(len(kept)), actions[kept])
    for _ in range(3):
        found = shrinking.step(kept, actions[kept])
        expected = alone.step(np.arange(len(kept)), actions[kept])
        for left, right in zip(found, expected, strict=True):
            assert_same_bits(left, right)


def near(*limits: float) -> st.SearchStrategy[float]:
    """A limit, its neighbours in float32 and float64, and what one step can carry across it."""

    def shift(limit: float, ulps: int, away: float) -> float:
        value = np.float64(np.float32(limit)) if ulps % 2 else np.float64(limit)
        return float(value + ulps * np.spacing(value) + away)

    away = st.one_of(st.just(0.0), st.floats(-0.1, 0.1))
    return st.builds(shift, st.sampled_from(limits), st.integers(-3, 3), away)


ANGLE = 12 * 2 * np.pi / 360
CARTPOLE_STATES = (near(-2.4, 0.0, 2.4), st.floats(-3, 3), near(-ANGLE, 0.0, ANGLE), st.floats(-4, 4))
STATES: dict[str, tuple[st.SearchStrategy[float], ...]] = {
    CARTPOLE: CARTPOLE_STATES,
    PLACES_ONLY: CARTPOLE_STATES,
    ACROBOT: (
        near(-np.pi, -np.pi / 2, 0.0, np.pi / 2, np.pi),
        near(-np.pi, 0.0, np.pi / 3, np.pi),
        near(-4 * np.pi, 0.0, 4 * np.pi),
        near(-9 * np.pi, 0.0, 9 * np.pi),
    ),
    CAR: (near(-1.2, -np.pi / 6, 0.5, 0.6).map(lambda x: min(max(x, -1.2), 0.6)), near(-0.07, 0.0, 0.07)),
    CONTINUOUS_CAR: (near(-1.2, -np.pi / 6, 0.45, 0.6).map(lambda x: min(max(x, -1.2), 0.6)), near(-0.07, 0.0, 0.07)),
    PENDULUM: (near(-31 * np.pi, -np.pi, 0.0, np.pi, 31 * np.pi), near(-8.0, 0.0, 8.0)),
}
ACTIONS: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(0, choices - 1).map(np.int64) for name, choices in CHOICES.items()},
    **{
        name: st.one_of(st.sampled_from([-bound, -0.0, 0.0, bound]), st.floats(-bound, bound, width=32)).map(
            lambda value: np.float32([value])
        )
        for name, bound in BOUNDS.items()
    },
}


@pytest.fixture(scope="module")
def bare() -> dict[str, gymnasium.Env[Any, Any]]:
    environments = {name: make_environment(Environment("e", name))[0] for name in DYNAMICS}
    for environment in environments.values():
        environment.reset(seed=0)
    return environments


def put_state(name: str, environment: Any, state: State) -> State:
    """As a column of a batch; in the type that the environment itself keeps."""
    bare = environment.unwrapped
    bare.state = tuple(state) if name == CAR else state
    if name in (CARTPOLE, PLACES_ONLY):
        bare.steps_beyond_terminated = None  # every step is the first that ends
    return state[:, None]


@given(data=st.data())
@everywhere
def test_states_near_the_limits(name: str, bare: dict[str, Any], data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([np.float32, np.float64])) if name in (ACROBOT, CONTINUOUS_CAR) else np.float64
    count = data.draw(st.integers(1, 5))
    columns = [np.array([data.draw(part) for part in STATES[name]], dtype=kind) for _ in range(count)]
    actions = [data.draw(ACTIONS[name]) for _ in range(count)]
    expected, batch = [], []
    for state, action in zip(columns, actions, strict=True):
        batch.append(put_state(name, bare[name], state))
        expected.append((*step_scalar(bare[name], action), np.array(bare[name].unwrapped.state)))
    start = np.concatenate(batch, axis=1)
    before = start.copy()
    after, rewards, terminated = DYNAMICS[name].advance(start, np.stack(actions))
    observations = DYNAMICS[name].observe(after)
    assert_same_bits(start, before)
    for row, (observation, reward, ended, _, state) in enumerate(expected):
        assert_same_bits(observations[row], observation)
        assert_same_bits(np.ascontiguousarray(after[:, row]), state)
        assert (rewards[row], terminated[row]) == (reward, ended)


@given(seed=SEEDS, count=st.integers(1, 70))
@everywhere
def test_a_step_does_not_depend_on_its_neighbours(name: str, seed: int, count: int) -> None:
    """Vectorised kernels treat the ends of an array apart; results must not."""
    rng = np.random.default_rng(seed)
    state = rng.uniform(-1, 1, ({CARTPOLE: 4, PLACES_ONLY: 4, ACROBOT: 4}.get(name, 2), count)) * rng.choice(
        [0.07, 1.0, 8.0]
    )
    actions = act_randomly(name)(rng, np.empty((count, 1)))
    after, rewards, terminated = DYNAMICS[name].advance(state, actions)
    index = int(rng.integers(count))
    single = slice(index, index + 1)
    alone = DYNAMICS[name].advance(state[:, single], actions[single])
    for found, expected in zip((after[:, single], rewards[single], terminated[single]), alone, strict=True):
        assert_same_bits(found, expected)


@given(st.lists(near(-5 * np.pi, -np.pi, 0.0, np.pi, 5 * np.pi), min_size=1, max_size=9))
def test_angles_are_wrapped(angles: list[float]) -> None:
    expected = [acrobot.wrap(angle, -np.pi, np.pi) for angle in np.array(angles)]
    assert_same_bits(_wrap_angles(np.array(angles)), np.array(expected))


def test_squares_are_those_of_scalars() -> None:
    """Rare differences in the last bit, which costs mostly hide."""
    torques = np.random.default_rng(0).uniform(-2, 2, 20_000).astype(np.float32)
    assert_same_bits(_square_torque(torques), np.array([torque**2 for torque in torques]))


@pytest.mark.parametrize("name", CHOICES)
def test_an_action_that_does_not_exist_is_an_error(name: str) -> None:
    played = VectorEpisodes(Environment("e", name), [1, 2])
    played.reset()
    with pytest.raises(IndexError):
        played.step(np.arange(2), np.array([0, CHOICES[name]]))


def test_every_environment_has_a_policy_above() -> None:
    assert set(GOOD) == set(STATES) == set(ACTIONS) == set(DYNAMICS)
    assert {policy.head.kind for policy in GOOD.values()} == {HeadKind.ARGMAX, HeadKind.CLIP}
