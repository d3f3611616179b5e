"""ActorQ's claims, on the records of paired runs: `quarl actorq ... --precision fp32,fp16,int8` writes them.

$QUARL_ACTORQ_RUNS names their folder, by default `baselines/actorq`.
"""

import os
from pathlib import Path

import pytest

DEFAULT = Path(__file__).parents[2] / "baselines" / "actorq"


@pytest.fixture
def judge(claim, verdict):
    """Pairs of the claim's runs, judged by its rule; a skip where there are none."""
    from quarl_bench.papers.actorq.sentences import JUDGES, pair_records, read_records

    folder = Path(os.environ.get("QUARL_ACTORQ_RUNS", DEFAULT))
    (cell,) = [case for case in claim.cases if case.scheme == claim.scheme]
    pairs = pair_records(read_records(folder), cell.algo, cell.environment, cell.scheme)
    if not pairs:
        pytest.skip(
            f"no paired runs of {cell.algo} {cell.environment} in {folder}: make them with "
            f"`quarl actorq {cell.algo} {cell.environment} --precision fp32,{cell.scheme} --seeds 0..2`"
        )
    return lambda: verdict.check_result(JUDGES[claim.claim.id](pairs, claim.claim.threshold))


@pytest.mark.claim("actorq-time")
def test_time_to_the_fp32_return(claim, judge):
    judge()


@pytest.mark.claim("actorq-return")
def test_no_loss_of_return(claim, judge):
    judge()


@pytest.mark.claim("actorq-step")
def test_a_step(claim, judge):
    judge()


@pytest.mark.claim("actorq-pull")
def test_pull_and_deserialize(claim, judge):
    judge()


@pytest.mark.claim("actorq-load")
def test_fp16_loads_are_expensive(claim, judge):
    judge()


@pytest.mark.claim("actorq-energy")
def test_cpu_seconds_to_the_fp32_return(claim, judge):
    judge()
