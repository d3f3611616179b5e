"""ActorQ's claims on made-up records: pairing, ratios, what never arrives, and verdicts either way."""

import json

import pytest

from quarl_bench.errors import StoreError
from quarl_bench.judging.claim import expand_claims
from quarl_bench.papers.actorq.judgements import OnPairs
from quarl_bench.papers.actorq.sentences import judge_ratio, judge_time, pair_records, read_records
from quarl_bench.papers.registry import read_catalog
from quarl_bench.spec import Outcome
from tests.support.records import make_pairs


@pytest.mark.parametrize(
    ("claim", "pairs", "outcome"),
    [
        ("actorq-time", make_pairs(0.4, noise=0.05), Outcome.SUPPORTED),
        ("actorq-time", make_pairs(1.0, noise=0.05), Outcome.REFUTED),
        ("actorq-time", make_pairs(0.66, noise=0.3), Outcome.INCONCLUSIVE),
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
    verdict = judge_ratio([0.1], pairs, 0.667, [])
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
    (tmp_path / "damaged.json").write_text("{}")
    with pytest.raises(StoreError, match=r"damaged\.json: not the record"):
        read_records(tmp_path)
