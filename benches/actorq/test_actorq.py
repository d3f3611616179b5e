"""ActorQ's claims, on the records of paired runs: `quarl actorq ... --precision fp32,fp16,int8` writes them.

$QUARL_ACTORQ_RUNS names their folder, by default `baselines/actorq`.
"""

import pytest


@pytest.mark.claim(
    "actorq-time",
    "actorq-time-walker",
    "actorq-time-cheetah",
    "actorq-rate",
    "actorq-rate-walker",
    "actorq-rate-finger",
    "actorq-rate-small",
    "actorq-rate-most",
    "actorq-return",
    "actorq-return-walker",
    "actorq-return-cheetah",
    "actorq-step",
    "actorq-pull",
    "actorq-load",
    "actorq-energy",
    "actorq-energy-rate",
)
def test_paired_runs(claim, cells, verdict):
    verdict.check_cells(cells)
