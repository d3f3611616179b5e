"""Policies with a state in play: it begins with the episode, and belongs to it alone."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.errors import PolicyError, QuantizationError
from quarl_bench.evaluation.calibration import calibrate, collect_observations
from quarl_bench.evaluation.rollouts import measure, roll_out
from quarl_bench.evaluation.sensitivity import measure_sensitivity
from quarl_bench.evaluation.state_agreement import compare_states
from quarl_bench.policies.policy import Policy, Visited, deployable
from quarl_bench.quantization.recurrent.cells import CellKind
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import make_linear_policy, make_recurrent

CARTPOLE = Environment("cartpole", "CartPole-v1")
LSTM = make_recurrent(CellKind.LSTM, seed=3)
GRU = make_recurrent(CellKind.GRU, seed=9)


def play_alone(policy: Policy, seed: int) -> tuple[float, list[int]]:
    """Return and actions of one episode of `gymnasium.make`."""
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    state, total, done, actions = policy.initial_state(1), 0.0, False, []
    while not done:
        action, state = policy.act(observation[None], state)
        observation, reward, terminated, truncated, _ = env.step(int(action[0]))
        actions.append(int(action[0]))
        total, done = total + float(reward), terminated or truncated
    env.close()
    return total, actions


@pytest.mark.parametrize("policy", [LSTM, GRU], ids=["lstm", "gru"])
def test_a_batch_plays_what_single_episodes_play(policy: Policy) -> None:
    """Episodes end one after the other, and none takes over another's state."""
    seeds = [10_003, 7, 10_001, 3, 4]
    rollouts = roll_out(policy, CARTPOLE, seeds)
    assert rollouts.returns.tolist() == [play_alone(policy, seed)[0] for seed in seeds]
    assert len({*rollouts.returns.tolist()}) > 1
    assert roll_out(policy, CARTPOLE, seeds[::-1]).returns.tolist() == rollouts.returns.tolist()[::-1]


def test_a_state_is_forgotten_when_its_episode_ends() -> None:
    """The same seed again, played behind itself, is the same episode."""
    first, second = (roll_out(LSTM, CARTPOLE, [5, 5]).returns for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first[0] == first[1] == play_alone(LSTM, 5)[0]


def test_what_it_remembers_decides_what_it_does() -> None:
    _, actions = play_alone(LSTM, 5)
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=5)
    forgetful = []
    for action in actions:
        forgetful.append(int(LSTM.act(observation[None], LSTM.initial_state(1))[0][0]))
        observation, *_ = env.step(action)
    env.close()
    assert forgetful[0] == actions[0]
    assert forgetful != actions


def test_agreement_follows_the_states_of_both() -> None:
    """A reference is asked along the episode that another policy plays, with a state of its own."""
    same = measure([("lstm", LSTM)], CARTPOLE, range(8), [make_recurrent(CellKind.LSTM, seed=3)])
    assert same.agreement == (1.0,)
    other = measure([("lstm", LSTM)], CARTPOLE, range(8), [GRU])
    assert other.agreement is not None
    assert other.agreement[0] < 1.0


def test_equal_starts_are_equal_episodes() -> None:
    measured = measure([("lstm", LSTM)], CARTPOLE, [1, 2, 3])
    assert len(set(measured.episodes)) == 3
    assert roll_out(LSTM, CARTPOLE, [1, 1]).led_apart is False


def test_integers_are_calibrated_on_states_that_were_visited() -> None:
    visited = calibrate(LSTM, CARTPOLE)
    assert isinstance(visited, Visited)
    assert len(visited) == len(visited.state[0]) == 10_000
    assert not visited.state[0][:16].any()  # of the 16 episodes that begin
    assert visited.state[0][16:].any()
    assert collect_observations(LSTM, CARTPOLE, 50, 3).shape == (50, 4)
    integers = deployable(LSTM.quantize(Scheme.parse("int8"), visited))
    assert (integers.act(visited) == LSTM.act(visited)).mean() > 0.9
    assert compare_states(LSTM, integers, visited, "ppo").agreement > 0.9
    assert [layer.name for layer in measure_sensitivity(LSTM, 4, visited[:200])] == ["layers.0", "layers.1", "layers.2"]


@pytest.mark.parametrize(
    "options, environment, message",
    [
        ({"sampled": True}, CARTPOLE, "sampled actions: not for recurrent"),
        ({"sigma": 0.1}, CARTPOLE, "noise on the inputs: not for recurrent"),
        ({}, find_environment("pong"), "PongNoFrameskip-v4: not for recurrent"),
    ],
)
def test_what_has_no_state_to_go_by_is_refused(options: Any, environment: Environment, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        roll_out(LSTM, environment, [0], **options)


def test_stateless_policies_have_an_empty_state() -> None:
    policy = make_linear_policy(np.array([[0, 0, 0, 0], [-1, 0, 5, 0.5]]))
    assert not policy.recurrent
    assert policy.initial_state(3) == ()
    with pytest.raises(PolicyError, match="without a state"):
        policy.act(np.zeros((1, 4), np.float32), ())
    with pytest.raises(QuantizationError, match="Visited"):
        LSTM.quantize(Scheme.parse("int8"), np.zeros((1, 4), np.float32))
