"""Argmax and sampled actions in one batch are what each is alone."""

import numpy as np
import pytest

from quarl_bench.environments.atari import games as atari
from quarl_bench.environments.atari.games import GamePool
from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation import rollouts
from quarl_bench.evaluation.acting import Mixed, Remembered, Sampled, Way
from quarl_bench.evaluation.batches import games
from quarl_bench.evaluation.noise import GumbelNoise
from quarl_bench.evaluation.rollouts import Request, roll_out, roll_out_all
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.quantization.scheme import Scheme
from tests.support.fragile import make_fragile
from tests.support.places import POLICIES
from tests.support.sizes import choose
from tests.support.strategies import make_linear_policy

CARTPOLE = Environment("cartpole", "CartPole-v1")
ARGMAX, SAMPLED = Way(), Way(sampled=True)
SEEDS, MORE = (10_000, 10_001, 10_002), (10_000, 10_007)


def compare(found, expected):
    assert (found.seeds, found.starts, found.agreement) == (expected.seeds, expected.starts, expected.agreement)
    assert found.returns.tolist() == expected.returns.tolist()
    assert found.lengths.tolist() == expected.lengths.tolist()


@pytest.mark.needs("atari")
@pytest.mark.parametrize("name", choose(("ppo-breakout",), ("ppo-breakout", "ppo-pong", "a2c-breakout")))
def test_games_are_the_same_beside_games_of_the_other_way(name, monkeypatch):
    monkeypatch.setattr(atari, "FRAME_LIMIT", choose(400, 1600))
    monkeypatch.setattr(games, "GAMES", GamePool())
    policy = load_stored(POLICIES / f"{name}-seed0").policy
    assert isinstance(policy, PolicyNet)
    task, coarse = find_environment(name.partition("-")[2]), policy.quantize(Scheme.parse("w4"))
    batches, play = [], rollouts._play
    monkeypatch.setattr(rollouts, "_play", lambda *given: (batches.append(len(given[2])), play(*given))[1])
    for reference in (None, policy):
        requests = [Request(SEEDS, ARGMAX), Request(MORE, SAMPLED)]
        batches.clear()
        together = roll_out_all(coarse, task, requests, reference=reference)
        assert batches == [5]
        for request, found in zip(requests, together, strict=True):
            compare(found, roll_out(coarse, task, request.seeds, reference=reference, sampled=request.way.sampled))


def test_other_environments_are_played_one_way_after_the_other(monkeypatch):
    policy = make_linear_policy(np.array([[0, 0, 1, 0], [0, 1, 0, 0]]))
    batches, play = [], rollouts._play
    monkeypatch.setattr(rollouts, "_play", lambda *given: (batches.append(given[2]), play(*given))[1])
    argmax, sampled = roll_out_all(policy, CARTPOLE, [Request(SEEDS, ARGMAX), Request(MORE, SAMPLED)])
    assert batches == [[*SEEDS], [*MORE]]
    compare(argmax, roll_out(policy, CARTPOLE, SEEDS))
    compare(sampled, roll_out(policy, CARTPOLE, MORE, sampled=True))


def test_mixed_actions_are_those_of_each_way():
    """Also where images return, and where several steps are asked about at once."""
    policy, rng = make_fragile(), np.random.default_rng(1)
    outputs = policy.net.outputs
    mixed = Mixed(Remembered(), Sampled(GumbelNoise(SEEDS, outputs)), first=2)
    argmax, sampled = Remembered(), Sampled(GumbelNoise(SEEDS, outputs))
    waiting = []
    images = rng.normal(size=(6, *policy.net.input_shape)).astype(np.float32)
    for active in (range(5), range(5), (1, 2, 4), (0, 1), (3, 4)):
        rows = np.array(active)
        observations, few = images[rng.integers(0, 6, len(rows))], int((rows < 2).sum())
        drawn = mixed.draw(rows, observations)
        found = mixed.choose(policy, observations, drawn)
        expected = []
        if few:
            names = argmax.draw(rows[:few], observations[:few])
            expected += argmax.choose(policy, observations[:few], names).tolist()
        if few < len(rows):
            noise = sampled.draw(rows[few:] - 2, observations[few:])
            expected += sampled.choose(policy, observations[few:], noise).tolist()
        assert found.tolist() == expected
        waiting.append((observations, drawn, found))
    seen, drawn, found = map(np.concatenate, zip(*waiting, strict=True))
    assert mixed.choose(policy, seen, drawn).tolist() == found.tolist()
    other = Mixed(Remembered(), mixed.sampled, first=2)
    assert other.choose(policy, seen, drawn).tolist() == found.tolist()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sigma": -1.0}, "at least 0"),
        ({"sigma": float("nan")}, "at least 0"),
        ({"sampled": True, "sigma": 0.1}, "leave out one"),
    ],
)
def test_a_way_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(PolicyError, match=message):
        Way(**options)
