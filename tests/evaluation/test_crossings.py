"""Games that meet are played once, and each comes to what it comes to alone."""

from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.environments.atari import games as atari
from quarl_bench.environments.atari.games import SKIP, Game, GamePool, count_noops
from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.batches import games
from quarl_bench.evaluation.batches.crossings import Crossings, Leg
from quarl_bench.evaluation.batches.games import GameEpisodes
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.quantization.scheme import Scheme
from tests.support.places import POLICIES
from tests.support.sizes import choose

SEEDS = (10_000, 10_001, 10_002, 10_003, 10_009)  # 16, 20, 4, 9 and 9 no-ops
PLAYED = ("dqn-beamrider", "ppo-breakout", "ppo-mspacman", "ppo-pong", "ppo-qbert", "ppo-seaquest", "ppo-spaceinvaders")


@pytest.mark.needs("atari")
@pytest.mark.parametrize(
    "name, patience",
    choose([("ppo-pong", None), ("ppo-qbert", 100)], [(name, most) for name in PLAYED for most in (None, 100)]),
)
def test_games_that_meet_come_to_what_each_comes_to_alone(name, patience, monkeypatch):
    monkeypatch.setattr(atari, "FRAME_LIMIT", choose(1200, 20_000))
    monkeypatch.setattr(games, "GAMES", GamePool())
    policy = load_stored(POLICIES / f"{name}-seed0").policy
    assert isinstance(policy, PolicyNet)
    task = replace(find_environment(name.partition("-")[2]), patience=patience)
    coarse, counts, step = policy.quantize(Scheme.parse("w4")), [], GameEpisodes.step
    monkeypatch.setattr(GameEpisodes, "step", lambda *given: (counts.append(len(given[1])), step(*given))[1])
    together = roll_out(coarse, task, SEEDS, reference=policy)
    played = sum(counts)
    alone = [roll_out(coarse, task, [seed], reference=policy) for seed in SEEDS]
    assert together.returns.tolist() == [one.returns[0] for one in alone]
    assert together.lengths.tolist() == [one.lengths[0] for one in alone]
    distinct = {count_noops(seed): one.lengths[0] for seed, one in zip(SEEDS, alone, strict=True)}
    if name != "ppo-breakout":  # which counts its frames where its own program sees them
        assert played < 0.8 * sum(distinct.values())
    agreed = np.average([one.agreement for one in alone[:-1]], weights=together.lengths[:-1])
    assert together.agreement == pytest.approx(agreed, abs=0.05)


@pytest.mark.needs("atari")
@pytest.mark.parametrize("name", choose(("Pong",), ("BeamRider", "MsPacman", "Pong", "Qbert", "Seaquest")))
def test_states_of_one_name_have_one_future(name):
    """Whatever is done in both from there on."""
    pair = [Game(f"{name}NoFrameskip-v4") for _ in range(2)]
    for game, noops in zip(pair, (4, 4 + SKIP), strict=True):
        game.begin_game(noops)
    pair[0].step(0)
    rng, names = np.random.default_rng(0), []
    for _ in range(600):
        names.append([game.name_state() for game in pair])
        action = int(rng.integers(len(pair[0].actions)))
        (seen, *rest), (other, *others) = [game.step(action) for game in pair]
        if names[-1][0] is not None and names[-1][0] == names[-1][1]:
            assert rest == others
            assert np.array_equal(seen, other)
        if rest[1]:
            _, _, over = pair[0].begin_life(4)
            pair[1].begin_life(4 + SKIP)
            if over:
                break
    assert any(first is not None and first == second for first, second in names)
    assert sum(first is None for first, _ in names) > len(names) / 2


def test_the_rest_of_an_episode_may_be_that_of_a_third():
    """The first comes to where the second was, and the second to where the third was."""
    states = {(0, 1): b"a", (1, 1): b"b", (2, 1): b"c", (0, 2): b"b", (2, 2): b"d", (1, 3): b"c", (2, 3): b"c"}
    now = 0
    crossings = Crossings(lambda episode: states.get((episode, now)), 3)  # and a fourth, whose states have no names
    active, ends, returns, earned = np.arange(4), {}, np.zeros(4), np.arange(1.0, 5.0)
    while len(active):
        now += 1
        returns[active] = earned[active]
        done = crossings.end(active, active + now == 6, now, returns[active])
        ends |= dict.fromkeys(active[done].tolist(), now)
        active, earned = active[~done], 10 * earned
    assert ends == {0: 2, 1: 3, 2: 4, 3: 3}
    assert [*crossings.list_rests()] == [(0, [Leg(1, 1, 2.0), Leg(2, 1, 3.0)]), (1, [Leg(2, 1, 3.0)])]
    assert returns.tolist() == [10.0, 200.0, 3000.0, 400.0]
    whole, lengths = crossings.complete(returns, np.array([*map(ends.get, range(4))]))
    assert whole.tolist() == [10 + 198 + 2997, 200 + 2997, 3000, 400]
    assert lengths.tolist() == [2 + 2 + 3, 3 + 3, 4, 3]
