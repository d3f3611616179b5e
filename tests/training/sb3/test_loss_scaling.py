"""Half precision in hidden layers of perceptrons, and loss scaling that leaves no trace but in what would underflow."""

import argparse
import copy
import io
import signal
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.dqn.policies import DQNPolicy

from quarl_bench.cli import main
from quarl_bench.cli.commands.training.train import find_origin
from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import QuarlError, SpecError
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.training.recipes import Recipe, find_recipe
from quarl_bench.training.sb3.loss_scaling import (
    GROWTH_INTERVAL,
    INITIAL_SCALE,
    SMALLEST_SCALE,
    LossScale,
    ScaledOptimizer,
)
from quarl_bench.training.sb3.mixed_precision import TYPES, HalfRegion, MixedSequential
from quarl_bench.training.sb3.models import load_model, make_model
from quarl_bench.training.sb3.vector import make_vector
from tests.support.mixed_precision import SETTINGS, make_images

EPS = {"bf16": 2.0**-7, "fp16": 2.0**-10}
CARTPOLE = find_environment("cartpole")
everywhere = pytest.mark.parametrize("algo", SETTINGS)
halves = pytest.mark.parametrize("precision", EPS)


def make_recipe(algo: str, precision: str) -> Recipe:
    return Recipe(algo, "cartpole", "a test", 64, 1, SETTINGS[algo], precision=precision)


def make(algo: str, precision: str, seed: int = 1) -> Any:
    return make_model(make_recipe(algo, precision), make_vector(CARTPOLE, 1, 0), seed)


def find_loss(policy: Any) -> torch.Tensor:
    """A loss that reaches every parameter."""
    states = torch.from_numpy(np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32))
    if isinstance(policy, DQNPolicy):
        return policy.q_net(states).square().mean()
    values, log_probabilities, entropy = policy.evaluate_actions(states, torch.arange(32) % 2)
    return values.square().mean() - log_probabilities.mean() - entropy.mean()


def list_gradients(policy: Any) -> dict[str, torch.Tensor]:
    policy.zero_grad()
    find_loss(policy).backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


@everywhere
@halves
def test_only_hidden_layers_are_rounded(algo: str, precision: str) -> None:
    mixed, plain = make(algo, precision), make(algo, "fp32")
    assert {k: v.shape for k, v in mixed.policy.state_dict().items()} == {
        k: v.shape for k, v in plain.policy.state_dict().items()
    }
    assert all(map(torch.equal, mixed.policy.state_dict().values(), plain.policy.state_dict().values()))
    regions = {name: part for name, part in mixed.policy.named_modules() if isinstance(part, MixedSequential)}
    assert [region.dtype for region in regions.values()] == [TYPES[precision]] * 2
    inputs = torch.randn(64, 4)
    for name, region in regions.items():
        with torch.no_grad():
            found, expected = region(inputs), plain.policy.get_submodule(name)(inputs)
        assert found.dtype == torch.float32
        error = float((found - expected).norm() / expected.norm())
        assert EPS[precision] / 32 < error < 2 * EPS[precision]


@everywhere
@halves
def test_gradients_are_those_of_fp32_but_for_rounding(algo: str, precision: str) -> None:
    found, expected = (list_gradients(make(algo, which).policy) for which in (precision, "fp32"))
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert gradient.dtype == torch.float32
        assert torch.nn.functional.cosine_similarity(gradient.flatten(), expected[name].flatten(), dim=0) > 0.99, name
        assert float(gradient.norm() / expected[name].norm()) == pytest.approx(1, abs=0.05), name


def test_a_scale_saves_gradients_that_underflow() -> None:
    found = {}
    for value in (1.0, INITIAL_SCALE):
        model = make("dqn", "fp16")
        model.policy.optimizer.scale.value = value
        (1e-8 * find_loss(model.policy)).backward()
        found[value] = float(model.q_net.q_net[0].weight.grad.norm())
    assert found[1.0] == 0
    assert found[INITIAL_SCALE] > 0


@everywhere
@halves
def test_what_is_learned_survives_save_load_and_copy(algo: str, precision: str) -> None:
    model = make(algo, precision)
    if precision == "fp16":
        model.policy.optimizer.scale.value = 512.0
    copied = copy.deepcopy(model.policy)
    weights = [parameter.clone() for parameter in copied.parameters()]
    stream = io.BytesIO()
    model.save(stream)
    stream.seek(0)
    loaded = load_model(make_recipe(algo, precision), stream, make_vector(CARTPOLE, 1, 0))
    assert isinstance(loaded.policy.optimizer, ScaledOptimizer) is (precision == "fp16")
    gradients = list_gradients(model.policy)
    for other in (loaded.policy, copied):
        for name, gradient in list_gradients(other).items():
            torch.testing.assert_close(gradient, gradients[name])
    if precision == "fp16":
        assert loaded.policy.optimizer.scale.value == copied.optimizer.scale.value == 512.0
        assert copied.optimizer.scale is not model.policy.optimizer.scale
        assert {region.scale for region in copied.modules() if isinstance(region, HalfRegion)} == {
            copied.optimizer.scale
        }
    loaded.learn(32)
    assert all(map(torch.equal, weights, copied.parameters()))
    assert not all(map(torch.equal, weights, loaded.policy.parameters()))
    policy = extract(loaded)
    states = np.random.default_rng(1).normal(size=(200, 4)).astype(np.float32)
    agreed = (policy.act(states) == loaded.predict(states, deterministic=True)[0]).mean()
    assert agreed > 0.9


@everywhere
def test_images_train_in_fp16(algo: str) -> None:
    recipe = Recipe(algo, "pong", "a test", 64, 1, SETTINGS[algo], policy="CnnPolicy", precision="fp16")
    model: Any = make_model(recipe, make_images(), seed=1)
    model.learn(24)
    assert {parameter.dtype for parameter in model.policy.parameters()} == {torch.float32}
    assert all(parameter.isfinite().all() for parameter in model.policy.parameters())


@everywhere
def test_a_step_with_infinite_gradients_is_skipped(algo: str) -> None:
    model = make(algo, "fp16")
    before = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    for parameter in model.policy.parameters():
        parameter.grad = torch.full_like(parameter, torch.inf)
    model.policy.optimizer.step()
    assert all(map(torch.equal, before.values(), model.policy.state_dict().values()))
    assert model.policy.optimizer.scale.value == INITIAL_SCALE / 2
    list_gradients(model.policy)
    model.policy.optimizer.step()
    assert not all(map(torch.equal, before.values(), model.policy.state_dict().values()))


@given(st.lists(st.booleans(), max_size=20))
def test_the_scale_is_a_power_of_two_between_failures(steps: list[bool]) -> None:
    scale = LossScale()
    for finite in steps:
        scale.adapt(finite=finite)
    assert scale.value == INITIAL_SCALE / 2 ** steps.count(False)
    for _ in range(GROWTH_INTERVAL):
        scale.adapt(finite=True)
    assert scale.value == 2 * INITIAL_SCALE / 2 ** steps.count(False)


def test_a_forward_pass_that_overflows_ends_in_one_line() -> None:
    scale = LossScale()
    scale.value = SMALLEST_SCALE
    with pytest.raises(QuarlError, match="train with --precision bf16"):
        scale.adapt(finite=False)


@pytest.mark.parametrize(
    "algo, environment, origin, line",
    [
        ("sac", "hopperv4", "bf16", "is for recipes of a2c, dqn, ppo"),
        ("ddpg", "pendulum", "fp16", "is for recipes of a2c, dqn, ppo"),
        ("ppo", "pong", "bf16", "is the recipe's own; leave it out"),
        ("dqn", "cartpole", "fp32", "is the recipe's own; leave it out"),
    ],
)
def test_what_has_no_arm_is_one_line(algo: str, environment: str, origin: str, line: str) -> None:
    with pytest.raises(SpecError, match=line):
        find_recipe(algo, environment, origin)


def test_a_precision_and_a_scheme_are_two_arms() -> None:
    with pytest.raises(SpecError, match="own precision"):
        find_recipe("dqn", "cartpole", "bf16", "qat8")


def test_an_arm_is_the_recipe_in_another_precision() -> None:
    plain, arm = find_recipe("dqn", "cartpole"), find_recipe("dqn", "cartpole", "bf16")
    assert (arm.precision, arm.published, arm.hyperparameters) == ("bf16", None, plain.hyperparameters)
    assert arm.sha256 != plain.sha256
    assert find_recipe("dqn", "pong", "fp32").precision == "fp32"


@pytest.mark.parametrize(
    "arguments, line",
    [
        (("dqn", "cartpole", "--precision", "bf16", "--origin", "control"), "are two arms; pass one of them"),
        (("dqn", "cartpole", "--precision", "int8"), "precision 'int8' is unknown; known are fp32, bf16, fp16"),
        (("sac", "hopperv4", "--precision", "fp16"), "is for recipes of a2c, dqn, ppo"),
        (("dqn", "cartpole", "--precision", "bf16", "--scheme", "qat8"), "own precision, not in bf16"),
        (("dqn", "cartpole", "--origin", "bf16", "--output", "OUT"), "was made with another recipe"),
    ],
)
def test_bad_input_ends_in_one_line(
    arguments: tuple[str, ...], line: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "out.checkpoint"
    checkpoint.mkdir()
    (checkpoint / "state.json").write_text('{"recipe": "of fp32", "curve": []}')
    before = signal.getsignal(signal.SIGTERM)
    code = main(["train", *(str(tmp_path / "out") if a == "OUT" else a for a in arguments), "--resume"])
    signal.signal(signal.SIGTERM, before)
    lines = capsys.readouterr().err.splitlines()
    errors = [said for said in lines if not said.startswith("note: this processor has no bf16")]
    assert code == 2
    assert len(errors) == 1
    assert line in errors[0]


@pytest.mark.parametrize("precision, expected", [("bf16", ""), ("fp32", "fp32"), ("fp16", "fp16"), (None, "control")])
def test_a_precision_is_the_recipe_or_an_arm(precision: str | None, expected: str) -> None:
    origin = "control" if precision is None else ""
    options = argparse.Namespace(algo="dqn", environment="pong", precision=precision, origin=origin)
    assert find_origin(options) == expected
