"""Masks of actions while policies play: what they forbid is never done, and what is no mask is refused in one line."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from quarl_bench import evaluate
from quarl_bench.checking.random_play import play_randomly
from quarl_bench.environments.registry import Environment
from quarl_bench.errors import SpecError
from quarl_bench.evaluation.acting import KNOWN, Remembered
from quarl_bench.evaluation.batches.episodes import SteppedEpisodes
from quarl_bench.evaluation.calibration import collect_states
from quarl_bench.evaluation.rollouts import measure, roll_out
from quarl_bench.evaluation.state_agreement import compare_states
from quarl_bench.experiments.environment_source import resolve_environment
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.masks import add_masks, read_masks
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import Policy, PolicyNet, deployable
from quarl_bench.quantization.scheme import Scheme
from tests.support.choices import ACTIONS, OBSERVED, ByInfo, ByMethod, Chooser, Masked, count_entries
from tests.support.sizes import choose
from tests.support.strategies import make_net

HEADS = {"index": HeadKind.ARGMAX, "indices": HeadKind.PARTS, "bits": HeadKind.BITS}


def make(name: str, *, masked: bool = True) -> PolicyNet:
    sizes = count_entries(ACTIONS[name])
    outputs = len(sizes) if name == "bits" else sum(sizes)
    head = ActionHead(HEADS[name], sizes=tuple(sizes) if name == "indices" else (), masked=masked)
    return PolicyNet(ObservationTransform((4,)), make_net(4, 8, outputs, seed=1), head)


def quantize(policy: PolicyNet, scheme: str, task: Environment) -> Policy:
    """In the states that it visits within its masks."""
    return deployable(policy.quantize(Scheme.parse(scheme), collect_states(policy, task, 300, 0)))


@pytest.mark.parametrize("kind", [ByMethod, ByInfo])
@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("scheme", choose(["fp32", "int4acc"], ["fp32", "w4", "int8", "int4acc"]))
def test_what_is_forbidden_is_never_done(scheme: str, name: str, kind: Any) -> None:
    """The environment refuses it; nine episodes side by side, every one with masks of its own."""
    policy, task = make(name), resolve_environment(lambda: kind(ACTIONS[name]))
    played = quantize(policy, scheme, task)
    found = roll_out(played, task, range(9), reference=policy)
    assert found.lengths.tolist() == [20] * 9
    assert found.agreement is not None
    assert found.agreement > 0.5
    drawn = roll_out(played, task, range(9), sampled=True)
    assert (drawn.returns != found.returns).any()
    alone = [roll_out(played, task, [seed], sampled=True).returns[0] for seed in range(9)]
    np.testing.assert_allclose(drawn.returns, alone)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_policy_that_knows_no_masks_plays_as_it_was_trained(name: str) -> None:
    task = resolve_environment(lambda: Chooser(ACTIONS[name]))
    expected = roll_out(make(name, masked=False), task, range(3)).returns
    np.testing.assert_array_equal(roll_out(make(name), task, range(3)).returns, expected)
    with pytest.raises(SpecError, match="is forbidden by"):
        roll_out(make(name, masked=False), resolve_environment(lambda: ByMethod(ACTIONS[name])), range(9))


@pytest.mark.parametrize("name", ACTIONS)
def test_random_play_and_states_know_masks(name: str) -> None:
    policy, task = make(name), resolve_environment(lambda: ByMethod(ACTIONS[name]))
    assert len(play_randomly(policy, task, range(10)).returns[0]) == 10
    states = collect_states(policy, task, 300, 0)
    assert isinstance(states, np.ndarray)
    masks = read_masks(states)
    assert masks is not None
    assert not masks.all()
    integers = quantize(policy, "int3", task)
    free = compare_states(policy, integers, states["observation"], "maskableppo")
    found = compare_states(policy, integers, states, "maskableppo")
    assert found.agreement > free.agreement  # where little is allowed there is little to differ in
    assert found.kl is not None
    assert free.kl is not None
    assert 0 < found.kl < free.kl


class Alike(ByMethod):
    """Every episode begins with the same observation, and a mask of its own."""

    def show(self) -> Any:
        super().show()
        return np.zeros(4, np.float32)


def test_states_that_differ_in_their_masks_alone_are_two() -> None:
    task, policy = resolve_environment(lambda: Alike(ACTIONS["index"])), make("index")
    measured = measure([("policy", policy)], task, range(12))
    assert len(set(measured.episodes)) > 1
    observations = np.zeros((6, 4), np.float32)
    masks = np.eye(6, 5, dtype=np.bool_)
    masks[5] = True
    asked, states = Remembered(), add_masks(observations, masks)
    np.testing.assert_array_equal(asked.choose(policy, states, asked.draw(np.arange(6), states)), policy.act(states))
    assert len(KNOWN[policy]) == 6


def test_a_wrapper_of_sb3_contrib_gives_masks_too() -> None:
    wrappers = pytest.importorskip("sb3_contrib.common.wrappers", reason="needs the extra contrib")
    make_env = lambda: wrappers.ActionMasker(Masked(ACTIONS["index"]), lambda env: env.masks[0])  # noqa: E731
    make_env.max_episode_steps = 20  # type: ignore[attr-defined]
    assert roll_out(make("index"), resolve_environment(make_env), range(5)).lengths.tolist() == [20] * 5


class Still(ByMethod):
    """No chance at all: its episodes are one, which illegal actions would end with an error."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=0, options=options)


def test_episodes_without_chance_are_found_out_by_allowed_actions() -> None:
    task = resolve_environment(lambda: Still(ACTIONS["indices"]))
    assert len(set(measure([("policy", make("indices"))], task, range(5)).episodes)) == 1


BROKEN: dict[str, tuple[Any, str]] = {
    "length": (lambda _: np.ones(4), "a mask has 4 entries, and there are 5 actions"),
    "everything": (lambda _: np.zeros(5), "a mask forbids every action"),
    "values": (lambda _: np.full(5, 0.5), "other values than 0 and 1"),
    "words": (lambda _: list("abcde"), "other values than 0 and 1"),
    "error": (lambda _: 1 // 0, "cannot be read.*ZeroDivisionError"),
    "sometimes": (lambda env: None if env.steps > 3 else np.ones(5), "at some steps, and none at others"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_mask_is_refused_in_one_line(name: str) -> None:
    found, said = BROKEN[name]

    class Broken(Chooser):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            return super().step(action)

        def action_masks(self) -> Any:
            return found(self)

    with pytest.raises(SpecError, match=said) as caught:
        roll_out(make("index"), resolve_environment(lambda: Broken(ACTIONS["index"])), range(2))
    assert "\n" not in str(caught.value)
    assert "seed" in str(caught.value)


def test_a_part_without_a_choice_is_named() -> None:
    class Broken(Chooser):
        def action_masks(self) -> Any:
            return [1, 1, 1, 0, 0, 1, 1, 1, 1]

    with pytest.raises(SpecError, match="forbids every action in part 1"):
        roll_out(make("indices"), resolve_environment(lambda: Broken(ACTIONS["indices"])), [0])


class Ending(ByInfo):
    """Its last observation has a mask that forbids everything, as there is nothing more to do."""

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        info["action_mask"] = np.zeros(5, np.int8)
        return observation, reward, True, truncated, info


def test_nobody_asks_for_the_mask_behind_the_end() -> None:
    task = resolve_environment(lambda: Ending(ACTIONS["index"]))
    assert roll_out(make("index"), task, range(3)).lengths.tolist() == [1, 1, 1]


def test_images_have_masks_too() -> None:
    class Pictures(Masked):
        def __init__(self) -> None:
            super().__init__(ACTIONS["index"])
            self.observation_space = spaces.Box(0, 255, (2, 9, 7), np.uint8)

        def show(self) -> Any:
            super().show()
            return self.np_random.integers(0, 256, (2, 9, 7), dtype=np.uint8)

        def action_masks(self) -> Any:
            return self.masks[0]

    net = make_net(126, 5)
    transform = ObservationTransform((2, 9, 7), image=True)
    policy = PolicyNet(transform, replace(net, input_shape=(2, 9, 7)), ActionHead(HeadKind.ARGMAX, masked=True))
    task = resolve_environment(Pictures)
    assert roll_out(policy, task, range(5), reference=policy).agreement == 1.0


def test_policies_without_masks_ask_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the method nor the info is looked at: play costs what it did."""
    monkeypatch.setattr("quarl_bench.evaluation.batches.episodes.MaskReader", None)
    task = resolve_environment(lambda: Chooser(ACTIONS["index"]))
    roll_out(make("index", masked=False), task, range(3))
    episodes = SteppedEpisodes(task, [0])
    try:
        assert episodes.reset().dtype == OBSERVED.dtype
    finally:
        episodes.close()


@pytest.mark.parametrize("started", [spaces.MultiDiscrete([3, 2, 4], start=[1, -2, 5]), spaces.MultiDiscrete([[3, 2]])])
def test_parts_that_begin_elsewhere_or_form_a_matrix(started: Any) -> None:
    """The environment refuses what is not in its space; fp32 and integers."""
    sizes = tuple(count_entries(started))
    head = ActionHead(HeadKind.PARTS, sizes=sizes)
    policy = PolicyNet(ObservationTransform((4,)), make_net(4, sum(sizes)), head)
    assert evaluate(policy, lambda: Chooser(started), episodes=2).lengths == ((20, 20),)
    matrix = spaces.MultiBinary((2, 2))
    bits = PolicyNet(ObservationTransform((4,)), make_net(4, 4), ActionHead(HeadKind.BITS))
    assert evaluate(bits, lambda: Chooser(matrix), episodes=2).lengths == ((20, 20),)
