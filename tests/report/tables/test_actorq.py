"""The tables of docs/actorq.md, made of stored runs and of records."""

import json

import pytest

from quarl_bench.judging.times.contest import Contest
from quarl_bench.report.peers import read_run
from quarl_bench.report.tables.actorq import (
    list_broadcasts,
    list_changes,
    list_contenders_once,
    list_paired_runs,
    list_times,
    list_verdicts,
)
from quarl_bench.views.rows import Row
from tests.report.test_peers import CONTESTS, PEERS, RUN
from tests.support.places import ROOT
from tests.support.records import make_pairs

RECORDS = ROOT / "baselines" / "actorq"
WAYS = [f"{shipped} {form}" for shipped in ("fp32", "fp16", "int8") for form in ("plain", "zstd", "delta")]


def make_broadcast(plain=10_000.0, delta=2_000.0, made=3.0, taken=1.0):
    def fill(contest, unit, numbers):
        return Contest(f"3 x 30, {contest}", unit, {way: (numbers[way.split()[1]],) for way in WAYS})

    cost = {"plain": 0.0, "zstd": 2.0}
    return (
        fill("to make", "CPU ms", cost | {"delta": made}),
        fill("to take", "CPU ms", cost | {"delta": taken}),
        fill("sent", "bytes", {"plain": plain, "zstd": plain / 2, "delta": delta}),
    )


def test_a_contender_has_one_row():
    assert list_contenders_once(CONTESTS) == [
        ["", "a task, s", "files, bytes"],
        ["quarl", "1.5", "10"],
        ["other", "3", ""],
    ]


def test_broadcasts_are_a_share_of_fp32_and_two_costs():
    head, *rows = list_broadcasts(make_broadcast())
    assert head == ["fp32 bytes, hidden", "shipped", "plain", "zstd", "changes"]
    assert rows[0] == ["10 kB, 3 x 30", "fp32", "1.00; 0.0 + 0.0", "0.50; 2.0 + 2.0", "0.20; 3.0 + 1.0"]
    assert [row[1] for row in rows] == ["fp32", "fp16", "int8"]


def test_changes_pay_below_the_rate_that_is_told():
    run = RUN.add(make_broadcast()[0], 0, 0)
    for contest in make_broadcast()[1:]:
        run = run.add(contest, 0, 0)
    run = type(run).from_dict(run.as_dict() | {"contests": run.as_dict()["contests"][len(CONTESTS) :]})
    (line,) = list_changes(run)
    rate = (10_000 - 2_000) * 8 / 4e-3 / 1e9  # at which 4 ms of computing save as much of sending
    assert f"they thus pay below {rate:.2g} Gbit/s in fp32, {rate:.2g} Gbit/s in fp16" in line
    assert list_changes(None) == []


@pytest.mark.parametrize(("made", "taken"), [(0.0, 0.0), (1.0, -2.0)])
def test_changes_that_cost_nothing_pay_at_any_rate(made, taken):
    first, *rest = make_broadcast(made=made, taken=taken)
    run = type(RUN).from_dict(RUN.as_dict() | {"contests": []}).add(first, 0, 0)
    for contest in rest:
        run = run.add(contest, 0, 0)
    (line,) = list_changes(run)
    assert "they thus pay below any rate in fp32, any rate in fp16 and any rate in int8." in line


def test_the_sentence_on_precision_holds_in_the_stored_run():
    contests = read_run(PEERS / "runs" / "broadcast.json").contests
    smaller = [contest for contest in contests if contest.name.endswith((", sent", ", to make"))]
    assert smaller
    for contest in smaller:
        assert contest.find_median("int8 plain") < contest.find_median("fp32 delta"), contest.name


@pytest.mark.skipif(not RECORDS.is_dir(), reason="no records of ActorQ here")
def test_paired_runs_stand_beside_those_of_fp32(tmp_path):
    for precision, elapsed in (("fp32", 4.0), ("int8", 1.0)):
        source = RECORDS / f"dqn-cartpole-{precision}-seed0-a1-u100" / "record.json"
        (tmp_path / precision).mkdir()
        record = json.loads(source.read_text()) | {"elapsed": elapsed, "steps": 100}
        (tmp_path / precision / "record.json").write_text(json.dumps(record))
    head, _, row = list_paired_runs(tmp_path)
    assert head.startswith("| task | actors | steps/s, of fp32's | ceiling |")
    assert row.startswith("| DQN cartpole, 1 actor of 2 x 256 | int8 | 4.00 to 4.00 |")
    scores = record["scores"]  # of the int8 run
    assert row.endswith(f"| 500 | {scores['fp32']['mean']:.4g} | {scores['int8']['mean']:.4g} |")


def write_pairs(folder, pairs):
    for pair in pairs:
        for record in pair:
            settings = record["settings"]
            place = folder / f"{settings['precision']}-{settings['seed']}"
            place.mkdir()
            for point in record["curve"]:
                point["steps"] = 10 * point["elapsed"]
            (place / "record.json").write_text(json.dumps(record))


def test_times_to_a_return_stand_beside_the_twins(tmp_path):
    write_pairs(tmp_path, make_pairs(0.5)[:2])
    *_, row = list_times(tmp_path)
    assert row == (
        "| DQN cartpole, 1 actor of 2 x 256 | int8 | 100, 101 | 50, 50 | 0.50 [0.50, 0.50] | 0.50 [0.50, 0.50] | 0.5 |"
    )


def test_a_run_that_never_arrives_has_no_share_of_a_time(tmp_path):
    pairs = make_pairs(0.5)[:2]
    pairs[0][1]["curve"][-1]["mean"] = 100.0
    write_pairs(tmp_path, pairs)
    *_, row = list_times(tmp_path)
    assert row.endswith("| 100, 101 | never, 50 |  |  | 0.5 |")


def test_verdicts_of_one_paper_alone():
    told = {"kind": "claim", "verdict": "supported", "threshold": 0.5}
    rows = [
        Row(id="a", claim="actorq-x", algo="dqn", scheme="int8", estimate=0.4, interval=[0.3, 0.45], **told),
        Row(id="b", claim="table2-x", **told),
    ]
    *_, line = list_verdicts(rows)
    assert len(list_verdicts(rows)) == 3
    assert line == "| [actorq-x](claims.md#actorq-x) | DQN | int8 | 0.5 | 0.40 [0.30, 0.45], supported |"
