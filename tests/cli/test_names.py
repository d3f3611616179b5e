"""What people type first: nothing, a misspelling, a name from elsewhere; and lists of what there is."""

import json

import pytest

from quarl_bench.cli import main
from quarl_bench.environments.registry import list_environments
from quarl_bench.experiments.policy_source import CARRIED, find_baseline, list_baselines
from quarl_bench.policies.storage.fp32 import load_policy

EMPTY = {"schema_version": 1, "rows": []}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Outside of a checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_nothing_typed_is_help(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: quarl")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["chek", "agent.zip"], "did you mean 'check'?"),
        (["list", "claim"], "did you mean 'claims'?"),
        (["check", "ppo-cartpole-sed0"], "did you mean ppo-cartpole-seed0?"),
        (["check", "ppo-cartpole-seed0", "--scheme", "int-8"], "did you mean 'int8'?"),
        (["check", "ppo-cartpole-seed0", "--environment", "CartPole-v7"], "did you mean cartpole or cartpolenovel?"),
        (["train", "ppo", "CartPole-v7"], "did you mean cartpole or cartpolenovel?"),
    ],
)
def test_a_misspelling_is_answered_with_what_was_meant(arguments, hint, capsys):
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert hint in line


def test_one_policy_is_everywhere(capsys):
    assert list_baselines() == ["ppo-cartpole-seed0"]
    assert load_policy(find_baseline(CARRIED / "ppo-cartpole-seed0")).metadata["environment"] == "CartPole-v1"
    assert main(["evaluate", "ppo-cartpole-seed0", "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["mean"] == 500.0


@pytest.mark.parametrize("kind", ["policies", "environments", "schemes", "backends", "boards", "claims"])
def test_everything_has_a_list(kind, capsys):
    assert main(["list", kind, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[kind]
    assert main(["list", kind]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(found)
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[kind] == len(found) > 0


def test_our_short_names_are_listed_with_their_ids(capsys):
    main(["list", "environments", "--json"])
    found = json.loads(capsys.readouterr().out)["environments"]
    assert found["cartpole"] == "CartPole-v1"
    assert len(found) == len(list_environments())
