"""ActorQ's claims on made-up records: pairing, ratios, what never arrives, and verdicts either way."""

import json

import pytest

from quarl_bench.actorq.breakdown import LEARNING
from quarl_bench.actorq.record import PARTS
from quarl_bench.errors import MissingBaseline, StoreError
from quarl_bench.judging.claim import expand_claims
from quarl_bench.papers.actorq.judgements import OnPairs, Regime
from quarl_bench.papers.actorq.sentences import (
    VARIABLE,
    collect_pairs,
    judge_rate,
    judge_ratio,
    judge_time,
    pair_records,
    read_records,
)
from quarl_bench.papers.registry import read_catalog
from quarl_bench.spec import Outcome
from tests.support.records import make_pairs


@pytest.mark.parametrize(
    ("claim", "pairs", "outcome"),
    [
        ("actorq-time", make_pairs(0.4, noise=0.05), Outcome.SUPPORTED),
        ("actorq-time", make_pairs(1.0, noise=0.05), Outcome.REFUTED),
        ("actorq-time", make_pairs(0.66, noise=0.3), Outcome.INCONCLUSIVE),
        ("actorq-rate", make_pairs(0.4, noise=0.05), Outcome.SUPPORTED),
        ("actorq-rate", make_pairs(1.0, noise=0.05), Outcome.REFUTED),
        ("actorq-energy-rate", make_pairs(0.4, noise=0.05), Outcome.SUPPORTED),
        ("actorq-energy", make_pairs(0.4, noise=0.05), Outcome.SUPPORTED),
        ("actorq-step", make_pairs(0.2, noise=0.01), Outcome.SUPPORTED),
        ("actorq-step", make_pairs(0.9, noise=0.01), Outcome.REFUTED),
        ("actorq-return", make_pairs(0.5), Outcome.SUPPORTED),
        ("actorq-return", make_pairs(0.5, lose=0.2), Outcome.REFUTED),
    ],
)
def test_verdicts(claim, pairs, outcome):
    (found,) = [c for c in read_catalog() if c.id == claim]
    verdict = found.judgement.judge(pairs)
    assert verdict.outcome is outcome
    assert verdict.policies == 4


def test_every_claim_has_a_judge_and_an_item_per_task():
    claims = [c for c in read_catalog() if c.paper == "QuaRL, ActorQ"]
    assert all(isinstance(claim.judgement, OnPairs) for claim in claims)
    for claim in claims:
        items = [(item.algo, *{case.environment for case in item.cases}) for item in expand_claims(claim)]
        assert sorted(items) == sorted(list(claim.cells) * len(claim.schemes))


def test_a_run_that_never_arrives_is_said_and_decides_nothing_alone():
    pairs = make_pairs(0.4, noise=0.05)
    pairs[0][1]["curve"][-1]["mean"] = 100.0
    verdict = judge_time(pairs, 0.667)
    assert verdict.outcome is not Outcome.SUPPORTED
    assert any("1 of 4 runs never reach" in caveat for caveat in verdict.caveats)


def test_one_pair_decides_nothing():
    pairs = make_pairs(0.1)[:1]
    verdict = judge_ratio([0.1], pairs, 0.667)
    assert verdict.outcome is Outcome.UNDECIDABLE
    assert verdict.needed


def test_runs_are_paired_by_seed_and_options(tmp_path):
    for fp32, int8 in make_pairs(0.5):
        for record in (fp32, int8):
            s = record["settings"]
            (tmp_path / f"{s['precision']}-{s['seed']}.json").write_text(json.dumps(record))
    (tmp_path / "int8-3.json").unlink()
    pairs = pair_records(read_records(tmp_path), "dqn", "cartpole", "int8")
    assert [(a["settings"]["seed"], b["settings"]["seed"]) for a, b in pairs] == [(0, 0), (1, 1), (2, 2)]
    assert pair_records(read_records(tmp_path), "dqn", "acrobot", "int8") == []
    records = read_records(tmp_path)
    other = dict(records[0], settings=records[0]["settings"] | {"batch": 7})
    assert pair_records([*records, other], "dqn", "cartpole", "int8") == pairs
    with pytest.raises(StoreError, match="two records of one run"):
        pair_records([records[0].copy(), *records], "dqn", "cartpole", "int8")
    for damaged in ({}, *({key: records[0][key] for key in records[0] if key != gone} for gone in PARTS)):
        (tmp_path / "damaged.json").write_text(json.dumps(damaged))
        with pytest.raises(StoreError, match=r"damaged\.json: not the record"):
            read_records(tmp_path)


def learn_slowly(pairs, seconds):
    """The same runs with a learner that was busy for so long."""
    for record in (record for pair in pairs for record in pair):
        record["breakdown"] = {"steps": 10, "wall": dict.fromkeys(LEARNING, 0.0) | {"update": seconds}, "cpu": {}}
    return pairs


def test_where_the_learner_decides_nothing_is_refuted():
    """A learner that is busy for 90 of 100 seconds leaves a tenth to be had, whatever the actors do."""
    verdict = judge_time(learn_slowly(make_pairs(1.0, noise=0.05), 90.0), 0.667)
    assert verdict.outcome is Outcome.UNDECIDABLE
    assert "at best 0.87 could come out here, a ceiling of 1.14x (Amdahl)" in verdict.caveats
    assert "--calibrate" in verdict.needed
    assert judge_time(learn_slowly(make_pairs(1.0, noise=0.05), 60.0), 0.667).outcome is Outcome.REFUTED


def test_where_actors_take_little_cpu_time_fewer_seconds_of_it_are_undecidable():
    pairs = make_pairs(1.0, noise=0.05)
    for base, _ in pairs:
        base["cpu"] = 1000.0
    verdict = judge_time(pairs, 0.526, "cpu")
    assert verdict.outcome is Outcome.UNDECIDABLE
    assert "at best 0.91 could come out here, a ceiling of 1.10x (Amdahl)" in verdict.caveats


def test_actors_whose_threads_count_more_cpu_time_than_the_run_leave_no_floor():
    pairs = make_pairs(1.0, noise=0.05)
    for base, _ in pairs:
        base["cpu"] = 50.0
    verdict = judge_time(pairs, 0.526, "cpu")
    assert verdict.outcome is not Outcome.UNDECIDABLE
    assert "at best 0.00 could come out here, a ceiling of infx (Amdahl)" in verdict.caveats


def test_a_verdict_names_actors_sizes_and_load():
    pairs = make_pairs(0.4)
    assert judge_rate(pairs, 0.667).caveats[1:] == ("actors: 1, of 256x256", "under a load of 0.5 to 0.5")
    pairs[0][0]["gpu"] = "NVIDIA H100"
    assert "learner on NVIDIA H100" in judge_rate(pairs, 0.667).caveats


def test_runs_of_another_regime_are_not_judged(tmp_path, monkeypatch):
    for fp32, int8 in make_pairs(0.5)[:2]:
        for record, widths in ((fp32, [8]), (int8, [8])):
            record["settings"]["widths"] = widths
            s = record["settings"]
            (tmp_path / f"{s['precision']}-{s['seed']}.json").write_text(json.dumps(record))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (claim,) = [c for c in read_catalog() if c.id == "actorq-time"]
    (item,) = expand_claims(claim)
    assert len(collect_pairs(item, Regime(widths=(8,), actors=1)).own) == 2
    with pytest.raises(MissingBaseline, match=r"--widths 8 --actors 2`"):
        collect_pairs(item, Regime(widths=(8,), actors=2))
