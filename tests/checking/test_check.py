"""`quarl check`: verdicts, exit codes, policies of other frameworks, environments of one's own."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from quarl_bench.checking.answer import Answer, SchemeResult, play_schemes
from quarl_bench.checking.costs import ArtefactCost
from quarl_bench.checking.recommendation import find_fewest, recommend
from quarl_bench.checking.text import format_line
from quarl_bench.cli import main
from quarl_bench.environments.registry import Environment, find_environment, identify_environment, make_environment
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.evaluation.sensitivity import Sensitivity, measure_sensitivity
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.judging.retention import judge_retention
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.policies.sources.torch_module import read_architecture, read_chain
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.report.page.row_views import view_plots
from quarl_bench.report.rows.checks import build_check_row
from quarl_bench.spec import Measurement, Outcome, name_seeds
from quarl_bench.training.sb3.models import make_model
from quarl_bench.training.sb3.vector import make_vector
from tests.support.agents import forge
from tests.support.places import POLICIES
from tests.support.sizes import choose
from tests.support.training import make_recipe

OWN = """
import gymnasium, numpy as np, torch

class Target(gymnasium.Env):
    max_episode_steps = 20
    observation_space = gymnasium.spaces.Box(-5, 5, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.x = (self.x * 0.9 + np.float32(0.1) * np.float32(action[0])).astype(np.float32)
        return self.x.copy(), float(-abs(self.x).sum()), False, False, {}

class Configured(Target):
    def __init__(self, settings):
        self.settings = settings

class Named(Target):
    observation_space = gymnasium.spaces.Sequence(Target.observation_space)

class Gift(Target):
    def step(self, action):
        return super().step(action)[0], 1.0, False, False, {}

class Unseen(gymnasium.Env):
    action_space = Target.action_space

class Endless(Target):
    max_episode_steps = None

class Backwards(Target):
    max_episode_steps = -3

class Started(Target):
    action_space = gymnasium.spaces.Discrete(3, start=1)

class Whole(Target):
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.int64)

class Unseeded(Target):
    def reset(self, *, seed=None, options=None):
        return super().reset()

class Pixels(Target):
    observation_space = gymnasium.spaces.Box(0, 255, (12, 14, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("a line of its own")
        return self.np_random.integers(0, 256, (12, 14, 3)).astype(np.uint8), {}

    def step(self, action):
        return self.np_random.integers(0, 256, (12, 14, 3)).astype(np.uint8), float(action), False, False, {}

class Divided(torch.nn.Sequential):
    def forward(self, x):
        return super().forward(x / 255)

def leave():
    raise SystemExit(3)

def chooser():
    return torch.nn.Linear(2, 2)

def look():
    return Divided(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 10 * 12, 2))

torch.manual_seed(0)
actor = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1), torch.nn.Tanh())

class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return 2 * self.layer(x)

class Actor(torch.nn.Sequential):
    def __init__(self, width):
        super().__init__(torch.nn.Linear(width, 1))

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of a user's in the working directory, under a name no other test uses."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    return name


@pytest.mark.usefixtures("brief_costs")
@pytest.mark.skipif(not POLICIES.is_dir(), reason=f"no policies in {POLICIES}")
@pytest.mark.parametrize(("scheme", "code"), choose([("int2", 1)], [("w8", 0), ("int2", 1)]))
def test_the_exit_code_is_the_verdict(scheme, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path))
    page = tmp_path / "page.html"
    policy = str(POLICIES / "ppo-cartpole-seed0")
    arguments = ["check", policy, "--scheme", scheme, "--html", str(page), "--json", "--export", str(tmp_path / "out")]
    assert main(arguments) == code
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == {0: "supported", 1: "refuted"}[code]
    assert found["recommendation"].startswith("Ship int")
    assert [row["scheme"] for row in found["rows"]] == ["fp16", "w8", "int8", "int6", "int4", "int3", "int2"]
    assert len(found["layers"]) == 3
    assert (found["fewest"], found["confidence"]) == ("int6", 0.95)
    worst = found["rows"][-1]
    assert worst["difference"] == pytest.approx(worst["return"] - found["return"])
    assert worst["difference_interval"][0] < worst["difference"] < worst["difference_interval"][1] < -25
    assert all(cost["bytes"] or cost["reason"] for cost in found["costs"])
    assert all(target["unit"] or target["reason"] for target in found["targets"])
    assert {target["scheme"] for target in found["targets"]} >= {"fp32", "int6"}
    assert "Ship int" in page.read_text()
    if shutil.which("cc") or shutil.which("gcc"):
        for name in {scheme, "int6"}:
            assert (tmp_path / "out" / f"{name}-c" / "manifest.json").exists()


def make_check(outcomes, costs):
    """A check of made-up outcomes, by scheme, and bytes of artefacts, by scheme."""
    lines = tuple(
        SimpleNamespace(scheme=Scheme.parse(name), verdict=SimpleNamespace(outcome=Outcome(outcome)))
        for name, outcome in outcomes.items()
    )
    priced = tuple(ArtefactCost("onnx", name, size) for name, size in costs.items())
    touchy = Sensitivity("fc2", (2, 4), 40.0, 0.5, 0.1, 0.9)
    better, worse = (SimpleNamespace(returns=((value, value),)) for value in (9.0, 1.0))
    return Answer("made", "int8", SimpleNamespace(), SimpleNamespace(), better, worse, lines, (touchy,), priced, 0.05)


def test_the_fewest_bits_need_all_wider_ones_to_do():
    """Of seven schemes one may do well by chance."""
    outcomes = {"w8": "supported", "int8": "inconclusive", "int4": "refuted", "int3": "supported"}
    check = make_check(outcomes, {"fp32": 400, "w8": 400})
    assert find_fewest(check.lines).scheme.name == "w8"
    assert "int3 may owe it to chance" in recommend(check)
    assert find_fewest(make_check({"int8": "refuted", "int8pc": "supported"}, {}).lines).scheme.name == "int8pc"


@pytest.mark.parametrize(
    ("outcomes", "costs", "parts"),
    [
        (
            {"int8": "supported", "int6": "supported"}, {"fp32": 900, "int8": 300, "int6": 500},
            ["weights and activations in 8 bits keep 95% of the return, in 300 bytes as onnx.", "int6 does too"],
        ),
        ({"int8": "supported"}, {"fp32": 200, "int8": 300}, ["Ship int8", "fp32 takes no more, 200 as onnx"]),
        ({"w8": "supported", "int8": "refuted"}, {"fp32": 900, "w8": 900}, ["Ship w8", "it saves nothing", "as qat8"]),
        ({"w8": "supported", "int8": "refuted"}, {"fp32": 1000, "w8": 995}, ["Ship w8", "it saves 0.5% of the bytes"]),
        ({"int8": "supported"}, {"fp32": 1000, "int8": 980}, ["Ship int8", "next to nothing here: 2.0% of the bytes"]),
        ({"w8": "refuted", "int8": "refuted"}, {}, ["Keep fp32", "fc2 suffers from: try --scheme int8pc"]),
        ({"w8": "refuted", "int8": "inconclusive"}, {}, ["Keep fp32", "int8: not decided; more episodes may"]),
        (
            {"w8": "inconclusive", "int8": "undecidable"}, {},
            ["w8: not decided; more", "int8: undecidable; what would decide is listed."],
        ),
    ],
)  # fmt: skip
def test_what_is_recommended_weighs_costs(outcomes, costs, parts):
    found = recommend(make_check(outcomes, costs))
    assert all(part in found for part in parts), found
    assert ("int8pc" in found) == any("int8pc" in part for part in parts)


def test_fp32_is_not_held_against_itself(own, capsys):
    assert main(["check", f"{own}:actor", "--environment", f"{own}:Target", "--scheme", "fp32"]) == 2
    assert "what other schemes are held against" in capsys.readouterr().err
    assert main(["evaluate", f"{own}:actor", "--environment", f"{own}:Target", "--episodes", "3"]) == 0
    out = capsys.readouterr().out
    assert out.count("return") == 1
    assert "keeps" not in out


@pytest.mark.usefixtures("brief_costs")
def test_a_torch_module_in_an_environment_of_ones_own(own, capsys):
    arguments = ["check", f"{own}:actor", "--environment", f"{own}:Target", "--episodes", "60", "--json"]
    assert main(arguments) in (0, 3)
    found = json.loads(capsys.readouterr().out)
    assert found["environment"] == f"{own}.Target-v0"
    assert found["rows"][0]["ratio"] == pytest.approx(1.0, abs=0.01)
    assert not Path("cache/measurements").exists(), "a user's environment may change: nothing is kept"


@pytest.mark.usefixtures("brief_costs")
def test_nothing_is_shipped_of_a_policy_no_better_than_chance(own, capsys):
    """Where every action earns the same, each scheme keeps the return, and that says nothing."""
    arguments = ["check", f"{own}:actor", "--environment", f"{own}:Gift", "--margin", "0.5", "--json"]
    assert main(arguments) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "supported"
    assert found["recommendation"] == f"{found['doubt']}."
    assert found["doubt"].startswith("fp32 does not beat random play")


def test_returns_around_0_are_counted_from_a_floor():
    """fp32 returns 0 on average and the scheme 8 less, that is 40% of what fp32 has above -20."""
    better = np.random.default_rng(0).normal(0, 5, 100)
    returns = {"fp32": better, "int8": better - 8 + np.random.default_rng(1).normal(0, 1, 100)}
    seeds = range(100)

    def play(scheme, _):
        row = tuple(returns[scheme.name].tolist())
        return Measurement(("a",), tuple(seeds), name_seeds(seeds), (row,), ((1,) * len(row),))

    environment, stored = Environment("bets", "Bets-v0", cap=float(better.max())), SimpleNamespace(metadata={})
    subject = SimpleNamespace(environment=environment, stored=stored, play=play)
    schemes = [Scheme.parse("int8")]
    (line,) = play_schemes(subject, schemes, 100)
    assert line.verdict.outcome is Outcome.UNDECIDABLE
    assert "floor" in line.verdict.needed
    (line,) = play_schemes(subject, schemes, 100, floor=-20.0)
    assert line.verdict.outcome is Outcome.REFUTED
    assert line.verdict.estimate == pytest.approx(0.6, abs=0.03)
    assert line.difference == pytest.approx(-8, abs=0.3)
    assert line.interval[0] < line.difference < line.interval[1]
    row = build_check_row("gambler", subject, line, 0.05)
    assert row.sentence == "int8 costs gambler at most 5% of the return above -20 on Bets-v0"
    assert row.p_values[1] < 0.05
    (plot,) = view_plots([row, replace(row, scheme="int4", id="gambler-bets-int4")])
    point = next(point for curve in plot.curves for point in curve.points if point.bits == 8)
    assert (point.low, point.high) == pytest.approx([plot.reference + side for side in line.interval])
    for margin in (0, 1.0, np.nan, "x"):
        with pytest.raises(SpecError, match=r"margin .* lies between 0 and 1"):
            play_schemes(subject, schemes, 100, margin)
    for floor in (np.nan, -np.inf, "x"):
        with pytest.raises(SpecError, match="finite, and below what the reference returns"):
            play_schemes(subject, schemes, 100, floor=floor)  # before anything is played
    with pytest.raises(SpecError, match="finite, and below what the reference returns"):
        next(play_schemes(subject, schemes, 100, floor=1.0))


def test_a_cap_is_named_as_it_is_whatever_the_floor():
    seeds = range(50)
    rows = [tuple(500.0 for _ in seeds), tuple(500.0 if seed % 5 else 400.0 for seed in seeds)]
    pair = [Measurement(("a",), tuple(seeds), name_seeds(seeds), (row,), ((1,) * 50,)) for row in rows]
    verdict = judge_retention(*pair, cap=500.0, floor=100.0)
    assert verdict.estimate == pytest.approx(0.95)
    assert any("its cap of 500 in 100%" in caveat for caveat in verdict.caveats)


def test_classes_of_one_name_in_two_modules_are_two_environments(own, tmp_path):
    (tmp_path / f"{own}_b.py").write_text(OWN.replace("max_episode_steps = 20", "max_episode_steps = 30"))
    found = [
        open_task(PolicySource(Path(f"{module}:actor"), f"{module}:Target"))[1] for module in (own, f"{own}_b", own)
    ]  # the first of them again, with the second registered
    limits = [make_environment(environment)[1] for environment in found]
    assert limits == [20, 30, 20]
    assert len({environment.id for environment in found}) == len({environment.slug for environment in found}) == 2


@pytest.mark.parametrize(
    ("policy", "environment", "message"),
    [
        ("{}:Odd", "{}:Target", "not the chain of its modules"),
        ("{}:actor", "{}:Named", "observations Sequence(Box("),
        ("{}:number", "{}:Target", "is no torch module"),
        ("{}:actor", None, "pass --environment"),
        ("{0}:Actor", "{0}:Target", "{0}:Actor': making one failed (TypeError: "),
        ("{0}:actor", "{0}:Configured", "{0}:Configured': making one failed (TypeError: "),
        ("{}:actor", "{}:Nothing", "has no environment class"),
        ("{}:actor", "{}:Endless", "no step limit"),
        ("{}:actor", "{}:Backwards", "max_episode_steps -3; give its class a whole number above 0"),
        ("{}:actor", "{}:Whole", "are whole numbers; use Discrete, or a Box of real ones"),
        ("{}:chooser", "{}:Started", "2 outputs for the actions Discrete(3)"),
        ("{}:actor", "{}:Unseeded", "reset(seed=...) does not give the same start twice"),
        ("{}:actor", "{}:Unseen", "it has no observation_space; give it one of gymnasium.spaces"),
        ("{}:leave", "{}:Target", "{0}:leave': making one failed (SystemExit: 3)"),
        ("{}:actor", "nowhere:Env", "importing 'nowhere' failed"),
        ("no_such_module:actor", "{}:Target", "importing 'no_such_module' failed"),
    ],
)
def test_what_cannot_be_checked_is_one_line(own, policy, environment, message, capsys, monkeypatch):
    monkeypatch.setattr("quarl_bench.environments.wrappers.LONGEST", 300)
    arguments = ["check", policy.format(own)]
    arguments += [] if environment is None else ["--environment", environment.format(own)]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message.format(own) in line


def test_images_may_come_channel_last_and_environments_may_print(own, tmp_path, capsys):
    arguments = [f"{own}:look", "--environment", f"{own}:Pixels", "--episodes", "12"]
    assert main(["evaluate", *arguments, "--scheme", "w8", "--json"]) == 0
    captured = capsys.readouterr()
    assert isinstance(json.loads(captured.out), dict)
    assert "a line of its own" in captured.err
    stored, _ = open_task(PolicySource(Path(f"{own}:look"), f"{own}:Pixels"))
    save_policy(stored.policy, tmp_path / "look", {"environment": f"{own}:Pixels"})
    assert open_task(PolicySource(tmp_path / "look", f"{own}:Pixels"))[0].policy.transform.shape == (3, 12, 14)


def test_a_wrong_path_says_what_it_is(tmp_path, capsys):
    for name in ("README.md", "agents/CartPole-v1_1/CartPole-v1.zip", "artefact/golden.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, message in (
        ("README.md", "no folder, no .onnx and no .zip of a policy; of a state dictionary pass --arch as well"),
        ("agents", "holds folders of agents, CartPole-v1_1; name one of them"),
        ("artefact", "an artefact, which is deployed already"),
    ):
        assert main(["check", str(tmp_path / name), "--environment", "CartPole-v1"]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert message in line


def test_a_live_policy_takes_statistics_in_hand(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(4, 2))
    statistics = Normalization(np.zeros(4), np.ones(4), 10.0, 1e-8)
    stored, _ = open_task(PolicySource(Path("module"), "CartPole-v1", normalization=statistics, live=module))
    assert stored.policy.transform.normalization is statistics
    (tmp_path / "agent.zip").write_bytes(forge())
    with pytest.raises(SpecError, match="the path of a saved VecNormalize"):
        open_task(PolicySource(tmp_path / "agent.zip", normalization=statistics))


def test_the_first_of_several_names_is_an_ids():
    assert identify_environment("PyFlyt/QuadX-Waypoints-v4").slug == "quadx1"


def test_a_place_that_is_taken_is_said_before_anything_is_played(own, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("quarl_bench.checking.answer.play_schemes", lambda *_: pytest.fail("played"))
    (tmp_path / "out" / "int4-c" / "thesis").mkdir(parents=True)
    assert main(["check", f"{own}:actor", "--environment", f"{own}:Target", "--export", "out"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "out/int4-c exists and holds no golden.safetensors; it is left alone" in line


NORMALIZED = {":type:": "<class 'numpy.ndarray'>", ":serialized:": ""}


def test_a_bare_zip_is_asked_for_what_it_lacks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "agent.zip").write_bytes(forge())
    command = ["evaluate", "agent.zip", "--episodes", "2"]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.endswith("agent.zip: the policy names no environment; pass --environment (in Python: env=)")
    assert main([*command, "--environment", "CartPole-v1"]) == 0
    assert "--normalization" not in capsys.readouterr().err
    # Algorithms that learn from a replay buffer keep an observation with or without statistics.
    (tmp_path / "agent.zip").write_bytes(forge(_last_original_obs=NORMALIZED, replay_buffer_class={}))
    assert main([*command, "--environment", "CartPole-v1"]) == 0
    for settings, files, sign in (
        ({"_last_original_obs": NORMALIZED}, (), "its _last_original_obs is there"),
        ({}, ("vec_normalize.pkl",), "vec_normalize.pkl beside it"),
    ):
        (tmp_path / "agent.zip").write_bytes(forge(**settings))
        for name in files:
            (tmp_path / name).touch()
        assert main([*command, "--environment", "CartPole-v1"]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert f"it seems ({sign})" in line
        assert "--normalization FILE" in line
        assert main([*command, "--environment", "CartPole-v1", "--normalization", "none"]) == 0
        capsys.readouterr()


def test_a_state_dictionary_of_cleanrl(own, tmp_path, capsys):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)]
    state = {f"actor.{name}": value for name, value in torch.nn.Sequential(*layers).state_dict().items()}
    torch.save(state | {"critic.0.weight": torch.zeros(1, 4)}, tmp_path / "agent.cleanrl_model")
    command = ["evaluate", "agent.cleanrl_model", "--environment", "cartpole", "--episodes", "4", "--json"]
    assert main([*command, "--arch", "cleanrl-ppo"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"] == "CartPole-v1"
    save_file(state, tmp_path / "agent.safetensors")
    named = [part.replace("cleanrl_model", "safetensors") for part in command]
    assert main([*named, "--arch", "cleanrl-ppo"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"] == "CartPole-v1"
    (tmp_path / "agent.safetensors").write_bytes(b"nothing")
    assert main([*named, "--arch", "cleanrl-ppo"]) == 2
    assert "agent.safetensors: not a safetensors file" in capsys.readouterr().err
    assert main([*command, "--arch", "cleanrl-dqn"]) == 2
    assert "no weights of 'network.0'" in capsys.readouterr().err
    assert main([*command, "--arch", "cleanrl-ppo-continuous"]) == 2
    assert "pass --normalization" in capsys.readouterr().err


def test_architectures_name_modules_strides_and_activations():
    rng = np.random.default_rng(0)
    weights = {
        "conv.weight": rng.normal(size=(4, 1, 3, 3)).astype(np.float32),
        "head.weight": rng.normal(size=(2, 16)).astype(np.float32),
    }
    first, last = read_architecture("conv/2,relu,head,tanh", weights, "x")
    assert (first.stride, first.activation, last.activation) == (2, Activation.RELU, Activation.TANH)
    for chain, message in (("relu,head", "does not follow"), ("conv,head", "a stride"), ("head/2", "no stride"),
                           ("head;", "no module"), ("other", "there are conv, head")):  # fmt: skip
        with pytest.raises(PolicyError, match=message):
            read_architecture(chain, weights, "x")


def test_a_module_of_another_shape_is_refused():
    with pytest.raises(PolicyError, match="cannot be called on observations"):
        read_chain(torch.nn.Linear(3, 2), (4,), "x")


class Scaled(torch.nn.Sequential):
    """What is done in front of the modules."""

    def __init__(self, *modules, before):
        super().__init__(*modules)
        self.before = before

    def forward(self, x):
        return super().forward(self.before(x))


def test_an_activation_may_stand_twice():
    act = torch.nn.ReLU()
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), act, torch.nn.Linear(8, 8), act, torch.nn.Linear(8, 2))
    assert [layer.activation for layer in read_chain(net, (4,), "x")] == [Activation.RELU] * 2 + [Activation.NONE]
    weights = {name: value.numpy() for name, value in net.state_dict().items()}
    assert len(read_architecture("0,relu,2,relu,4", weights, "x")) == 3  # the names a Sequential gives


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (torch.nn.Linear(4, 2).bfloat16(), r"parameters of torch.bfloat16; convert it by its method float\(\)"),
        (torch.nn.Linear(4, 2).double(), "parameters of torch.float64"),
        (torch.nn.Linear(4, 2, device="meta"), "parameters without values"),
        (torch.nn.LazyLinear(2), "parameters without values"),
    ],
)
def test_parameters_are_fp32_and_there(module, message):
    with pytest.raises(PolicyError, match=message):
        read_chain(module, (4,), "x")


def test_a_forward_that_clips_is_no_chain():
    """Not even far from 0."""
    for limit in (0.2, 5, 100):
        module = Scaled(torch.nn.Linear(4, 2), before=lambda x, limit=limit: x.clamp(-limit, limit))
        with pytest.raises(PolicyError, match="not the chain of its modules"):
            read_chain(module, (4,), "x")


def test_pixels_are_divided_by_255_in_the_forward():
    modules = (torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(2 * 6 * 6, 3))
    assert len(read_chain(Scaled(*modules, before=lambda x: x / 255), (1, 8, 8), "x", image=True)) == 2
    with pytest.raises(PolicyError, match="divide them by 255 in it"):
        read_chain(torch.nn.Sequential(*modules), (1, 8, 8), "x", image=True)


@pytest.mark.skipif(not POLICIES.is_dir(), reason=f"no policies in {POLICIES}")
def test_schemes_without_a_form_are_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path))
    normed = str(POLICIES / "ppo-acrobot-layernorm-seed0")
    assert main(["check", normed, "--episodes", "4", "--json"]) in (0, 1, 3)
    captured = capsys.readouterr()
    assert (
        "int8: layer 0 is followed by a layer normalization; use fp16 or w<n>; the exit code is about w8"
        in captured.err
    )
    found = json.loads(captured.out)
    assert found["scheme"] == "w8"
    assert [row["scheme"] for row in found["rows"]] == ["fp16", "w8"]
    assert set(found["refused"]) == {"int8", "int6", "int4", "int3", "int2"}
    assert "layer normalization" in found["refused"]["int8"]
    assert main(["sweep", normed, "--bits", "8", "--episodes", "2", "--json"]) == 0
    captured = capsys.readouterr()
    assert [row["scheme"] for row in json.loads(captured.out)["rows"]] == ["fp32", "fp16", "w8"]
    assert "int8: layer 0 is followed by a layer normalization" in captured.err
    for arguments, message in (
        (["check", normed, "--scheme", "int8"], "int8: layer 0 is followed by a layer normalization"),
        (["check", normed, "--scheme", "w8", "--html", str(tmp_path)], "a folder; name the file to write in it"),
        (["check", normed, "--algo", "sac"], "its manifest says algo itself; leave algo out"),
        (["sweep", normed, "--family", "int", "--bits", "9..12"], "no width of --family int"),
    ):
        assert main(arguments) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert message in line


def test_differences_are_of_distinct_episodes():
    """Of 100 episodes 80 begin alike: the interval of a difference holds it."""
    returns = np.random.default_rng(0).normal(100, 5, 100)
    returns[20:] = 100.0
    seeds, names = tuple(range(100)), tuple(f"e{min(i, 20)}" for i in range(100))
    reference, measured = (
        Measurement(("a",), seeds, names, (tuple(values),), ((1,) * 100,))
        for values in (returns, np.where(np.arange(100) < 20, returns - 1, 60.0))
    )
    line = SchemeResult(Scheme.parse("w8"), reference, measured, judge_retention(reference, measured))
    assert line.difference == pytest.approx(-(20 + 40) / 21)
    assert (line.mean - line.base, f"{line.mean:.4g}") == (line.difference, format_line(line)[1])
    assert line.interval[0] < line.difference < line.interval[1]


def test_sensitivity_finds_the_layer_that_was_made_coarse():
    recipe = make_recipe()
    policy = extract(make_model(recipe, make_vector(find_environment("cartpole"), 2, 0), 0))
    policy.net.layers[0].weight[0, 0] = 40.0
    observations = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    first, last = measure_sensitivity(policy, 4, observations)
    assert first.error > 3 * first.error_per_channel
    assert first.reach > last.reach


def test_margins_outside_of_0_and_1_are_refused(capsys):
    if not POLICIES.is_dir():
        pytest.skip(f"no policies in {POLICIES}")
    assert main(["check", str(POLICIES / "ppo-cartpole-seed0"), "--margin", "5"]) == 2
    assert "lies between 0 and 1" in capsys.readouterr().err
