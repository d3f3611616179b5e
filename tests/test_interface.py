"""What `import quarl_bench` gives: cheap to import, hidden by no module, and the same as the command."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

import quarl_bench
from quarl_bench.cli import main
from quarl_bench.errors import PolicyError, QuantizationError, SpecError
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.spec import Measurement, Outcome
from quarl_bench.version import __version__
from tests.support.places import ROOT
from tests.support.strategies import make_linear_policy

HEAVY = ("torch", "numpy", "gymnasium", "pytest")
BALANCER = make_linear_policy(np.outer([-1.0, 1.0], [0.02, 0.2, 1.0, 0.6]))  # 500 steps of CartPole


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_the_import_costs_nothing():
    program = (
        "import sys, time; start = time.process_time(); import quarl_bench; dir(quarl_bench); "
        f"print(time.process_time() - start, *(name for name in {HEAVY} if name in sys.modules))"
    )
    seconds = []
    for _ in range(3):
        spent, *loaded = run(program).split()
        assert not loaded
        seconds.append(float(spent))
    assert min(seconds) < 0.02


def test_no_module_hides_a_name():
    """Importing a module sets its name on the package that it is in."""
    for found in pkgutil.walk_packages(quarl_bench.__path__, "quarl_bench."):
        if not found.name.endswith("__main__"):
            with suppress(ImportError, quarl_bench.QuarlError):
                importlib.import_module(found.name)
    for name in quarl_bench.__all__:
        assert not inspect.ismodule(getattr(quarl_bench, name)), name
    assert set(quarl_bench.__all__) <= set(dir(quarl_bench))
    assert quarl_bench.__version__ == __version__
    policy = quarl_bench.load_policy(BALANCER)
    assert isinstance(policy, quarl_bench.Policy)
    assert isinstance(quarl_bench.quantize(policy, "w8"), quarl_bench.Policy)
    assert quarl_bench.evaluate(policy, "cartpole", episodes=2).mean == 500.0
    assert quarl_bench.check(policy, "cartpole", episodes=2).asked == "int8"
    repaired = quarl_bench.repair(policy, "cartpole", episodes=2)
    assert "forms of one policy" in str(repaired)
    assert repaired.as_dict()["asked"] == "int8"
    verdict = quarl_bench.assert_quantizable(policy, "cartpole", "fp16", margin=0.5, episodes=8)
    assert isinstance(verdict, quarl_bench.Verdict)
    assert quarl_bench.Scheme.parse("int8").integer
    with pytest.raises(quarl_bench.QuarlError):
        quarl_bench.Scheme.parse("int")
    with pytest.raises(AttributeError, match="it has Policy, QuarlError"):
        quarl_bench.nothing  # noqa: B018


def test_no_room_imports_the_root():
    """It would close a circle: the root names what is above."""
    for path in sorted((ROOT / "quarl_bench").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert "quarl_bench" not in named, f"{path}:{node.lineno}"


def test_the_answer_is_what_the_command_prints(tmp_path, capsys):
    path = tmp_path / "ppo-cartpole-seed0"
    save_policy(BALANCER, path, {"algo": "ppo", "environment": "CartPole-v1"})
    assert main(["check", str(path), "--episodes", "20"]) == 3
    printed, answer = capsys.readouterr().out, quarl_bench.check(path, episodes=20)
    before = "what it costs"  # times differ from call to call
    assert str(answer).partition(before)[0] == printed.partition(before)[0]
    assert answer.verdict.outcome is Outcome.INCONCLUSIVE
    assert answer.as_dict()["recommendation"] == answer.recommendation == printed.splitlines()[-1]
    shown = answer._repr_html_()
    assert shown.count("<tr>") == 1 + len(answer.lines)
    assert "ppo-cartpole-seed0 on CartPole-v1: int8 inconclusive" in shown
    with pytest.raises(AttributeError):
        answer.margin = 0.5


@pytest.mark.parametrize("episodes", [0, -1, 2.5, "20", 10_001, None])
@pytest.mark.parametrize(
    "call", [quarl_bench.check, quarl_bench.evaluate, quarl_bench.assert_quantizable, quarl_bench.repair]
)
def test_episodes_are_a_whole_number(call, episodes):
    with pytest.raises(SpecError, match=f"^episodes {re.escape(repr(episodes))}: give a whole number from 1 to 10000$"):
        call(BALANCER, "cartpole", episodes=episodes)


def test_a_quantized_policy_is_played_where_it_is_told():
    integers = quarl_bench.quantize(BALANCER, "int8", "cartpole")
    found = quarl_bench.evaluate(integers, "CartPole-v1", episodes=3)
    assert isinstance(found, Measurement)
    assert found.mean > 400
    with pytest.raises(SpecError, match="names no environment; pass env"):
        quarl_bench.evaluate(integers)
    with pytest.raises(PolicyError, match="cannot play Acrobot"):
        quarl_bench.evaluate(integers, "acrobot")
    with pytest.raises(SpecError, match="names no environment"):
        quarl_bench.quantize(BALANCER, "int8")
    with pytest.raises(QuantizationError, match="trained"):
        quarl_bench.quantize(BALANCER, "qat8", "cartpole")
    with pytest.raises(SpecError, match="None is no policy"):
        quarl_bench.check(None)
