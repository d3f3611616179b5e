"""Figure 5: levels and times of learning curves, the verdicts on them, and the curves' way from manifest to page."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import SpecError
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.judging.claim import expand_claims
from quarl_bench.judging.convergence import (
    find_level,
    find_time,
    find_times,
    judge_convergence,
    judge_sooner,
    read_curves,
)
from quarl_bench.papers.registry import read_catalog
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.report.documents import Document
from quarl_bench.report.page.html import render_report
from quarl_bench.report.page.kinds.mixed_precision import view_convergence
from quarl_bench.report.rows.builder import build_row, show_cells
from quarl_bench.spec import Outcome
from tests.support.rows import ROWS
from tests.support.stores import make_policy

CAPS = {"dqn-catchb": 10.0, "dqn-catchc": 10.0}


def make_curve(*means):
    return [{"timesteps": 100 * (i + 1), "mean": float(mean)} for i, mean in enumerate(means)]


def make_ramp(start, top=10.0):
    """From 0 to `top` within 200 steps behind `start`."""
    return make_curve(*(min(max((100 * (i + 1) - start) / 200, 0), 1) * top for i in range(20)))


def make_runs(plain, arm, cell="dqn-catchb"):
    return {cell: (plain, arm)}


def test_a_level_is_the_mean_of_the_last_quarter():
    assert find_level(make_curve(0, 0, 0, 4)) == 4
    assert find_level(make_curve(*[0] * 15, *[6, 7, 8, 9, 10])) == 8


@given(st.integers(0, 1500))
def test_a_time_lies_between_two_points(start):
    assert find_time(make_ramp(start), 8.0) == pytest.approx(start + 160, abs=60)


def test_a_run_that_never_gets_there_took_all_its_time():
    flat = make_curve(0, 1, 2)
    assert find_time(flat, 8.0) is None
    assert find_times([flat, make_curve(0, 8, 9)], 10.0) == [300.0, 200.0]
    assert find_time(make_curve(9, 9), 8.0) == pytest.approx(100 * 8 / 9)


def test_the_same_levels_do_no_harm():
    plain = [make_ramp(start, top) for start, top in ((400, 10), (500, 9.9), (600, 9.8))]
    arm = [make_ramp(start, top) for start, top in ((500, 9.9), (600, 10), (500, 9.8))]
    verdict = judge_convergence(make_runs(plain, arm), CAPS, margin=0.05)
    assert verdict.outcome is Outcome.SUPPORTED
    assert abs(verdict.estimate) < 0.01
    assert any("steps to a return of 8" in caveat for caveat in verdict.caveats)
    worse = [make_ramp(400, top) for top in (6, 6.2, 6.1)]
    assert judge_convergence(make_runs(plain, worse), CAPS, margin=0.05).outcome is Outcome.REFUTED
    noisy = [make_ramp(400, top) for top in (10, 2, 9.9)]
    assert judge_convergence(make_runs(plain, noisy), CAPS, margin=0.05).outcome is Outcome.INCONCLUSIVE


def test_cells_are_averaged():
    plain = [make_ramp(400, top) for top in (10, 9.9, 9.8)]
    worse = [make_ramp(400, top) for top in (9, 9.1, 8.9)]
    both = make_runs(plain, [*reversed(plain)]) | make_runs(plain, worse, "dqn-catchc")
    verdict = judge_convergence(both, CAPS, margin=0.05)
    assert verdict.estimate == pytest.approx(-0.045, abs=0.005)
    assert verdict.policies == 3


def test_sooner_is_a_ratio_of_times():
    plain, arm = ([make_ramp(start) for start in starts] for starts in ((800, 840, 900), (300, 350, 340)))
    verdict = judge_sooner(make_runs(plain, arm), CAPS)
    assert verdict.outcome is Outcome.SUPPORTED
    assert verdict.estimate == pytest.approx(2, abs=0.3)
    assert judge_sooner(make_runs(arm, plain), CAPS).outcome is Outcome.REFUTED
    mixed = [make_ramp(start) for start in (300, 1500, 800)]
    assert judge_sooner(make_runs(plain, mixed), CAPS).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_or_no_spread_decide_nothing(seeds):
    runs = make_runs([make_ramp(400)] * seeds, [make_ramp(400)] * seeds)
    verdict = judge_convergence(runs, CAPS, margin=0.05)
    assert (verdict.outcome, verdict.low) == (Outcome.UNDECIDABLE, None)
    assert judge_sooner({}, CAPS, missing=["dqn-catchb"]).outcome is Outcome.PARTIAL


def test_a_policy_without_a_curve_is_one_line():
    with pytest.raises(SpecError, match="stored without its learning curve"):
        read_curves([{"curve": make_curve(1)}, {}], "dqn-catchb-bf16")


def test_curves_travel_from_manifests_to_the_page(tmp_path):
    folder = tmp_path / "baselines" / "policies"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for size in "ab":
        for seed in range(3):
            for origin in ("", "-bf16"):
                ramp = make_ramp(int(rng.integers(300, 600)), float(rng.uniform(9.8, 10)))
                save_policy(make_policy(), folder / f"dqn-catch{size}{origin}-seed{seed}", {"curve": ramp})
    cells = Cells(Store(StorePaths(tmp_path / "cache", tmp_path / "baselines")), Protocol(3, 5), tmp_path)
    claims = {claim.id: claim for claim in read_catalog()}
    (sooner,), (converges,) = (expand_claims(claims[f"figure5-{name}"]) for name in ("sooner", "converges"))
    found = sooner.claim.judgement.collect(cells, sooner)
    assert list(found.runs) == ["dqn-catchb"]
    assert {name: len(curves) for name, curves in found.runs["dqn-catchb"].items()} == {"fp32": 3, "bf16": 3}
    verdict = sooner.claim.judgement.decide(sooner, found)
    assert verdict.policies == 3
    every = converges.claim.judgement.collect(cells, converges)
    assert len(every.runs) == 2
    partial = converges.claim.judgement.decide(converges, every)
    assert partial.outcome is Outcome.PARTIAL
    assert partial.missing == ("dqn-catchc-fp32", "dqn-catchc-fp32-bf16")
    parts = ((sooner, found, verdict), (converges, every, partial))
    rows = [build_row(item, judged, nodeid="x", **show_cells(cells)) for item, cells, judged in parts]
    titles = [view.title for view in view_convergence(rows)]
    assert titles == ["convergence: dqn-catcha", "convergence: dqn-catchb"]
    page = render_report([Document("r.json", {"schema_version": 1, "rows": [*ROWS, *(row.as_dict() for row in rows)]})])
    assert all(title in page for title in titles)
