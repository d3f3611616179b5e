"""`assert_quantizable` and its fixtures in other people's projects, the one in docs included."""

import json
import shutil
import sys

import gymnasium
import pytest
import torch
from stable_baselines3 import PPO

from quarl_bench.checking.subject import open_subject
from quarl_bench.cli import main
from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.judging.outcomes import ClaimRefuted
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.testing import Undecided, assert_quantizable
from tests.support.artefacts import price_artefacts
from tests.support.inner import run_apart, run_inside
from tests.support.places import POLICIES, ROOT
from tests.support.sizes import choose, exhaustive

EXAMPLE = ROOT / "docs" / "example_project"
BAD = """
import gymnasium, numpy as np, torch

class Coin(gymnasium.Env):
    max_episode_steps = 1
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.x, {}

    def step(self, action):
        # Whether to act on it is worth something in a few starts only, and nobody knows which.
        return self.x, 1.0 + 3.0 * float(action == (self.x[0] * 1000 % 1 > 0.5)), True, False, {}

net = torch.nn.Linear(1, 2)
torch.nn.init.constant_(net.weight, 0.3)
with torch.no_grad():
    net.weight[0] = -0.3
    net.bias.copy_(torch.tensor([0.0013, -0.0013]))
"""


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(pytester.path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return pytester


@pytest.mark.needs("litert")
def test_the_example_project_passes(project):
    shutil.copytree(EXAMPLE, project.path, dirs_exist_ok=True)
    result = run_inside(project, "--quarl-json", "rows.json", "--quarl-html", "page.html")
    assert result.parseoutcomes() == {"passed": 8}
    result.stdout.fnmatch_lines(
        [
            "*quarl verdicts*",
            "asked 6 times: does this policy keep its return in fewer bits? 5 yes, 1 no*",
            "quantizable: 6 verdicts: 1 refuted, 5 supported; worst *int2 refuted*",
        ]
    )
    rows = {row["id"]: row for row in json.loads((project.path / "rows.json").read_text())["rows"]}
    assert rows["rovercontroller-roverdockv0-int8"]["verdict"] == "supported"
    assert rows["rovercontroller-roverdockv0-int8"]["versions"]["torch"]
    assert "rovercontroller-roverdockv0-int8" in (project.path / "page.html").read_text()


GATE = """
from quarl_bench import assert_quantizable as ask
def test_fixture(assert_quantizable):
    assert_quantizable("coin:net", "coin:Coin", "w4", margin=0.02, episodes=40)
def test_function():
    ask("coin:net", "coin:Coin", "w4", margin=0.02, episodes=40)
"""


@pytest.fixture
def undecided(project):
    (project.path / "coin.py").write_text(BAD)
    project.makeini("[pytest]\npythonpath = .\n")
    project.makepyfile(test_release=GATE)
    return project


def test_a_gate_is_closed_while_undecided(undecided):
    result = run_inside(undecided, "--quarl-json", "rows.json", "--junitxml", "junit.xml")
    assert result.parseoutcomes() == {"failed": 2}
    assert result.ret == 1
    needs = "INCONCLUSIVE test_release.py::test_f*: coinnet-coincoinv0-w4-margin2: needs * distinct episodes*"
    result.stdout.fnmatch_lines(
        ["*quarl undecided*", needs, needs, "*short test summary*", "FAILED test_release.py::test_f*"]
    )
    rows = json.loads((undecided.path / "rows.json").read_text())["rows"]
    assert [(row["verdict"], row["outcome"]) for row in rows] == [("inconclusive", "failed")] * 2
    assert (undecided.path / "junit.xml").read_text().count("<failure") == 2


@pytest.mark.parametrize("how", ["strict=False", "quarl_strict"])
def test_a_gate_that_was_opened_says_what_is_undecided(undecided, how):
    if how == "quarl_strict":
        undecided.makeini("[pytest]\npythonpath = .\nquarl_strict = false\n")
    else:
        undecided.makepyfile(test_release=GATE.replace("episodes=40", "episodes=40, strict=False"))
    result = run_inside(undecided, "--quarl-json", "rows.json", "--junitxml", "junit.xml")
    assert result.parseoutcomes() == {"inconclusive": 2}
    assert result.ret == 0
    result.stdout.fnmatch_lines(["INCONCLUSIVE test_release.py::test_fixture: *: needs * distinct episodes*"])
    rows = json.loads((undecided.path / "rows.json").read_text())["rows"]
    assert [(row["verdict"], row["outcome"]) for row in rows] == [("inconclusive", "passed")] * 2
    shown = (undecided.path / "junit.xml").read_text()
    assert shown.count('message="coinnet-coincoinv0-w4-margin2: inconclusive: ') == 2
    assert 'skipped="2"' in shown
    assert run_inside(undecided, "--quarl-strict").parseoutcomes() == {"failed": 2}


CLASH = """
import torch

def make(shift):
    net = torch.nn.Linear(4, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-0.02, -0.2, -1.0, -0.6], [0.02, 0.2, 1.0, 0.6 + shift]]))
        net.bias.zero_()
    return net

def test_one(assert_quantizable):
    assert_quantizable(make(0.0), "cartpole", "fp16", margin=0.5, episodes=8)

def test_other(assert_quantizable):
    assert_quantizable(make(0.1), "cartpole", "fp16", margin=0.5, episodes=8)

def test_another_question(assert_quantizable):
    assert_quantizable(make(0.0), "cartpole", "fp16", margin=0.6, floor=-2.5, episodes=8)
"""


def test_two_policies_under_one_id_are_a_usage_error(project):
    project.makepyfile(test_release=CLASH)
    result = run_apart(project, "--quarl-json", "rows.json", "-n", choose("0", "2"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.outlines if "different policies" in line]
    assert line.startswith("ERROR: linear-cartpole-fp16-margin50: test_release.py::test_")
    assert line.endswith("; pass name=... to one of them")
    assert {"test_release.py::test_one", "test_release.py::test_other"} < set(line.split())
    rows = json.loads((project.path / "rows.json").read_text())["rows"]
    assert {row["id"] for row in rows} == {
        "linear-cartpole-fp16-margin50", "linear-cartpole-fp16-margin60-floorm2p5"
    }  # fmt: skip
    project.makepyfile(
        test_release=CLASH.replace('(0.1), "cartpole", "fp16"', '(0.1), "cartpole", "fp16", name="The other"')
    )
    assert run_inside(project, "--quarl-json", "rows.json").ret == 0
    rows = {row["id"]: row for row in json.loads((project.path / "rows.json").read_text())["rows"]}
    assert rows["theother-cartpole-fp16-margin50"]["sentence"].startswith("fp16 costs The other at most 50%")


@exhaustive
def test_undecided_rows_of_workers_are_named_too(undecided):
    undecided.makeini("[pytest]\npythonpath = .\nquarl_strict = false\n")
    result = run_apart(undecided, "-n", "2")
    assert result.parseoutcomes() == {"inconclusive": 2}
    result.stdout.fnmatch_lines(["INCONCLUSIVE test_release.py::test_function: *: needs * distinct episodes*"])


def test_a_policy_no_better_than_chance_proves_nothing(project):
    (project.path / "coin.py").write_text(BAD)
    project.makeini("[pytest]\npythonpath = .\n")
    project.makepyfile(
        test_release="""
        def test_it(assert_quantizable):
            found = assert_quantizable("coin:net", "coin:Coin", "fp16", margin=0.5, strict=False)
            assert found.outcome == "undecidable"
            assert found.low > found.threshold
            assert "proves nothing" in found.caveats[-1]
    """
    )
    result = run_inside(project)
    assert result.parseoutcomes() == {"undecidable": 1}
    needs = "UNDECIDABLE test_release.py::test_it: *: needs a policy that beats random play"
    result.stdout.fnmatch_lines([needs, "test_release.py::test_it: *: fp32 does not beat random play (mean return *"])
    result = run_inside(project, "--quarl-strict")
    assert result.parseoutcomes() == {"failed": 1}
    result.stdout.fnmatch_lines(["*Undecided: *; fp32 does not beat random play (mean return *; train it first"])


def test_a_damaged_measurement_is_told_in_other_projects_too(project):
    project.makepyfile(
        test_release=f"""
        def test_fixture(assert_quantizable):
            assert_quantizable({str(POLICIES / "ppo-cartpole-seed0")!r}, scheme="w8", margin=0.5, episodes=3)
    """
    )
    run_inside(project)
    for file in (project.path / "cache").rglob("*.json"):
        file.write_text("{")
    run_inside(project).stdout.fnmatch_lines(["note: stored measurement was damaged and made again: *"])


def test_what_cannot_be_priced_says_why(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)  # as without the extra
    subject = open_subject(POLICIES / "ppo-cartpole-seed0")
    first, second = price_artefacts(subject, ["int8"], ("dump", "onnx"))
    assert first.bytes
    assert "pip install 'quarl_bench[onnx]'" in second.reason


def test_a_fixture_that_is_undecided_stops_what_needs_it(project):
    """And its row is there."""
    (project.path / "coin.py").write_text(BAD)
    project.makeini("[pytest]\npythonpath = .\n")
    project.makepyfile(
        test_release="""
        import pytest

        @pytest.fixture
        def shipped(assert_quantizable):
            return assert_quantizable("coin:net", "coin:Coin", "w4", margin=0.02, episodes=40)

        def test_one(shipped):
            raise ValueError("this ran")

        @pytest.fixture
        def gate(shipped):
            pass

        def test_two(gate):
            raise ValueError("this ran")

        def test_three(assert_quantizable):
            assert_quantizable("coin:net", "coin:Coin", "w4", margin=0.02, episodes=40)
    """
    )
    result = run_inside(project, "--quarl-json", "rows.json")
    assert result.parseoutcomes() == {"errors": 2, "failed": 1}
    rows = json.loads((project.path / "rows.json").read_text())["rows"]
    assert [row["verdict"] for row in rows] == ["inconclusive"] * 3


def test_a_failure_reads_like_a_claim(project):
    shutil.copytree(EXAMPLE, project.path, dirs_exist_ok=True)
    (project.path / "test_release.py").write_text(
        "def test_it(assert_quantizable):\n    assert_quantizable('rover:controller', 'rover:Dock', 'int2')\n"
    )
    result = run_inside(project)
    assert result.parseoutcomes() == {"failed": 1}
    line = r".*ClaimRefuted: rovercontroller-roverdockv0-int2: int2 costs rover:controller at most 5% of the return on "
    result.stdout.re_match_lines(
        [line + r"rover.Dock-v0: refuted: 0\.\d+ \[.*\] against 0\.95, this policy, 1 x 100 .*"]
    )


def test_what_cannot_be_checked_is_one_line(project):
    project.makepyfile("def test_it(assert_quantizable):\n    assert_quantizable('no-such-policy', scheme='int8')\n")
    result = run_inside(project)
    assert result.parseoutcomes() == {"failed": 1}
    result.stdout.fnmatch_lines(["PolicyError: *no-such-policy*"])
    assert "Traceback" not in result.stdout.str()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"sutton_barto_reward": True}, "sutton_barto_reward=True"),
        ({"max_episode_steps": 50}, "max_episode_steps=50"),
        ({}, "TransformReward"),
    ],
)
def test_a_live_model_is_not_played_in_another_environment(changes, name):
    made = gymnasium.make("CartPole-v1", **changes)
    model = PPO("MlpPolicy", made if changes else gymnasium.wrappers.TransformReward(made, abs), device="cpu")
    with pytest.raises(PolicyError, match=f"its CartPole-v1 has {name}, which the id alone does not give"):
        open_subject(model)
    assert open_subject(model, "CartPole-v1").environment.id == "CartPole-v1"


def test_a_live_model_a_policy_and_a_module(cache):
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, policy_kwargs={"net_arch": [4]}, device="cpu", seed=0)
    subject = open_subject(model)
    assert (subject.environment.id, subject.stored.metadata["algo"]) == ("CartPole-v1", "ppo")
    policy = extract(model)
    assert open_subject(policy, "cartpole").stored.sha256 == subject.stored.sha256
    assert assert_quantizable(model, None, "fp16", episodes=8, margin=0.5).scope == "this policy"
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    assert open_subject(module, "CartPole-v1").environment == find_environment("cartpole")


def test_dropout_is_a_matter_of_training(cache):
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
    with_dropout = torch.nn.Sequential(first, torch.nn.Tanh(), torch.nn.Dropout(0.5), second)
    without = torch.nn.Sequential(first, torch.nn.Tanh(), second)
    found = [open_subject(module, "CartPole-v1").stored.sha256 for module in (with_dropout, without)]
    assert found[0] == found[1]
    assert with_dropout.training  # left as it was
    normed = torch.nn.Sequential(torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4)).eval(), second)
    normed(torch.ones(1, 4))  # its weight is the result of a computation now
    first, second = (part.training for part in normed)
    open_subject(normed, "CartPole-v1")
    assert [part.training for part in normed] == [first, second] == [False, True]


@pytest.mark.parametrize(
    ("policy", "env", "named", "message"),
    [
        (3, "cartpole", {}, "int is no policy"),
        (torch.nn.Linear(4, 2), None, {}, "a network alone"),
        (torch.nn.Linear(3, 2), "cartpole", {}, "cannot be called on observations"),
        (torch.nn.Linear(4, 2), 3, {}, "3 is no environment"),
        (torch.nn.Linear(4, 2), "cartpole", {"alg": "ppo"}, "env_kwargs, algo, normalization and arch"),
    ],
)
def test_other_things_are_refused(cache, policy, env, named, message):
    with pytest.raises((SpecError, PolicyError), match=message):
        assert_quantizable(policy, env, **named)


def test_outside_of_pytest_both_are_failures(cache, monkeypatch):
    assert issubclass(Undecided, AssertionError)
    assert issubclass(ClaimRefuted, AssertionError)


def test_a_folder_of_the_zoo(cache, capsys):
    if not POLICIES.is_dir():
        pytest.skip(f"no policies in {POLICIES}")
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, policy_kwargs={"net_arch": [4]}, device="cpu", seed=0)
    folder = cache / "ppo" / "CartPole-v1_1"
    folder.mkdir(parents=True)
    model.save(folder / "CartPole-v1.zip")
    command = ["evaluate", str(folder), "--episodes", "4", "--algo", "ppo", "--normalization", "none", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["environment"] == "CartPole-v1"
    model.save(folder / "best_model.zip")
    assert main(command) == 0, "the zip that is called like the folder is the agent"
    (folder / "CartPole-v1.zip").rename(folder / "other.zip")
    assert main(command) == 2
    assert "holds best_model.zip, other.zip; name one of them" in capsys.readouterr().err
