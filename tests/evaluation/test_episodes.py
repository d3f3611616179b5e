"""Episodes equal Gymnasium's, step by step."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment, find_environment, make_environment
from quarl_bench.errors import SpecError
from quarl_bench.evaluation.batches.episodes import SteppedEpisodes, VectorEpisodes, start_episodes
from quarl_bench.evaluation.rollouts import measure
from quarl_bench.judging.pairs import align
from quarl_bench.policies.policy import Policy
from quarl_bench.spec import name_seeds
from tests.support.strategies import make_linear_policy

CARTPOLE = Environment("cartpole", "CartPole-v1")
PENDULUM = Environment("pendulum", "Pendulum-v1")
LANDER = Environment("lunarlander", "LunarLander-v3")
BALANCING = make_linear_policy(np.array([[0, 0, 0, 0], [0.1, 0.5, 5, 2]]))  # pushes where the pole falls
GOOD_ENOUGH = make_linear_policy(np.array([[0, 0, 0, 0], [-1, 0, 5, 0.5]]))  # 100 to 400 steps


@pytest.fixture(params=[25, 60])
def short_lander(request: pytest.FixtureRequest, require) -> Iterator[Environment]:
    """LunarLander whose time is up before it lands, and about when the worst crash."""
    require("box2d")
    name = f"ShortLander{request.param}-v3"
    entry_point = gymnasium.spec(LANDER.id).entry_point
    gymnasium.register(name, entry_point, max_episode_steps=request.param)
    yield Environment("shortlander", name)
    del gymnasium.registry[name]


def random_policies(count: int, outputs: int, inputs: int, bounds: tuple[float, float] | None = None) -> list[Policy]:
    rng = np.random.default_rng(0)
    return [make_linear_policy(rng.standard_normal((outputs, inputs)), bounds) for _ in range(count)]


def play_beside_gymnasium(policy: Policy, environment: Environment, seeds: list[int]) -> NDArray[np.int64]:
    """Every observation, reward and end equals that of one `gymnasium.make` per seed; the lengths of the episodes."""
    twins = [gymnasium.make(environment.id) for _ in seeds]
    episodes = start_episodes(environment, seeds)
    observations = episodes.reset()
    for twin, seed, observation in zip(twins, seeds, observations, strict=True):
        np.testing.assert_array_equal(observation, twin.reset(seed=seed)[0])
        assert observation.dtype == np.float32
    active = np.arange(len(seeds))
    lengths = np.zeros(len(seeds), np.int64)
    while len(active):
        actions = policy.act(observations)
        observations, rewards, done = episodes.step(active, actions)
        assert (len(observations), rewards.dtype, done.dtype) == (len(active), np.float64, np.bool_)
        for row, index in enumerate(active):
            action = actions[row].item() if actions.ndim == 1 else actions[row]
            expected, reward, terminated, truncated, _ = twins[index].step(action)
            np.testing.assert_array_equal(observations[row], expected)
            assert rewards[row] == reward
            assert done[row] == (terminated or truncated)
        lengths[active] += 1
        active, observations = active[~done], observations[~done]
    episodes.close()
    for twin in twins:
        twin.close()
    return lengths


@pytest.mark.parametrize("policy", [*random_policies(4, 2, 4), GOOD_ENOUGH], ids=["a", "b", "c", "d", "good"])
def test_vectorised_cartpole_plays_gymnasium_episodes(policy: Policy) -> None:
    lengths = play_beside_gymnasium(policy, CARTPOLE, list(range(10_000, 10_030)))
    assert lengths.min() < lengths.max() <= 500


def test_vectorised_cartpole_is_truncated_at_500() -> None:
    assert play_beside_gymnasium(BALANCING, CARTPOLE, [1, 2, 3]).tolist() == [500, 500, 500]


@pytest.mark.parametrize("policy", random_policies(2, 1, 3, (-2, 2)), ids=["a", "b"])
def test_a_continuous_environment_is_truncated(policy: Policy) -> None:
    assert play_beside_gymnasium(policy, PENDULUM, [5, 6, 7]).tolist() == [200, 200, 200]


@pytest.mark.needs("box2d")
@pytest.mark.parametrize("policy", random_policies(3, 4, 8), ids=["a", "b", "c"])
def test_lander_plays_gymnasium_episodes(policy: Policy) -> None:
    lengths = play_beside_gymnasium(policy, LANDER, list(range(10_000, 10_006)))
    assert lengths.min() < lengths.max() <= 1000


@pytest.mark.needs("box2d")
def test_a_committed_lander_plays_gymnasium_episodes(baseline) -> None:
    assert play_beside_gymnasium(baseline("ppo-lunarlander-seed0").policy, LANDER, [10_000, 10_001]).min() > 50


def test_lander_is_truncated(short_lander: Environment) -> None:
    """Also where an episode ends and is cut in the same step, which is one end."""
    limit = gymnasium.spec(short_lander.id).max_episode_steps
    lengths = play_beside_gymnasium(random_policies(1, 4, 8)[0], short_lander, list(range(12)))
    assert lengths.max() == limit


@pytest.mark.parametrize(
    "environment, kind",
    [(CARTPOLE, VectorEpisodes), pytest.param(LANDER, SteppedEpisodes, marks=pytest.mark.needs("box2d"))],
    ids=["vectorised", "stepped"],
)
def test_which_kind(environment: Environment, kind: type) -> None:
    episodes = start_episodes(environment, [1])
    assert type(episodes) is kind
    episodes.close()


def test_both_kinds_play_the_same_cartpole() -> None:
    policy: Any = GOOD_ENOUGH
    plays = []
    for kind in (VectorEpisodes, SteppedEpisodes):
        episodes = kind(CARTPOLE, [3, 4])
        x, frames = episodes.reset(), []
        for _ in range(8):
            x, rewards, done = episodes.step(np.arange(2), policy.act(x))
            frames.append((x.tolist(), rewards.tolist(), done.tolist()))
        episodes.close()
        plays.append(frames)
    assert plays[0] == plays[1]


def test_reset_starts_over() -> None:
    episodes = start_episodes(CARTPOLE, [3, 4])
    first = episodes.reset()
    episodes.step(np.arange(2), np.array([1, 1]))
    np.testing.assert_array_equal(episodes.reset(), first)
    episodes.close()


def test_environments_are_named() -> None:
    assert find_environment("cartpole").id == "CartPole-v1"
    assert find_environment("cartpole").cap == 500.0
    with pytest.raises(SpecError, match=r"unknown environment 'cart'; known are .*cartpole, .*lunarlander"):
        find_environment("cart")


def test_wrappers_are_left_out_and_their_limit_is_known() -> None:
    bare, limit = make_environment(CARTPOLE)
    assert bare is bare.unwrapped
    assert limit == 500
    bare.close()


def test_an_environment_without_a_step_limit_is_refused() -> None:
    gymnasium.register("NoLimit-v0", gymnasium.spec("CartPole-v1").entry_point)
    try:
        with pytest.raises(SpecError, match="no step limit"):
            make_environment(Environment("endless", "NoLimit-v0"))
    finally:
        del gymnasium.registry["NoLimit-v0"]


class Ledger(gymnasium.Env):
    """Three steps of a reward that a test chooses; starts that say nothing of what is drawn."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    rewards: ClassVar = 1.0
    behind_action = None  # the action behind which chance decides
    taken: ClassVar[list] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.hidden = 3, float(self.np_random.random())
        return self.first(), {}

    def first(self):
        return np.ones(1, np.float32)

    def step(self, action):
        self.left -= 1
        self.taken.append(action)
        reward = self.hidden if action == self.behind_action else self.rewards
        return np.ones(1, np.float32), reward, self.left == 0, False, {}


gymnasium.register("Ledger-v0", entry_point=Ledger, max_episode_steps=10)
LEDGER = Environment("ledger", "Ledger-v0", custom=True)
CHOOSES_0, CHOOSES_1 = (make_linear_policy(np.array([[1.0 - i], [i]])) for i in (0, 1))


def test_actions_are_numpy_integers_as_everybody_s_loop_gives(monkeypatch):
    monkeypatch.setattr(Ledger, "taken", taken := [])
    measure([("a", CHOOSES_1)], LEDGER, range(2))
    assert taken[0].item() == 1
    assert isinstance(taken[0], np.integer)


@pytest.mark.parametrize("reward", [2, np.float32(2), np.array(2.0), np.array([2.0]), [2.0]])
def test_a_reward_is_a_number_or_an_array_of_one(monkeypatch, reward):
    monkeypatch.setattr(Ledger, "rewards", reward)
    assert measure([("a", CHOOSES_0)], LEDGER, range(3)).returns == ((6.0, 6.0, 6.0),)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (np.ones(2), r"has the shape \(2,\)"),
        (np.ones((1, 1)), r"has the shape \(1, 1\)"),
        ("much", "is no number"),
        (float("nan"), "is nan"),
        (float("-inf"), "is -inf"),
    ],
)
def test_another_reward_is_one_line(monkeypatch, reward, message):
    monkeypatch.setattr(Ledger, "rewards", reward)
    with pytest.raises(
        SpecError, match=rf"environment Ledger-v0, seed 0, step 1: a reward {message}.*; its step\(\) has to"
    ):
        measure([("a", CHOOSES_0)], LEDGER, range(3))


class Broken(Ledger):
    """Fine until its second step, in which it does what a test says."""

    answer: ClassVar = staticmethod(lambda: None)

    def step(self, action):
        found = super().step(action)
        return type(self).answer(*found) if self.left == 1 else found


gymnasium.register("Broken-v0", entry_point=Broken, max_episode_steps=10)


def leave(*_):
    raise SystemExit(3)


def fail(*_):
    raise ZeroDivisionError("no\nmore")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (leave, r"step\(\) raised SystemExit: 3 \(.*test_episodes.py:\d+\); mend it there"),
        (fail, r"step\(\) raised ZeroDivisionError: no \(.*test_episodes.py:\d+\); mend it there"),
        (lambda o, r, ended, *_: (o, r, ended, {}), r"step\(\) returned 4 things, not the 5 of Gymnasium"),
        (lambda *_: None, r"step\(\) returned NoneType, not the 5 of Gymnasium"),
        (lambda _, *rest: (np.full(1, np.nan, np.float32), *rest), "an observation has NaN; end the episode"),
        (lambda _, *rest: (np.ones((1, 1)), *rest), r"an observation has the shape \(1, 1\), not \(1,\)"),
        (lambda _, *rest: (np.float32(1), *rest), r"an observation has the shape \(\), not \(1,\)"),
        (lambda _, *rest: (np.array(["a"]), *rest), "an observation has the dtype <U1, not float32"),
        (lambda _, *rest: (np.array([None]), *rest), "an observation has the dtype object, not float32"),
        (lambda _, *rest: (np.array([1j]), *rest), "an observation has the dtype complex128, not float32"),
    ],
)
def test_what_an_environment_does_wrong_is_one_line(monkeypatch, answer, message):
    monkeypatch.setattr(Broken, "answer", answer)
    with pytest.raises(SpecError, match=rf"^environment Broken-v0, seed 0, step 2: {message}") as caught:
        measure([("a", CHOOSES_0)], Environment("broken", "Broken-v0", custom=True), range(3))
    assert "\n" not in str(caught.value)


def test_numbers_of_other_widths_and_a_last_observation_of_nan_are_fine(monkeypatch):
    monkeypatch.setattr(Broken, "answer", lambda o, *rest: (o.astype(np.float64), *rest))
    broken = Environment("broken", "Broken-v0", custom=True)
    assert measure([("a", CHOOSES_0)], broken, range(3)).mean == 3.0
    monkeypatch.setattr(Broken, "answer", lambda o, r, *_: (o * np.nan, r, True, False, {}))
    assert measure([("a", CHOOSES_0)], broken, range(3)).mean == 2.0


@pytest.mark.parametrize("first", [lambda _: 0.5, lambda _: np.ones(2, np.float32)], ids=["number", "two"])
def test_a_start_of_another_shape_is_one_line(monkeypatch, first):
    monkeypatch.setattr(Ledger, "first", first)
    with pytest.raises(SpecError, match="environment Ledger-v0, seed 0, step 0: an observation has the shape"):
        measure([("a", CHOOSES_0)], LEDGER, range(3))


def test_chance_that_only_a_policy_meets_makes_every_seed_an_episode(monkeypatch):
    """Random actions may never take what leads apart; a policy that does shows it, and its fp32 twin is paired."""
    monkeypatch.setattr("quarl_bench.evaluation.batches.episodes._part", lambda *_, **__: False)
    monkeypatch.setattr(Ledger, "behind_action", 1)
    seeds = range(20)
    calm, met = (measure([("a", policy)], LEDGER, seeds) for policy in (CHOOSES_0, CHOOSES_1))
    assert calm.distinct_episodes == 1, "nothing tells its episodes apart"
    assert met.episodes == name_seeds(seeds)
    assert [returns.shape for returns in align(calm, met)] == [(1, 20)] * 2
    both = measure([("a", CHOOSES_0), ("b", CHOOSES_1)], LEDGER, seeds)
    assert both.episodes == name_seeds(seeds)


def test_starts_that_do_not_come_from_the_seed_are_refused(monkeypatch):
    chance = np.random.default_rng(0)
    monkeypatch.setattr(Ledger, "first", lambda _: chance.random(1, np.float32))
    with pytest.raises(SpecError, match="does not give the same start twice; draw it from that seed"):
        measure([("a", CHOOSES_0), ("b", CHOOSES_1)], LEDGER, range(3))


@pytest.mark.parametrize("id_", ["ALE/Pong-v5", "PongNoFrameskip-v0", "Pong-v4"])
def test_atari_with_sticky_actions_or_its_own_skipping_is_refused(id_):
    with pytest.raises(SpecError, match=r"without sticky actions, as <Game>NoFrameskip-v4; name that"):
        make_environment(Environment("pong", id_, extra="atari"))


def play_nothing(environment: Environment) -> tuple[float, int]:
    """Return and length of a game in which nobody does anything."""
    episodes = start_episodes(environment, [10_000])
    episodes.reset()
    total, steps, done = 0.0, 0, False
    while not done:
        _, rewards, ended = episodes.step(np.arange(1), np.zeros(1, np.int64))
        total, steps, done = total + rewards[0], steps + 1, ended[0]
    episodes.close()
    return total, steps


@pytest.mark.needs("atari")
def test_patience_ends_a_game_in_which_nothing_happens() -> None:
    """In Pong the first point takes 58 steps, and each one behind it 35."""
    pong = find_environment("pong")
    whole = play_nothing(pong)
    assert whole == (-21, 758)
    assert play_nothing(replace(pong, patience=59)) == whole
    assert play_nothing(replace(pong, patience=57)) == (0, 57)
    assert play_nothing(pong) == whole  # a game that ended early leaves nothing behind


@pytest.mark.needs("atari")
def test_a_lost_life_is_something() -> None:
    """In Breakout a ball that nobody meets is lost behind 23 steps."""
    breakout = find_environment("breakout")
    whole = play_nothing(breakout)
    assert whole == (0, 115)
    assert play_nothing(replace(breakout, patience=24)) == whole
    assert play_nothing(replace(breakout, patience=22)) == (0, 22)
