"""Our own pixels: every ball can be caught, the drawing shows the state, NatureCNN of every size takes it."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.vec_env import VecTransposeImage

from quarl_bench.environments.catch import BALLS, CELLS, PIXELS, WHITE
from quarl_bench.environments.registry import find_environment, make_environment
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.training.recipes import find_recipe
from quarl_bench.training.sb3.models import make_model
from quarl_bench.training.sb3.scaled_cnn import PAPER, SizedCNN, scale_size
from quarl_bench.training.sb3.vector import make_vector

CATCH = find_environment("catchb")


def find_cells(image):
    """Columns of ball and paddle, read from the pixels alone."""
    rows, columns = np.nonzero(image[0, ::PIXELS, ::PIXELS])
    paddle = columns[rows == CELLS - 1]
    ball = columns[rows < CELLS - 1]
    return (int(ball[0]) if len(ball) else None), int(paddle[0])


class Catcher:
    """A policy that follows the ball."""

    recurrent, head = False, ActionHead(HeadKind.ARGMAX)

    def act(self, observations):
        actions = []
        for image in observations:
            ball, paddle = find_cells(image)
            actions.append(1 if ball is None else 1 + int(np.sign(ball - paddle)))
        return np.array(actions)


def test_following_the_ball_catches_every_one():
    returns = roll_out(Catcher(), CATCH, range(50)).returns
    assert (returns == BALLS).all()
    assert CATCH.cap == BALLS


def test_chance_catches_about_one_in_nine():
    rng = np.random.default_rng(0)
    acting = {
        "recurrent": False,
        "head": Catcher.head,
        "act": lambda _, observations: rng.integers(0, 3, len(observations)),
    }
    random = type("Random", (), acting)()
    rollouts = roll_out(random, CATCH, range(200))
    assert 0.8 < rollouts.returns.mean() < 1.8
    assert set(rollouts.lengths.tolist()) == {BALLS * (CELLS - 1)}


def test_it_is_an_environment_like_any_other():
    bare, limit = make_environment(CATCH)
    assert limit == BALLS * (CELLS - 1)
    check_env(bare, skip_render_check=True)
    image, _ = bare.reset(seed=3)
    assert image.shape == (1, 36, 36)
    assert image.sum() == 2 * WHITE * PIXELS**2
    assert np.array_equal(bare.reset(seed=3)[0], image)
    assert np.array_equal(bare.render()[:, :, 0], image[0])
    assert isinstance(bare.action_space, gymnasium.spaces.Discrete)


@pytest.mark.parametrize("size", PAPER)
def test_sizes_are_natures_kernels_with_other_numbers(size):
    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    sized, nature = SizedCNN(space, **scale_size(size, 8)), NatureCNN(space)
    filters, features = (number // 8 for number in PAPER[size])
    images = torch.rand(2, 4, 84, 84)
    assert sized(images).shape == (2, features)
    assert [conv.out_channels for conv in sized.cnn[::2][:3]] == [filters] * 3
    for one, other in zip(sized.cnn[::2][:3], nature.cnn[::2][:3], strict=True):
        assert (one.kernel_size, one.stride) == (other.kernel_size, other.stride)
    same = SizedCNN(space, features_dim=512, filters=64)
    assert same.linear[0].weight.shape == nature.linear[0].weight.shape


@pytest.mark.parametrize("size", PAPER)
@pytest.mark.parametrize("origin", ["", "bf16"])
def test_recipes_hold_the_sizes_and_their_policies_are_portable(size, origin):
    recipe = find_recipe("dqn", f"catch{size}", origin)
    kwargs = recipe.hyperparameters["policy_kwargs"]
    assert kwargs["features_extractor_kwargs"] == scale_size(size, 8)
    model = make_model(recipe, make_vector(find_environment(f"catch{size}"), recipe.environments, 0), seed=0)
    assert not isinstance(model.get_env(), VecTransposeImage)
    policy = extract(model)
    images = np.stack([make_environment(CATCH)[0].reset(seed=seed)[0] for seed in range(20)])
    agreed = (policy.act(images) == model.predict(images, deterministic=True)[0]).mean()
    assert agreed >= (0.8 if origin else 1.0)
