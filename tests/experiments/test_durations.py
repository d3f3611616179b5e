"""How long a training takes: as recorded, or by the pace of like ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import StoreError
from quarl_bench.experiments.durations import RECORDED, estimate_cost, list_seeds, read_name, read_trainings
from quarl_bench.spec import PolicySpec
from quarl_bench.training.recipes import find_recipe

PARTS = st.sampled_from(("ppo", "dqn")), st.sampled_from(("cartpole", "pong")), st.integers(0, 99)


@given(*PARTS, st.sampled_from(("", "control", "lqcch16")), st.sampled_from(("", "qat4", "i6c2o8h16")))
def test_names_are_read_as_they_are_written(algo, environment, seed, origin, scheme):
    spec = PolicySpec(algo, environment, seed, origin, scheme)
    assert read_name(spec.name) == spec


@pytest.mark.parametrize("name", ["ppo-cartpole", "ppo-cartpole-seedx", "ppo-cartpole-a-b-seed0"])
def test_other_names(name):
    with pytest.raises(ValueError, match=r"invalid literal|two origins|unpack"):
        read_name(name)


@pytest.fixture
def write(tmp_path):
    """Keep a policy of that name; returns all that are kept."""

    def write(name, steps=1000, seconds=None):
        folder = tmp_path / name
        folder.mkdir()
        run = {} if seconds is None else {"run": {"seconds": seconds}}
        (folder / "manifest.json").write_text(json.dumps({"recipe": {"timesteps": steps}} | run))
        return read_trainings(tmp_path)

    return write


def test_the_likest_recorded_training_tells(write):
    spec = PolicySpec("dqn", "acrobot", 0, "", "qat4")
    steps = find_recipe("dqn", "acrobot").timesteps

    found = write("a2c-acrobot-seed0", 1000, 3600)
    assert estimate_cost(found, spec).hours is None  # another algorithm says nothing
    assert "no training of dqn" in estimate_cost(found, spec).basis

    found = write("dqn-pong-seed0", 1000, 7200)
    assert estimate_cost(found, spec).hours is None  # nor do images
    found = write("dqn-cartpole-seed0", 1000, 36)
    assert estimate_cost(found, spec).hours == pytest.approx(steps / 1000 * 36 / 3600)
    assert estimate_cost(found, spec).basis == "estimated from dqn on other tasks"

    found = write("dqn-acrobot-seed0", 2000, 720)
    assert estimate_cost(found, spec).basis == "estimated from other trainings of dqn acrobot"
    assert estimate_cost(found, spec).steps == 2000  # as many as fp32, with which it is compared
    found = write("dqn-acrobot-qat4-seed1", 2000, 1440)
    found = write("dqn-acrobot-qat4-seed5", 2000, 2160)
    cost = estimate_cost(found, spec)
    assert (cost.steps, cost.hours, cost.basis) == (2000, pytest.approx(0.5), RECORDED)
    assert list_seeds(found, spec) == (1, 5)


def test_what_has_no_recipe_has_no_cost():
    cost = estimate_cost((), PolicySpec("dqn", "pendulum", 0))
    assert (cost.steps, cost.hours, cost.basis) == (None, None, "no recipe")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"recipe": {"timesteps": "many"}}', '{"recipe": {"timesteps": 1}, "run": 7}']
)
def test_a_damaged_manifest_is_named(tmp_path, text):
    folder = tmp_path / "ppo-cartpole-seed0"
    folder.mkdir()
    (folder / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=r"ppo-cartpole-seed0/manifest.json: no manifest"):
        read_trainings(tmp_path)
