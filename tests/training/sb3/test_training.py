"""Training by tiny recipes: what is published, what a checkpoint keeps, and how a run goes on."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stable_baselines3 as sb3

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import PolicyError, QuarlError, SpecError, StoreError
from quarl_bench.evaluation.protocol import TEST_SEEDS, VALIDATION_SEEDS
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.sources.sb3.model import install
from quarl_bench.policies.storage.fp32 import load_policy
from quarl_bench.spec import PolicySpec
from quarl_bench.system.atomic import lock_run
from quarl_bench.training import schemes as train
from quarl_bench.training.recipes import Published
from quarl_bench.training.sb3 import checkpoints
from quarl_bench.training.sb3 import run as rl_run
from quarl_bench.training.sb3.models import NOISE
from quarl_bench.training.sb3.run import TrainingOptions
from tests.support.training import (
    OFF_POLICY,
    Run,
    few_episodes,  # noqa: F401 (a fixture)
    make_recipe,
)


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Run]:
    return lambda algo="ppo", **changes: Run(tmp_path, make_recipe(algo, **changes))


def test_a_run_publishes_a_policy_and_its_account(begin: Callable[..., Run]) -> None:
    published = Published(500.0, "a table", 1.0)
    run = begin(published=published)
    stored = run.start()
    loaded = load_policy(run.folder)
    about = loaded.metadata
    assert loaded.sha256 == stored.sha256
    assert not run.checkpoint.exists()
    assert (about["algo"], about["environment"], about["seed"]) == ("ppo", "CartPole-v1", 7)
    assert about["recipe"]["sha256"] == run.recipe.sha256
    assert about["recipe"]["hyperparameters"] == run.recipe.hyperparameters
    assert about["published"] == {"mean": 500.0, "sd": 1.0, "source": "a table"}
    assert set(about["versions"]) == {"torch", "stable-baselines3", "gymnasium", "numpy", "python"}
    returns = roll_out(loaded.policy, find_environment("cartpole"), range(TEST_SEEDS, TEST_SEEDS + 6)).returns
    assert about["return"]["mean"] == returns.mean()
    assert about["return"]["sd"] == returns.std(ddof=1)
    assert [point["timesteps"] for point in about["curve"]] == [128, 256, 384, 512]


def test_the_published_policy_is_the_best_on_validation_seeds(begin: Callable[..., Run]) -> None:
    run = begin()
    run.start()
    stored = load_policy(run.folder)
    curve = stored.metadata["curve"]
    best = max(curve, key=lambda point: (point["mean"], point["timesteps"]))
    assert stored.metadata["selection"]["timesteps"] == best["timesteps"]
    seeds = range(VALIDATION_SEEDS, VALIDATION_SEEDS + 4)
    assert roll_out(stored.policy, find_environment("cartpole"), seeds).returns.mean() == best["mean"]


def test_an_earlier_policy_can_be_the_best(begin: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns as given: 3, 9, 9, 1; of equal ones the later is kept, and its weights with it."""
    given, kept = iter([3.0, 9.0, 9.0, 1.0, 5.0]), []

    def score(policy: Any, _: Any, seeds: Any, **_options: Any) -> Any:
        kept.append(policy)
        return type("Rollouts", (), {"returns": np.full(len(seeds), next(given)), "observations": None})

    monkeypatch.setattr(checkpoints, "roll_out", score)
    stored = begin().start()
    assert stored.metadata["selection"]["timesteps"] == 384
    for found, expected in zip(stored.policy.net.layers, kept[2].net.layers, strict=True):
        np.testing.assert_array_equal(found.weight, expected.weight)
    assert not np.array_equal(kept[2].net.layers[0].weight, kept[3].net.layers[0].weight)


def test_equal_seeds_train_equal_policies_and_a_finished_folder_is_replaced(begin: Callable[..., Run]) -> None:
    run = begin()
    first = run.start().sha256
    assert run.start().sha256 == first
    run.spec = PolicySpec("ppo", "cartpole", 8)
    assert run.start().sha256 != first
    assert load_policy(run.folder).metadata["seed"] == 8


def test_an_interrupted_run_publishes_nothing_and_goes_on(begin: Callable[..., Run]) -> None:
    run = begin()
    state = run.interrupt(after=4)
    steps = [point["timesteps"] for point in state["curve"]]
    assert steps == [128, 192]
    assert not run.folder.exists()
    later = run.interrupt(after=2, resume=True)
    assert later["curve"][:2] == state["curve"]
    stored = run.start(resume=True)
    assert not run.checkpoint.exists()
    curve = stored.metadata["curve"]
    assert curve[: len(later["curve"])] == later["curve"]
    steps = [point["timesteps"] for point in curve]
    assert steps == sorted(set(steps))
    assert steps[-1] == 512


def test_an_unfinished_run_is_published_as_far_as_it_came(begin: Callable[..., Run]) -> None:
    """Where it was trained is the checkpoint's to say: another machine may publish it."""
    run = begin()
    with pytest.raises(StoreError, match="no unfinished run is there"):
        run.finish()
    run.interrupt(after=4)
    state = run.state()
    state["run"]["processor"] = state["versions"]["torch"] = "elsewhere"
    (run.checkpoint / "state.json").write_text(json.dumps(state))
    kept = load_policy(run.checkpoint / "best")
    stored = run.finish()
    assert not run.checkpoint.exists()
    assert stored.sha256 == kept.sha256
    about = load_policy(run.folder).metadata
    assert (about["run"]["timesteps"], about["recipe"]["timesteps"]) == (192, 512)
    assert (about["run"]["processor"], about["versions"]["torch"]) == ("elsewhere", "elsewhere")
    assert [point["timesteps"] for point in about["curve"]] == [128, 192]
    assert about["return"]["episodes"] == 6


def test_a_quantizer_that_does_not_round_yet_is_not_published(begin: Callable[..., Run]) -> None:
    run = begin(scheme="qat8", quant_delay=400)
    run.interrupt(after=4)
    with pytest.raises(SpecError, match="qat8 rounds nothing yet; go on with --resume"):
        run.finish()
    assert run.checkpoint.exists()


def test_a_run_stopped_before_its_first_step_goes_on(begin: Callable[..., Run]) -> None:
    run = begin()
    assert [point["timesteps"] for point in run.interrupt(after=1)["curve"]] == [0]
    assert run.start(resume=True).metadata["curve"][-1]["timesteps"] == 512


def test_a_run_killed_after_its_last_step_goes_on(begin: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """All is trained and saved, nothing published."""
    run = begin()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train, "save_stored", killed)
        with pytest.raises(KeyboardInterrupt):
            run.start()
    assert run.state()["curve"][-1]["timesteps"] == 512
    assert not run.folder.exists()
    stored = run.start(resume=True)
    assert [point["timesteps"] for point in stored.metadata["curve"]] == [128, 256, 384, 512]


def test_a_checkpoint_without_resume_is_refused(begin: Callable[..., Run]) -> None:
    run = begin()
    before = run.interrupt(after=3)
    with pytest.raises(StoreError, match="holds an unfinished run; pass --resume to go on, or delete it"):
        run.start()
    assert run.state() == before


def test_a_run_that_is_under_way_is_not_called_unfinished(begin: Callable[..., Run]) -> None:
    run = begin()
    before = run.interrupt(after=3)
    with lock_run(run.checkpoint), pytest.raises(StoreError, match="is in use by another process; wait, or choose"):
        run.start()
    assert run.state() == before


def test_a_checkpoint_of_another_recipe_is_refused(begin: Callable[..., Run]) -> None:
    run = begin()
    before = run.interrupt(after=3)
    with pytest.raises(StoreError, match="made with another recipe; delete it"):
        run.start(resume=True, recipe=make_recipe(timesteps=1024))
    assert run.state() == before


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def edit_best(folder: Path) -> None:
    path = folder / "best" / "manifest.json"
    path.write_text(path.read_text().replace('"timesteps"', '"steps"'))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a state of nothing": lambda folder: (folder / "state.json").write_text("{}"),
    "a state that is no table": lambda folder: (folder / "state.json").write_text("[]"),
    "a curve that is missing": lambda folder: (folder / "state.json").write_text('{"recipe": "x", "seconds": null}'),
    "a model that was cut": lambda folder: cut(folder / "model.zip"),
    "a replay that was cut": lambda folder: cut(folder / "replay.pkl"),
    "a best policy that was cut": lambda folder: cut(folder / "best" / "policy.safetensors"),
    "a best policy without its step": edit_best,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_refused_before_it_is_trained_on(
    begin: Callable[..., Run], damage: Callable[[Path], object]
) -> None:
    run = begin("dqn")
    run.interrupt(after=3)
    damage(run.checkpoint)
    before = (run.checkpoint / "state.json").read_text()
    with pytest.raises(QuarlError):
        run.start(resume=True, should_stop=lambda: True)
    assert (run.checkpoint / "state.json").read_text() == before


def test_a_folder_in_the_place_of_a_checkpoint_is_refused_before_training(begin: Callable[..., Run]) -> None:
    run = begin()
    run.checkpoint.mkdir()
    (run.checkpoint / "notes.txt").write_text("mine")
    trained: list[int] = []
    with pytest.raises(StoreError, match=r"exists and holds no state\.json; it is left alone"):
        run.start(resume=True, should_stop=lambda: bool(trained.append(1)))
    assert not trained


def test_a_checkpoint_of_another_seed_is_refused(begin: Callable[..., Run]) -> None:
    run = begin()
    before = run.interrupt(after=3)
    run.spec = PolicySpec("ppo", "cartpole", 8)
    with pytest.raises(StoreError, match="is of seed 7; pass --seed 7, or delete it"):
        run.start(resume=True)
    assert run.state() == before


def test_a_damaged_checkpoint_is_one_line(begin: Callable[..., Run]) -> None:
    run = begin()
    run.interrupt(after=3)
    (run.checkpoint / "state.json").write_text("{")
    with pytest.raises(StoreError, match="delete it to start over"):
        run.start(resume=True)


def test_a_resumed_run_plays_other_episodes(begin: Callable[..., Run]) -> None:
    run = begin()
    run.interrupt(after=2)
    trained = rl_run.TrainingRun.start(run.spec, run.recipe, run.checkpoint, TrainingOptions(resume=True))
    models = (trained.new(), trained.load()[0], trained.load()[0])
    starts = [model.get_env().reset() for model in models]
    assert not np.array_equal(starts[0], starts[1])
    assert np.array_equal(starts[1], starts[2])


def test_resume_without_a_checkpoint_begins(begin: Callable[..., Run]) -> None:
    assert begin().start(resume=True).metadata["curve"][-1]["timesteps"] == 512


def test_off_policy_keeps_its_replay_buffer(begin: Callable[..., Run]) -> None:
    run = begin("dqn", timesteps=320, environments=1)
    state = run.interrupt(after=13)
    size = pickle.loads((run.checkpoint / "replay.pkl").read_bytes()).size()
    assert size == state["curve"][-1]["timesteps"] == 192
    later = run.interrupt(after=3, resume=True)
    buffer = pickle.loads((run.checkpoint / "replay.pkl").read_bytes())
    assert later["curve"][-1]["timesteps"] == 224
    assert (buffer.full, buffer.pos) == (True, 24)  # 224 of 200 places
    stored = run.start(resume=True)
    assert stored.metadata["curve"][-1]["timesteps"] == 320


def test_dqn_goes_on_from_its_policy_alone(begin: Callable[..., Run]) -> None:
    """From a checkpoint made small: the weights are the kept policy's, the target's too, the steps those behind it."""
    run = begin("dqn", timesteps=320, environments=1)
    state = run.interrupt(after=13)
    for large in ("model.zip", "replay.pkl"):
        (run.checkpoint / large).unlink()
    unfinished = rl_run.TrainingRun.start(run.spec, run.recipe, run.checkpoint, TrainingOptions())
    best, (model, curve) = unfinished.load_best(), unfinished.load()
    assert isinstance(model, sb3.DQN)
    expected = [array for layer in best.policy.net.layers for array in (layer.weight, layer.bias)]
    for network in (model.q_net, model.q_net_target):
        found = [parameter.detach().numpy() for parameter in network.parameters()]
        assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
    assert model.num_timesteps == best.timesteps > 0
    assert model.learning_starts == best.timesteps + OFF_POLICY["learning_starts"]
    assert curve == [point for point in state["curve"] if point["timesteps"] <= best.timesteps]
    steps = [point["timesteps"] for point in run.start(resume=True).metadata["curve"]]
    assert steps == sorted(set(steps))
    assert steps[: len(curve)] == [point["timesteps"] for point in curve]
    assert steps[-1] == 320


def test_a_policy_alone_is_too_little_for_others(begin: Callable[..., Run]) -> None:
    run = begin()
    run.interrupt(after=4)
    (run.checkpoint / "model.zip").unlink()
    with pytest.raises(StoreError, match=r"has no model\.zip, without which only DQN goes on; delete it"):
        run.start(resume=True)
    assert (run.checkpoint / "best").exists()


def test_a_policy_is_not_installed_in_another_network(begin: Callable[..., Run]) -> None:
    run = begin("dqn", timesteps=320, environments=1)
    run.interrupt(after=13)
    best = rl_run.TrainingRun.start(run.spec, run.recipe, run.checkpoint, TrainingOptions()).load_best()
    model = sb3.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [9]})
    with pytest.raises(PolicyError, match="layers are not those of the model"):
        install(best.policy, model)


@pytest.mark.parametrize("kind", ["normal", "ou"])
def test_exploration_noise_survives(begin: Callable[..., Run], kind: str) -> None:
    """And the recipe is what it was: stable-baselines3 writes into the arguments of DDPG's policy."""
    run = begin("ddpg", timesteps=320, environments=1, noise=(kind, 0.25))
    before = run.recipe.sha256
    assert run.interrupt(after=13)["recipe"] == run.recipe.sha256 == before
    noises = []
    for _ in range(2):
        model = sb3.DDPG.load(run.checkpoint / "model.zip", device="cpu")
        noises.append(model.action_noise)
        run.interrupt(after=2, resume=True)
    assert noises[0] is not noises[1]
    for noise in noises:
        assert type(noise) is NOISE[kind]
        assert noise._sigma.tolist() == [0.25]
    stored = run.start(resume=True)
    assert stored.metadata["recipe"]["noise"] == [kind, 0.25]
    assert stored.metadata["curve"][-1]["timesteps"] == 320


def test_observation_statistics_survive_and_are_published(begin: Callable[..., Run]) -> None:
    run = begin(normalize=True)
    run.interrupt(after=4)
    counts = [pickle.loads((run.checkpoint / "normalize.pkl").read_bytes()).obs_rms.count]
    run.interrupt(after=3, resume=True)
    counts.append(pickle.loads((run.checkpoint / "normalize.pkl").read_bytes()).obs_rms.count)
    assert counts[0] > 192
    assert counts[1] >= counts[0] + 128
    stored = run.start(resume=True)
    statistics = stored.policy.transform.normalization
    assert statistics is not None
    assert (statistics.variance < 1).all()
    assert (load_policy(run.folder).policy.transform.normalization.mean == statistics.mean).all()


def test_an_error_in_training_leaves_the_last_checkpoint(begin: Callable[..., Run]) -> None:
    run = begin()
    points = iter(range(100))

    def fail() -> bool:
        if next(points) == 5:
            raise RuntimeError("power cut")
        return False

    with pytest.raises(RuntimeError, match="power cut"):
        run.start(should_stop=fail)
    assert [point["timesteps"] for point in run.state()["curve"]] == [128, 256]
    assert run.start(resume=True).metadata["curve"][-1]["timesteps"] == 512


def test_no_temporary_folder_is_left(begin: Callable[..., Run]) -> None:
    run = begin()
    run.interrupt(after=3)
    run.start(resume=True)
    assert [path.name for path in run.folder.parent.iterdir()] == ["policy"]


def test_progress_is_shown_when_asked_for(begin: Callable[..., Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = begin()
    run.start(progress=True)
    assert "ppo-cartpole-seed7" in capsys.readouterr().err
    run.start()
    assert capsys.readouterr().err == ""
