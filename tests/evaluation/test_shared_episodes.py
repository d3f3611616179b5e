"""An episode in which a reference agrees in every state is the reference's own, and need not be played again."""

import gymnasium
import numpy as np
import pytest

from quarl_bench.environments.atari import games as atari
from quarl_bench.environments.atari.games import GamePool
from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.evaluation import rollouts
from quarl_bench.evaluation.batches import games
from quarl_bench.evaluation.rollouts import End, measure, roll_out
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.quantization.scheme import Scheme
from tests.support.places import POLICIES
from tests.support.sizes import choose
from tests.support.strategies import make_linear_policy

CARTPOLE = Environment("cartpole", "CartPole-v1")
SEEDS = (10_000, 10_001, 10_002, 10_003)


@pytest.fixture
def short_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """Games of a hundred steps, or of four hundred, in which coarse schemes part from fp32 and fine ones do not."""
    monkeypatch.setattr(atari, "FRAME_LIMIT", choose(400, 1600))
    monkeypatch.setattr(games, "GAMES", GamePool())


@pytest.mark.needs("atari")
@pytest.mark.usefixtures("short_games")
@pytest.mark.parametrize(
    "sampled", choose([True], [False, True]), ids=lambda sampled: "sampled" if sampled else "argmax"
)
@pytest.mark.parametrize("name", choose(("ppo-breakout",), ("ppo-breakout", "ppo-pong", "ppo-spaceinvaders")))
def test_shared_games_are_those_that_are_played(name: str, sampled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_stored(POLICIES / f"{name}-seed0").policy
    assert isinstance(policy, PolicyNet)
    task = find_environment(name.partition("-")[2])
    plain = measure([("fp32", policy)], task, SEEDS, sampled=sampled)
    counts, play = {}, rollouts._play
    for scheme in choose(("fp16", "w4"), ("fp16", "w8", "w4")):
        shared: dict[int, End] = {}
        quantized = policy.quantize(Scheme.parse(scheme))
        beside = measure([("fp32", quantized)], task, SEEDS, [policy], sampled=sampled, shared=shared)
        assert beside == measure([("fp32", quantized)], task, SEEDS, [policy], sampled=sampled)
        played: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(rollouts, "_play", lambda *given, played=played: (played.extend(given[2]), play(*given))[1])
            assert measure([("fp32", policy)], task, SEEDS, sampled=sampled, shared=shared) == plain
        assert not set(played) & set(shared)
        counts[scheme] = len(shared)
    assert counts["fp16"] > counts["w4"] == 0


def test_one_state_in_which_they_differ_parts_episodes() -> None:
    """Of a policy that pushes left, and one that does so unless the cart rolls right: it does at half of the starts."""
    left = make_linear_policy(np.array([[0, 0, 0, 0], [0, 0, 0, 0]]))
    careful = make_linear_policy(np.array([[0, 0, 0, 0], [0, 1, 0, 0]]))
    shared: dict[int, End] = {}
    seeds, start = range(20), gymnasium.make(CARTPOLE.id)
    beside = roll_out(left, CARTPOLE, seeds, reference=careful, shared=shared)
    alone = roll_out(careful, CARTPOLE, seeds)
    ends = map(End, alone.starts, alone.returns.tolist(), alone.lengths.tolist())
    assert shared.items() <= dict(zip(seeds, ends, strict=True)).items()
    assert set(shared) == {seed for seed in seeds if start.reset(seed=seed)[0][1] <= 0}
    assert 0 < len(shared) < len(seeds)
    assert beside.agreement is not None
    assert beside.agreement < 1


def test_actions_that_are_nearly_alike_are_not_the_same() -> None:
    """Continuous actions agree within a hundredth of their range, and part all the same."""
    pendulum = Environment("pendulum", "Pendulum-v1")
    policy, near = (make_linear_policy(np.array([[0.0, 1.0, gain]]), (-2, 2)) for gain in (-0.7, -0.7001))
    shared: dict[int, End] = {}
    assert roll_out(policy, pendulum, range(3), reference=near, shared=shared).agreement > 0.99
    assert shared == {}
