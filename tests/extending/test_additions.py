"""One file outside the package adds a thing; what the commands and pytest then do with it.

The files are those of the pages in docs/extending, whose own commands tests/test_docs.py runs.
"""

import os
from functools import partial

import pytest

from tests.support import commands
from tests.support.distributions import install, install_project
from tests.support.forks import run_python
from tests.support.pages import DOCS, read_files
from tests.support.places import ROOT
from tests.support.sizes import choose

STEPS = ("--steps", choose(300, 600))  # which the recipe has
run_commands = partial(commands.run_commands, process=choose(("-c", commands.BRIEF), commands.PROCESS))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Makes the project of a page in the working directory, as an installed distribution."""
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))

    def make(page):
        for name, text in read_files(DOCS / "extending" / f"add_{page}.md").items():
            (tmp_path / name).write_text(text)
        install_project(tmp_path)
        return tmp_path

    return make


def test_an_algorithm_is_trained_with_quantizers_and_proven(project):
    longer = ("train", "twin", "pendulum", "--output", "fp32", *STEPS), ("check", "fp32", "--episodes", 2, "--json")
    trained, proven, unknown, *checked = run_commands(
        project("algorithm"),
        ("train", "twin", "pendulum", "--scheme", "qat4", "--output", "policy", "--json", *STEPS),
        ("prove", "policy", "--episodes", 1, "--backends", "integer,qat", "--json"),
        ("train", "twinn", "pendulum"),
        *choose((), longer),
    )
    assert trained.result["policy"] == "twin-pendulum-qat4-seed0"
    assert proven.result["equal"]
    assert [row["reason"] for row in proven.result["rows"]] == ["", ""]
    assert all(made.result["environment"] == "Pendulum-v1" for made in checked[1:])
    assert unknown.code == 2
    assert "unknown algorithm 'twinn'; did you mean 'twin'?" in unknown.stderr


def test_a_live_model_of_it_is_known_by_its_name(project):
    folder = project("algorithm")
    code = (
        "import twin; from quarl_bench.policies.sources.sb3.model import extract, name_algorithm;"
        "model = twin.Twin('MlpPolicy', 'Pendulum-v1', policy_kwargs={'net_arch': [4]});"
        "print(name_algorithm(model), extract(model).head.kind)"
    )
    done = run_python("-c", code, cwd=folder, check=True)
    assert done.stdout.split() == ["twin", "tanh"]


def test_a_backend_is_checked_proven_and_played(project):
    policy = ("controller:make", "--environment", "CartPole-v1")
    checked, proven, played, refused = run_commands(
        project("backend"),
        ("check", *policy, "--episodes", 2, "--json"),
        ("prove", *policy, "--episodes", 1, "--backends", "plain", "--json"),
        ("evaluate", *policy, "--scheme", "int8", "--backend", "json", "--episodes", 2, "--json"),
        ("deploy", *policy, "--scheme", "w8", "--backend", "plain", "--output", "x"),
    )
    costs = {(cost["backend"], cost["scheme"]): cost for cost in checked.result["costs"]}
    assert costs["plain", "int8"]["bytes"] > 0
    assert costs["plain", "fp32"]["reason"] == "plain: perceptrons in integers only; use an int<bits> scheme"
    assert [row["executor"] for row in proven.result["rows"]] == ["integer", "plain"]
    assert proven.result["equal"]
    assert played.result["backend"]["name"] == "plain"
    assert refused.code == 2
    assert refused.stderr.startswith("quarl deploy: plain: perceptrons in integers only")


@pytest.mark.needs("litert", "nice")
def test_a_transport_reaches_a_board(project):
    (state,) = run_commands(project("board"), ("board", "quiet", "--boards", "quiet.toml", "--json"))
    assert (state.result["board"], state.result["source"]) == ("quiet", "measured")


def test_a_source_is_checked(project):
    folder = project("source")
    (folder / "bad.gains").write_text("a b")
    checked, bad = run_commands(folder, ("check", "balance.gains", "--episodes", 2, "--json"), ("check", "bad.gains"))
    assert (checked.result["environment"], checked.result["return"]) == ("CartPole-v1", 500.0)
    assert bad.code == 2
    assert bad.stderr.count("\n") == 1


def test_a_paper_brings_cases(project):
    folder = project("claim")
    run_python("make_policies.py", cwd=folder, check=True)
    command = ("-m", "pytest", "-p", "no:cacheprovider", "test_ours.py", "-v")
    done = run_python(*command, cwd=folder)
    assert "test_our_report[ppo-cartpole-int6] PASSED" in done.stdout, done.stdout
    install(folder, "glue", {"quarl_bench.papers": {"glue": "no_such_module:X"}})
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    done = run_python(*command, cwd=folder)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("paper 'glue' of glue 1.0 does not load (ModuleNotFoundError") == 1


def test_what_does_not_load_is_one_line_in_every_command(project, tmp_path):
    folder = project("source")
    groups = ("algorithms", "backends", "transports", "sources", "papers")
    install(tmp_path, "glue", {f"quarl_bench.{group}": {"glue": "no_such_module:X"} for group in groups})
    (played,) = run_commands(folder, ("evaluate", "balance.gains", "--episodes", 2))
    assert "return 500" in played.stdout
    line = "note: source 'glue' of glue 1.0 does not load (ModuleNotFoundError: No module named 'no_such_module'); "
    assert played.stderr.splitlines() == [line + "mend or uninstall it"]
    (priced,) = run_commands(folder, ("check", "balance.gains", "--episodes", 2))
    assert [line.split(" of ")[0] for line in priced.stderr.splitlines() if line.startswith("note")] == [
        "note: source 'glue'",
        "note: backend 'glue'",
    ]
    (named,) = run_commands(folder, ("deploy", "balance.gains", "--backend", "glue", "--output", "x"))
    assert named.code == 2
    assert "quarl deploy: backend 'glue' of glue 1.0 does not load" in named.stderr


def test_two_distributions_with_one_name_are_named(project, tmp_path):
    folder = project("backend")
    install(tmp_path, "other", {"quarl_bench.backends": {"plain": "plain:PLAIN"}})
    policy = ("controller:make", "--environment", "cartpole")
    (done,) = run_commands(folder, ("deploy", *policy, "--output", "x"))
    assert done.code == 2
    assert done.stderr.count("\n") == 1
    assert "backend 'plain' is given twice, by " in done.stderr
    assert "other 1.0" in done.stderr
    assert "plain 1.0" in done.stderr
