"""Many seeds in one process: each learns what it would have learnt alone, and a killed run goes on."""

import json
import shutil
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from quarl_bench.cli import main
from quarl_bench.errors import SpecError, StoreError
from quarl_bench.evaluation.protocol import TEST_SEEDS
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.policies.storage.integers import StoredIntegers
from quarl_bench.quantization.learned import WARM_UP
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.system.interruption import Interrupted
from quarl_bench.training.multi_seed import train
from quarl_bench.training.multi_seed.agents import AGENTS
from quarl_bench.training.multi_seed.recipe import find_recipe, list_options, name_policy
from quarl_bench.training.multi_seed.replay import SeedReplay
from quarl_bench.training.multi_seed.running_statistics import RunningStatistics
from quarl_bench.training.sb3 import run as rl_run
from quarl_bench.training.sb3.run import TrainingOptions
from tests.support.forks import Fork, run_python
from tests.support.sizes import choose, exhaustive

UPDATES, TOLERANCE = choose(60, 200), 1e-6  # of parameters, which are of order one
POINTS, STATES = choose(4, 20), choose(1_000, 10_000)  # of a learning curve, and that an exported policy is compared on
OBSERVATION, ACTION, ROWS = 11, 3, 400
SMALL = {"width": 32, "batch": 32}

KILLED = """
from pathlib import Path
from quarl_bench.training.multi_seed.recipe import find_recipe
from quarl_bench.training.multi_seed.train import train_seeds
from quarl_bench.training.sb3.run import TrainingOptions
recipe = find_recipe("sac").quantize("i8c3o8").override(timesteps=400, learning_starts=50, width=16, batch=16)
train_seeds(recipe, "pendulum", [0, 1], Path("policies"), TrainingOptions(resume=True))
"""


def make_recipe(algo="sac", scheme="fp32", **changes):
    return find_recipe(algo).quantize(scheme).override(**{**SMALL, **changes})


def fill_replay(folder, seeds):
    """Transitions that depend on the seed alone; a reward is the first number of its observation."""
    replay = SeedReplay(folder, len(seeds), ROWS, OBSERVATION, ACTION)
    streams = [np.random.default_rng([seed, 9]) for seed in seeds]
    for _ in range(ROWS):
        seen = [stream.normal(size=OBSERVATION) for stream in streams]
        rows = [
            (x, s.uniform(-1, 1, ACTION), x[0], s.random() < 0.05, s.normal(size=OBSERVATION))
            for x, s in zip(seen, streams, strict=True)
        ]
        replay.add(*(np.array(part) for part in zip(*rows, strict=True)))
    return replay


def learn(folder, algo, scheme, seeds, **size):
    """Every parameter of agents that learned `UPDATES` times; the statistics move on all the while."""
    low = -np.ones(ACTION, dtype=np.float32)
    agent = AGENTS[algo](make_recipe(algo, scheme, **size), seeds, low, -low, OBSERVATION)
    replay, sampling = fill_replay(folder, seeds), [np.random.default_rng(seed) for seed in seeds]
    for step in range(UPDATES):
        agent.statistics.update(np.stack([np.random.default_rng([s, step]).normal(size=OBSERVATION) for s in seeds]))
        agent.update(replay.sample(sampling, agent.recipe.batch))
    return agent


def list_parameters(agent, index):
    for name, part in agent.parts().items():
        if isinstance(part, torch.nn.Module):
            for key, parameter in part.state_dict().items():
                if parameter.ndim:
                    yield f"{name}.{key}", parameter.unflatten(0, (len(agent.seeds), -1))[index]


ALONE = {
    "sac": ("sac", "fp32", SMALL),
    "sac-i6c2o8": ("sac", "i6c2o8", SMALL),
    "ddpg": ("ddpg", "fp32", SMALL),
    "ddpg-i8c3o8": ("ddpg", "i8c3o8", SMALL),
    "whole": ("sac", "i6c2o8", {"width": 256, "batch": 256}),  # the recipe's
}


@pytest.mark.parametrize("case", choose(["sac-i6c2o8", "ddpg"], list(ALONE)))
def test_a_seed_in_a_batch_learns_what_it_learns_alone(tmp_path, case):
    (algo, scheme, size), seeds = ALONE[case], [4, 0, 7]
    together, alone = (
        learn(tmp_path / name, algo, scheme, some, **size) for name, some in (("a", seeds), ("b", seeds[2:]))
    )
    worst = 0.0
    for (name, ours), (_, theirs) in zip(list_parameters(together, 2), list_parameters(alone, 0), strict=True):
        worst = max(worst, float((ours - theirs).abs().max()))
        assert worst <= TOLERANCE, name
    other = next(iter(dict(list_parameters(together, 0)).values()))
    assert float((other - next(iter(dict(list_parameters(alone, 0)).values()))).abs().max()) > 1e-2  # seeds do differ


def test_learning_lowers_the_critics_error_and_bf16_follows(tmp_path):
    """On a fixed set of transitions, half precision learns as fp32 does."""
    errors = {}
    for precision in ("fp32", "bf16"):
        low = -np.ones(ACTION, dtype=np.float32)
        agent = AGENTS["ddpg"](make_recipe("ddpg", precision=precision, gamma=0.0), [0], low, -low, OBSERVATION)
        replay, sampling = fill_replay(tmp_path / precision, [0]), [np.random.default_rng(0)]
        losses = []
        for _ in range(400):
            batch = replay.sample(sampling, 64)
            with torch.no_grad():
                value = agent.critics(agent.statistics.normalize(batch.observations), batch.actions)[:, 0]
                losses.append(float((value - batch.rewards[..., 0]).square().mean()))
            agent.update(batch)
        errors[precision] = np.mean(losses[:20]), np.mean(losses[-20:])
    assert errors["fp32"][1] < 0.2 * errors["fp32"][0]
    assert errors["bf16"][1] < 0.2 * errors["bf16"][0]


def test_statistics_are_those_of_everything_seen():
    seen = np.random.default_rng(0).normal(3, 2, (500, 2, 4))
    statistics = RunningStatistics(2, 4, active=True)
    for row in seen:
        statistics.update(row)
    np.testing.assert_allclose(statistics.mean, seen.mean(0))
    np.testing.assert_allclose(statistics.variance, seen.var(0))
    frozen = statistics.export(1)
    raw = seen[:, 1].astype(np.float32)
    ours = statistics.normalize(torch.from_numpy(np.stack([raw, raw])))[1].numpy()
    np.testing.assert_allclose(ours, frozen.apply(raw), atol=1e-5)
    assert frozen.apply(np.full((1, 4), 1e6)).max() == 10.0
    again = RunningStatistics(2, 4, active=True)
    again.restore(statistics.state())
    assert np.array_equal(again.variance, statistics.variance)


def test_a_replay_is_a_ring_that_outlives_its_process(tmp_path):
    replay = SeedReplay(tmp_path, 1, 3, 1, 1)
    for value in range(5):
        replay.add(*(np.full((1, n), value) for n in (1, 1)), np.array([value]), np.array([0]), np.full((1, 1), value))
    replay.flush()
    again = SeedReplay(tmp_path, 1, 3, 1, 1, resume=True)
    again.count = replay.count
    batch = again.sample([np.random.default_rng(0)], 50)
    assert set(batch.rewards.flatten().tolist()) == {2.0, 3.0, 4.0}
    assert torch.equal(batch.observations, batch.next_observations)


def test_transitions_that_do_not_fit_are_refused_before_they_kill(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=4 * 100 * 8)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    SeedReplay(tmp_path / "fits", 1, 100, 2, 2)  # 2 + 2 + 2 + 2 numbers a row
    with pytest.raises(StoreError, match="GB are free; choose another place"):
        SeedReplay(tmp_path / "does not", 1, 101, 2, 2)


def test_scales_are_watched_first_and_learned_then(tmp_path):
    low = -np.ones(ACTION, dtype=np.float32)
    agent = AGENTS["sac"](make_recipe("sac", "i8c3o8"), [0], low, -low, OBSERVATION)
    replay, sampling = fill_replay(tmp_path, [0]), [np.random.default_rng(0)]
    while agent.actor.scales[0].observes:
        agent.update(replay.sample(sampling, 32))
        assert all(scale.scale.grad is None for scale in agent.actor.scales)
    assert int(agent.actor.scales[0].seen) == WARM_UP
    scales = [scale.scale.clone() for scale in agent.actor.scales]
    for _ in range(2):
        agent.update(replay.sample(sampling, 32))
    assert all(not torch.equal(scale.scale, then) for scale, then in zip(agent.actor.scales, scales, strict=True))


@pytest.fixture
def few_episodes(monkeypatch):
    monkeypatch.setattr(train, "CURVE_EPISODES", 2)
    monkeypatch.setattr(train, "CURVE_POINTS", POINTS)
    monkeypatch.setattr(train, "EXPORT_STATES", STATES)
    monkeypatch.setattr(rl_run, "SCORE_EPISODES", 3)


def start(folder, recipe, seeds=(0, 1), **options):
    return train.train_seeds(recipe, "pendulum", seeds, folder, TrainingOptions(**options))


def test_a_run_publishes_every_seed_as_an_ordinary_policy(tmp_path, few_episodes):
    recipe = make_recipe(scheme="i6c2o8h8", timesteps=160, learning_starts=40)
    trained = start(tmp_path, recipe, (5, 2))
    assert [spec.name for spec, _ in trained] == [f"sac-pendulum-i6c2o8h8-lqcc-seed{seed}" for seed in (5, 2)]
    loaded = load_stored(tmp_path / trained[1][0].name)
    assert isinstance(loaded, StoredIntegers)
    assert isinstance(loaded.policy, IntegerPolicy)
    assert loaded.policy.net.requantization is Requantization.THRESHOLDS
    assert loaded.policy.net.layers[0].weight.shape == (8, 3)
    about = loaded.metadata
    assert (about["seed"], about["recipe"]["scheme"], about["return"]["episodes"]) == (2, "i6c2o8h8", 3)
    assert [point["timesteps"] for point in about["curve"]] == list(range(160 // POINTS, 161, 160 // POINTS))
    assert about["return"]["first_environment_seed"] == TEST_SEEDS
    assert not list(tmp_path.glob("*.checkpoint"))
    assert about["clipped"] == {"clipped": 0, "seen": 3 * 200 * 3, "share": 0.0}
    assert about["export"] == {"states": STATES, "differ": 0}, "the live net and what is stored compute the same"


@exhaustive
def test_a_seed_of_a_run_is_what_it_is_alone(tmp_path, few_episodes):
    recipe = make_recipe(scheme="i6c2o8h8", timesteps=160, learning_starts=40)
    among = start(tmp_path, recipe, (5, 2))[1][1]
    alone = start(tmp_path / "alone", recipe, (2,))[0][1]
    for ours, theirs in zip(alone.policy.net.layers, among.policy.net.layers, strict=True):
        assert np.array_equal(ours.weight, theirs.weight)
    for ours, theirs in zip(alone.metadata["curve"], among.metadata["curve"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)  # scales may differ in their last bit


def test_fp32_and_raw_observations(tmp_path, few_episodes):
    recipe = make_recipe("ddpg", timesteps=120, learning_starts=40, normalize=False, actor_width=8)
    ((spec, stored),) = start(tmp_path, recipe, (1,))
    assert spec.name == "ddpg-pendulum-lqccrawh8-seed1"
    assert isinstance(stored, StoredPolicy)
    assert stored.policy.transform.normalization is None
    assert [layer.weight.shape for layer in stored.policy.net.layers] == [(8, 3), (8, 8), (1, 8)]


def test_no_arm_takes_the_name_of_another():
    changes = ({}, {"normalize": False}, {"precision": "bf16"}, {"actor_width": 16, "precision": "bf16"})
    names = [name_policy(make_recipe(width=256, **change), "hopperv4", 0).name for change in changes]
    origins = ("lqcc", "lqccraw", "lqccbf16", "lqccbf16h16")
    assert names == [f"sac-hopperv4-{origin}-seed0" for origin in origins]
    quantized = make_recipe("ddpg", "i6c2o8h16", normalize=False)
    assert name_policy(quantized, "hopperv4", 3).name == "ddpg-hopperv4-i6c2o8h16-lqccraw-seed3"


def test_a_checkpoint_brings_everything_back(tmp_path, few_episodes, monkeypatch):
    monkeypatch.setattr(train, "STEPS_BETWEEN_CHECKS", 35)
    recipe = make_recipe(scheme="i8c3o8", timesteps=160, learning_starts=40)
    seen = []
    save = train.TrainingLoop.save
    monkeypatch.setattr(train.TrainingLoop, "save", lambda loop: (save(loop), seen.append(loop)))
    with pytest.raises(Interrupted, match="70 of 160"):
        start(tmp_path, recipe, should_stop=lambda: bool(seen) and seen[-1].steps > 64)
    with pytest.raises(StoreError, match="--resume"):
        start(tmp_path, recipe)
    contents = {path: path.read_bytes() for path in tmp_path.rglob("replay-*")}
    for other in (replace(recipe, gamma=0.9), replace(recipe, timesteps=200)):  # of which one needs larger files
        with pytest.raises(StoreError, match="another run"):
            start(tmp_path, other, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("replay-*")} == contents
    lost = next(path for path in contents if "rewards" in path.name or "ends" in path.name)
    lost.unlink()
    with pytest.raises(StoreError, match="is missing or was cut"):
        start(tmp_path, recipe, resume=True)
    lost.write_bytes(contents[lost])
    stopped = seen[-1]
    held = stopped.run.checkpoint / train.STATE
    whole = torch.load(held, weights_only=True)
    for part in whole:
        torch.save({name: value for name, value in whole.items() if name != part}, held)
        with pytest.raises(StoreError, match=f"{train.STATE} .*'{part}'.*; delete its folder to start over"):
            start(tmp_path, recipe, resume=True)
    torch.save(whole, held)
    resumed = train.TrainingLoop(stopped.run, stopped.run.read_checkpoint())
    assert (resumed.steps, resumed.replay.count, resumed.curves) == (70, 70, stopped.curves)
    for (name, ours), (_, theirs) in zip(
        list_parameters(resumed.agent, 1), list_parameters(stopped.agent, 1), strict=True
    ):
        assert torch.equal(ours, theirs), name
    batches = [loop.replay.sample(loop.sampling, 20) for loop in (stopped, resumed)]
    for loop, batch in zip((stopped, resumed), batches, strict=True):
        loop.agent.update(batch)
    for (name, ours), (_, theirs) in zip(
        list_parameters(resumed.agent, 0), list_parameters(stopped.agent, 0), strict=True
    ):
        assert torch.equal(ours, theirs), name
    assert len(start(tmp_path, recipe, resume=True)) == 2


def test_finished_policies_are_kept_and_missing_ones_trained(tmp_path, few_episodes, monkeypatch):
    recipe = make_recipe(timesteps=80, learning_starts=40, width=8)
    first = start(tmp_path, recipe, (0,))[0][1]
    trained = train.complete_seeds(recipe, "pendulum", (1, 0), tmp_path, TrainingOptions(resume=True))
    assert [spec.seed for spec, _ in trained] == [1, 0]
    assert trained[1][1].sha256 == first.sha256
    monkeypatch.setattr(train.TrainingLoop, "advance", lambda _: pytest.fail("trained again"))
    again = train.complete_seeds(recipe, "pendulum", (0, 1), tmp_path, TrainingOptions(resume=True))
    assert [stored.sha256 for _, stored in again] == [stored.sha256 for _, stored in trained[::-1]]
    with pytest.raises(StoreError, match="was trained by another recipe"):
        train.complete_seeds(replace(recipe, timesteps=90), "pendulum", (0, 1), tmp_path, TrainingOptions(resume=True))


def test_a_part_that_died_while_it_published_goes_on(tmp_path, few_episodes, monkeypatch):
    """Seed 0 was there, 1 and 2 were trained together, and only 1 was published."""
    recipe = make_recipe(timesteps=80, learning_starts=40, width=8)
    start(tmp_path, recipe, (0,))
    publish = train.TrainingLoop.publish

    def die(loop, index, spec):
        if spec.seed == 2:
            raise KeyboardInterrupt
        return publish(loop, index, spec)

    monkeypatch.setattr(train.TrainingLoop, "publish", die)
    with pytest.raises(KeyboardInterrupt):
        train.complete_seeds(recipe, "pendulum", (0, 1, 2), tmp_path, TrainingOptions(resume=True))
    monkeypatch.setattr(train.TrainingLoop, "publish", publish)
    monkeypatch.setattr(train.TrainingLoop, "advance", lambda _: pytest.fail("trained again"))
    done = train.complete_seeds(recipe, "pendulum", (0, 1, 2), tmp_path, TrainingOptions(resume=True))
    assert [spec.seed for spec, _ in done] == [0, 1, 2]
    assert not [*tmp_path.glob("*.checkpoint")]


def test_a_long_list_of_seeds_still_makes_a_name(tmp_path):
    runs = [
        train.MultiSeedRun.plan(make_recipe(), "pendulum", seeds, tmp_path, None)
        for seeds in (range(99), range(1, 100))
    ]
    assert all(len(run.checkpoint.name) < 100 for run in runs)
    assert runs[0].checkpoint != runs[1].checkpoint


def test_a_width_that_is_the_recipes_is_the_recipe():
    plain = find_recipe("sac")
    assert plain.override(actor_width=256) == plain
    assert plain.quantize("i8c8o8h256") == plain.quantize("i8c8o8")
    assert plain.quantize("i8c8o8h16").actor_width == 16


@pytest.mark.parametrize(
    ("changes", "scheme", "options"),
    [
        ({"actor_width": 16}, "", ["--width 16"]),
        ({"normalize": False, "precision": "bf16"}, "", ["--raw", "--precision bf16"]),
        ({"normalize": False}, "i8c2o8h64", ["--raw", "--scheme i8c2o8h64"]),
    ],
)
def test_an_origin_says_how_it_is_trained(changes, scheme, options):
    recipe = find_recipe("sac").quantize(scheme or "fp32").override(**changes)
    spec = name_policy(recipe, "hopperv4", 0)
    assert list_options(spec.origin, spec.scheme) == options


def test_checkpoints_come_by_the_clock_too(tmp_path, few_episodes, monkeypatch):
    monkeypatch.setattr(train, "STEPS_BETWEEN_CHECKS", 10)
    monkeypatch.setattr(train, "CURVE_POINTS", 1)
    seen = []
    monkeypatch.setattr(train.TrainingLoop, "save", lambda loop: seen.append(loop.steps))
    for seconds, saves in ((0.0, [*range(10, 81, 10)]), (3600.0, [80])):
        monkeypatch.setattr(train, "SAVE_SECONDS", seconds)
        start(tmp_path / str(seconds), make_recipe(timesteps=80, learning_starts=70, width=8))
        assert seen == saves
        seen.clear()


@exhaustive
def test_kill_nine_leaves_a_run_that_goes_on(tmp_path):
    checkpoint = tmp_path / "policies" / "sac-pendulum-i8c3o8-lqcc-seeds0-1.checkpoint" / train.STATE
    process = Fork("-c", KILLED, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = json.loads(torch.load(checkpoint, weights_only=True)["facts"])["curves"]
    assert 1 <= len(before[0]) < 20
    run_python("-c", KILLED, cwd=tmp_path, check=True)
    for seed in range(2):
        about = load_stored(tmp_path / "policies" / f"sac-pendulum-i8c3o8-lqcc-seed{seed}").metadata
        assert about["curve"][: len(before[seed])] == before[seed]
        assert len(about["curve"]) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sac pendulum --seeds 0", "--output"),
        ("ppo pendulum --seeds 0 --output o", "many seeds"),
        ("sac cartpole --seeds 0 --output o", "vectors"),
        ("sac pendulum --seeds 0 --output o --steps 100", "learning starts"),
        ("sac pendulum --seeds 0 --output o --scheme qat4", "i<bits>"),
        ("sac pendulum --seeds 0 --output o --scheme i8c3o8ptq", "is not trained with many seeds"),
        ("sac pendulum --output o --scheme i9c2o8", "input"),
        ("sac pendulum --seeds 0 --output o --scheme i8c2o8 --width 16", "i8c2o8h16"),
        ("sac pendulum --seeds 0 --output o --width 99999", "width"),
        ("sac pendulum --seed 0 --steps 300000 --output o", "pass --seeds"),
        ("sac pendulum --raw --output o", "pass --seeds"),
    ],
)
def test_what_cannot_be_trained_ends_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("o/*seed0"))


@pytest.mark.parametrize("seeds", ["", "1,1", "3..1", "x"])
def test_seed_lists_are_read_or_refused(seeds, capsys):
    with pytest.raises(SystemExit) as info:
        main(["train", "sac", "pendulum", "--output", "o", "--seeds", seeds])
    assert info.value.code == 2
    assert "seeds" in capsys.readouterr().err
    with pytest.raises(SpecError, match="at least one"):
        train.train_seeds(make_recipe(), "pendulum", [], None)
