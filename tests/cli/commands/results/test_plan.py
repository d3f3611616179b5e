"""`quarl plan`: which policies would decide a claim."""

import json

import pytest

from quarl_bench.report.stored import merge_stored
from tests.support.places import ROOT
from tests.support.rows import make_row

CASE = {"claim": "table2-cell", "algo": "dqn", "env": "acrobot", "id": "dqn-acrobot-int8"}
RUN = {"commit": "1", "settings": {}, "machine": {}, "schema_version": 2, "skipped": []}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Write a results file, beside a folder with eight DQN policies of Acrobot; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(*rows, **changes):
        for seed in range(8):
            folder = tmp_path / "baselines" / "policies" / f"dqn-acrobot-seed{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            manifest = {"recipe": {"timesteps": 1000}, "run": {"seconds": 360}}
            (folder / "manifest.json").write_text(json.dumps(manifest))
        (tmp_path / "results.json").write_text(json.dumps(RUN | {"rows": [*rows]} | changes))
        return "results.json"

    return write


def plan(quarl_json, *arguments):
    return quarl_json("plan", *arguments)["plans"]


def test_policies_that_would_decide(results, quarl, quarl_json):
    row = make_row("int8", 1.0, "inconclusive", **CASE, interval=[0.9, 1.1])
    name = results(row)
    (found,) = plan(quarl_json, "dqn-acrobot-int8", "table2-cell", "--results", name)[:1]
    assert (found["id"], found["answer"], found["outcome"]) == (
        "dqn-acrobot-int8",
        "decided by more policies",
        "supported",
    )
    (arm,) = found["train"]
    assert arm["seeds"] == list(range(8, found["policies"]))
    assert found["hours"] == pytest.approx(0.1 * len(arm["seeds"]))
    assert (arm["steps"], arm["basis"]) == (1000, "recorded")
    text = quarl("plan", "--all", "--results", name)[1]
    assert f"train dqn acrobot, seeds 8..{found['policies'] - 1}, 1,000 steps each" in text


def test_policies_that_are_there_are_played_first(results, quarl_json):
    row = make_row("int8", 1.0, "inconclusive", **CASE, interval=[0.94, 1.06])
    (found,) = plan(quarl_json, "--all", "--results", results(row))
    assert (found["train"], found["hours"]) == ([], 0)
    assert "they are there: run it again" in found["why"]


def test_what_seeds_cannot_decide(results, quarl_json):
    near = make_row("int8", 0.951, "inconclusive", **CASE, interval=[0.85, 1.05])
    zoo = make_row("w8", 0.96, "inconclusive", claim="zoo-cell", origin="zoo", algo="dqn", env="cartpole",
                   id="dqn-cartpole-w8-zoo", needed="about 300 distinct episodes")  # fmt: skip
    time = make_row("int8", 1.0, "inconclusive", claim="table4-speed", kind="timing", id="ppo-quadx1-int8-local",
                    board="local", algo="ppo", env="quadx1")  # fmt: skip
    theirs = make_row("i8c8o3", 0.0, "inconclusive", claim="lqcc-output", kind="claim", id="sac-output-i8c8o3",
                      source="published", measured={}, reference={}, paper=None)  # fmt: skip
    found = plan(quarl_json, "--all", "--results", results(near, zoo, time, theirs))
    assert {each["answer"] for each in found} == {"cannot be decided by more seeds"}
    reasons = {each["id"]: each["why"] for each in found}
    assert "if the estimate, 0.951, is the truth, 100 policies" in reasons["dqn-acrobot-int8"]
    assert reasons["dqn-cartpole-w8-zoo"] == "its agents are others', one of each; about 300 distinct episodes"
    assert "times or sizes" in reasons["ppo-quadx1-int8-local"]
    assert "their authors'" in reasons["sac-output-i8c8o3"]


def test_one_policy_and_no_policy(results, quarl_json):
    one = {"mean": 200.0, "policies": 1, "episodes": 100, "distinct_episodes": 99}
    alone = make_row("int8", 0.96, "inconclusive", **CASE, measured=one, reference=one)
    found = plan(quarl_json, "dqn-acrobot-int8", "dqn-cartpole-w8", "--results", results(alone))
    told = {each["id"]: each for each in found if each["claim"] == "table2-cell"}
    assert {each["answer"] for each in told.values()} == {"needs its first policies"}
    assert "does not show how policies differ" in told["dqn-acrobot-int8"]["why"]
    assert told["dqn-cartpole-w8"]["train"][0]["seeds"] == [0, 1, 2]
    assert told["dqn-cartpole-w8"]["verdict"] is None


def test_what_is_decided_and_what_no_row_tells(results, quarl_json):
    row = make_row("int8", 0.5, "refuted", **CASE, line="refuted: 0.5")
    found = {each["id"]: each for each in plan(quarl_json, "table2-cell", "--results", results(row))}
    assert (found["dqn-acrobot-int8"]["answer"], found["dqn-acrobot-int8"]["why"]) == (
        "decided already",
        "refuted: 0.5",
    )
    assert found["dqn-acrobot-w8"]["answer"] == "not planned"
    assert "no numbers of dqn-acrobot-w8 are stored" in found["dqn-acrobot-w8"]["why"]
    assert plan(quarl_json, "--all", "--results", "results.json") == []


def test_stored_verdicts_are_read_as_results_are(results, quarl_json):
    row = make_row("int8", 1.0, "inconclusive", **CASE, interval=[0.9, 1.1])
    stored = merge_stored({"runs": [], "rows": []}, RUN | {"rows": [row]}, "2026-01-01", {"table2-cell": {row["id"]}})
    name = results(**stored)
    assert [each["answer"] for each in plan(quarl_json, "--all", "--results", name)] == ["decided by more policies"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name claims or cases, or pass --all for every one that is undecided: one of the two"),
        (
            ("table2-cell", "--all"),
            "name claims or cases, or pass --all for every one that is undecided: one of the two",
        ),
        (
            ("table2-cel",),
            "'table2-cel' is no claim, case or item; did you mean 'table2-cell'? `quarl list claims` names",
        ),
        (
            ("results.json",),
            "'results.json' is no claim, case or item; a results file stands behind --results; `quarl list claims`",
        ),
        (
            ("table2-cell", "--results", "none.json"),
            "none.json: No such file or directory; name a file of --quarl-json",
        ),
        (("table2-cell", "--baselines", "none"), "none: no folder of trained policies; name one by --baselines"),
    ],
)
def test_wrong_input_is_one_line(results, quarl, arguments, told):
    results()
    more = () if "--results" in arguments else ("--results", "results.json")
    code, out, error = quarl("plan", *arguments, *more)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"quarl plan: {told}")


def test_the_committed_verdicts_have_plans(quarl_json, monkeypatch):
    monkeypatch.chdir(ROOT)
    for found in plan(quarl_json, "ppo-lunarlander-qat6", "dqn-acrobot-qat2", "spread-over-ppo"):
        decided = found["verdict"] in ("supported", "refuted")
        assert (found["answer"] == "decided already") == decided
        assert found["why"]
