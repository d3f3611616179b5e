"""What a scheme keeps is logged while a model trains, and training does not notice."""

import sys

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import A2C, SAC
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import quarl_bench
from quarl_bench.checking.callback import QuantizationCallback
from quarl_bench.checking.subject import Subject
from quarl_bench.errors import MissingExtra, PolicyError, QuantizationError, SpecError

STEPS = 120


class Kept(KVWriter):
    """What TensorBoard would get: every dump, without what is excluded for it."""

    def __init__(self):
        self.dumps = []

    def write(self, key_values, key_excluded, step=0):
        seen = {k: v for k, v in key_values.items() if "tensorboard" not in (key_excluded[k] or ())}
        self.dumps.append((step, seen))

    def close(self):
        pass


def make_model(env="CartPole-v1"):
    return A2C("MlpPolicy", env, n_steps=10, device="cpu", seed=0)


def test_each_scheme_is_logged_at_every_look():
    model, kept = make_model(), Kept()
    model.set_logger(Logger(None, [kept]))
    watch = QuantizationCallback(["fp16", "int2"], every=50, episodes=3)
    model.learn(STEPS, callback=watch)
    looks = [(step, seen) for step, seen in kept.dumps if "quarl/fp32_return" in seen]
    assert [step for step, _ in looks] == [50, 100, STEPS] == [look["timesteps"] for look in watch.history]
    for (_, seen), look in zip(looks, watch.history, strict=True):
        assert {f"quarl/{name}": value for name, value in look.items() if name != "timesteps"} == {
            name: value for name, value in seen.items() if name.startswith("quarl/")
        }
        assert look["fp16_return"] == pytest.approx(look["fp32_return"] * look["fp16_keeps"])
        assert look["fp16_same_action"] > 0.99 > look["int2_same_action"] > 0


def test_seeds_are_those_that_may_choose(monkeypatch):
    seeds, play = [], Subject.play
    monkeypatch.setattr(Subject, "play", lambda self, scheme, given: seeds.extend(given) or play(self, scheme, given))
    make_model().learn(20, callback=QuantizationCallback(["w8"], episodes=2))
    assert seeds == [20_000, 20_001] * 2


def test_training_does_not_notice():
    learned = []
    for callback in (None, QuantizationCallback(["int8"], every=60, episodes=2)):
        model = make_model().learn(STEPS, callback=callback)  # which seeds everything
        learned.append([parameter.detach().numpy().copy() for parameter in model.policy.parameters()])
    assert len(callback.history) == 2
    for one, other in zip(*learned, strict=True):
        assert np.array_equal(one, other)


def test_statistics_are_those_of_the_moment():
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    model = SAC("MlpPolicy", env, learning_starts=20, policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)
    watch = QuantizationCallback(["w8"], every=60, episodes=2)
    model.learn(100, callback=watch)
    assert [look["timesteps"] for look in watch.history] == [60, 100]
    assert all(look["w8_keeps"] == pytest.approx(1.0, abs=0.1) for look in watch.history)
    assert all(look["fp32_return"] < 0 for look in watch.history)


def test_above_a_floor_that_fp32_does_not_reach_nothing_is_kept():
    watch = QuantizationCallback(["w8"], every=1_000, episodes=2, floor=500.0)
    make_model().learn(20, callback=watch)
    (look,) = watch.history
    assert "w8_return" in look
    assert "w8_keeps" not in look


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("int8",), "give a list of names"),
        (([],), "give a list of names"),
        ((["int99"],), "int99"),
        ((["int8"], 0), "every 0: a whole number above 0"),
        ((["int8"], 2.5), "every 2.5: a whole number above 0"),
    ],
)
def test_wrong_arguments_are_refused_before_training(arguments, message):
    with pytest.raises(SpecError, match=message):
        QuantizationCallback(*arguments)


def test_what_has_no_form_is_refused_when_training_begins():
    with pytest.raises(QuantizationError, match="trained"):
        make_model().learn(20, callback=QuantizationCallback(["qat8"]))
    with pytest.raises(PolicyError, match="cannot play"):
        make_model().learn(20, callback=QuantizationCallback(["int8"], env="acrobot"))


def test_without_stable_baselines3_it_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.callbacks", None)
    monkeypatch.delitem(sys.modules, "quarl_bench.checking.callback")
    monkeypatch.delitem(vars(quarl_bench), "QuantizationCallback", raising=False)
    with pytest.raises(MissingExtra, match="QuantizationCallback needs an extra"):
        quarl_bench.QuantizationCallback  # noqa: B018
    assert "QuantizationCallback" not in dir(quarl_bench)
    assert "QuantizationCallback" not in quarl_bench.__all__
