"""LQCC's sentences about two arms, its figures as data, and those figures on the page."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from quarl_bench.errors import SpecError
from quarl_bench.papers.lqcc.arms import average_curves, judge_convergence, judge_normalization, judge_same_learning
from quarl_bench.papers.lqcc.figures import (
    OURS,
    read_normalization,
    show_learning,
    show_normalization,
    show_scopes,
    show_selection,
    show_steps,
)
from quarl_bench.papers.lqcc.integer_agreement import compare_forwards, judge_agreement
from quarl_bench.papers.lqcc.parity import Summary, compare, compare_summaries
from quarl_bench.papers.lqcc.selection import Configuration, list_steps, select
from quarl_bench.papers.registry import read_catalog
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.report.page.html import render_report
from quarl_bench.report.page.kinds.multi_panel import draw_panels, view_panels
from quarl_bench.report.page.plots import render_svg
from quarl_bench.spec import Outcome
from tests.support.learned import make_learned
from tests.support.rows import CLAIM, make_document, to_rows
from tests.support.strategies import normal

STATES = 100_000
FP32 = np.array([90.0, 100.0, 110.0])


def make_curves(*heights, steps=(10, 20, 30)):
    return [[{"timesteps": step, "mean": height + step} for step in steps] for height in heights]


def test_the_mean_over_a_learning_curve_is_compared():
    curves = make_curves(100, 102, 104)
    assert average_curves(curves, "x").tolist() == [120, 122, 124]
    slow = make_curves(40, 42, 44)
    assert judge_convergence((curves, slow), 0.05).outcome is Outcome.REFUTED
    assert judge_convergence((slow, curves), 0.05).outcome is Outcome.SUPPORTED  # faster is no fault
    assert judge_same_learning((slow, curves), 0.05).outcome is Outcome.REFUTED
    same = judge_same_learning((curves, curves), 0.05)
    assert (same.outcome, same.estimate) == (Outcome.SUPPORTED, 0.0)
    assert judge_same_learning((make_curves(60, 160), curves), 0.05).outcome is Outcome.INCONCLUSIVE
    missing = judge_convergence(None, 0.05, ["hopperv4: fp32"])
    assert (missing.outcome, missing.missing) == (Outcome.PARTIAL, ("hopperv4: fp32",))


def test_arms_of_different_lengths_are_not_compared():
    with pytest.raises(SpecError, match="different numbers of steps"):
        judge_convergence((make_curves(1, 2), make_curves(1, 2, steps=(10, 20))), 0.05)
    with pytest.raises(SpecError, match="train them alike"):
        average_curves([*make_curves(1), *make_curves(2, steps=(5,))], "x")


def test_summaries_give_the_interval_of_their_returns():
    rng = np.random.default_rng(0)
    base, other = rng.normal(100, 10, 10), rng.normal(90, 30, 8)
    assert compare_summaries(Summary.of(base), Summary.of(other)) == pytest.approx(compare(base, other))
    verdict = judge_normalization({"one": (Summary.of(base), Summary.of(other))}, 0.0)
    theirs = scipy_stats.ttest_ind(other, base, equal_var=False).confidence_interval(0.9)
    assert (verdict.low, verdict.high) == pytest.approx([side / base.mean() for side in theirs])


def test_table_6_favours_normalized_observations():
    (claim,) = (claim for claim in read_catalog() if claim.id == "lqcc-normalization")
    tasks = read_normalization(claim)
    assert tasks["humanoidv4"] == (Summary(4700, 1400, 10), Summary(6300, 500, 10))
    verdict = judge_normalization(tasks, 0.0)
    assert verdict.outcome is Outcome.SUPPORTED
    assert verdict.estimate == pytest.approx(np.mean([0.1 / 5, 0.3 / 2.4, -0.5 / 11.6, 0.7 / 4.3, 1.6 / 4.7]))
    partial = judge_normalization({"hopperv4": tasks["hopperv4"]}, 0.0, ["antv4: raw and normalized"])
    assert (partial.outcome, partial.missing) == (Outcome.PARTIAL, ("antv4: raw and normalized",))
    assert partial.estimate == pytest.approx(0.125)


def find(configuration):
    run = {Configuration(3), Configuration(3, 16), Configuration(3, 16, 4), Configuration(2, output=2, input=2)}
    return FP32 - configuration.width / 100 if configuration in run else None


def make_panels():
    tasks = {"hopperv4": (FP32, find), "antv4": (np.empty(0), lambda _: None)}
    return [
        *show_scopes("Figure 1 (SAC)", OURS, tasks),
        *show_steps(OURS, tasks, {"hopperv4": Configuration(3, 16, 4)}),
        *show_learning("hopperv4", {"fp32": make_curves(100, 104), "i4c3o8h16": make_curves(99, 103)}),
        *show_normalization(OURS, {"hopperv4": (Summary(90, 5, 3), Summary(100, 10, 3))}),
    ]


def test_panels_hold_what_was_run_and_nothing_else():
    scopes, widths, inputs, learning, table = make_panels()
    assert (scopes.task, set(scopes.series)) == ("hopperv4", {"all", "core"})
    assert scopes.series["core"][0].x == 3
    assert scopes.series["core"][0].mean == pytest.approx(100 - 2.56)
    assert (scopes.band.mean, scopes.band.sd) == (100.0, 10.0)
    assert [point.x for point in widths.series["core of 3 bits"]] == [16, 256]
    assert [point.x for point in inputs.series["i8c3o8h16"]] == [4, 8]
    assert [[point.x for point in panel.series["selected"]] for panel in (widths, inputs)] == [[16], [4]]
    assert [(p.x, p.mean) for p in learning.series["fp32"]] == [(10, 112), (20, 122), (30, 132)]
    assert learning.series["fp32"][0].sd == pytest.approx(np.sqrt(8))
    assert [point.mean for point in table.series["fp32"]] == [90, 100]


def test_a_selection_is_drawn_step_by_step():
    def by_width(configuration):
        return FP32 - {256: 0, 16: 50, 32: 5}.get(configuration.width, 0) - (60 if configuration.input < 8 else 0)

    found = select(FP32, by_width, steps=list_steps(core=(2, 3), widths=(16, 32), inputs=(4, 6)))
    core, width, inputs = show_selection(OURS, found)
    assert [panel.axis for panel in (core, width, inputs)] == ["core bits", "hidden width", "input bits"]
    assert [place.x for place in core.series["tried"]] == [2]
    assert [(place.x, place.mean) for place in width.series["tried"]] == [(16, 50), (32, 95)]
    assert [place.x for place in width.series["chosen"]] == [32]
    assert [place.x for place in inputs.series["tried"]] == [4, 6]
    assert "chosen" not in inputs.series  # nothing matched; the step before stays
    assert (inputs.band.mean, inputs.band.sd) == (100.0, 10.0)


def test_the_page_draws_every_figure_once_and_builds_without_any():
    rows = [CLAIM | {"panels": json.loads(json.dumps([panel.as_dict() for panel in make_panels()]))}]
    titles = [view.title for view in view_panels(to_rows([*rows, *rows]))]
    assert titles == [f"{name}: our runs" for name in ("Figure 1 (SAC)", "Figure 2", "Figure 4", "Figure 5", "Table 6")]
    svg = render_svg(draw_panels(next(view_panels(to_rows(rows)))), "x")
    assert all(word in svg for word in ("hopperv4", "fp32", "core", "bits"))
    page = render_report([make_document(rows)])
    assert all(title in page for title in titles)
    bare = render_report([make_document([CLAIM])])
    assert not any(title in bare for title in titles)


def make_controller(scheme):
    net = IntegerNet.from_quantized(make_learned(scheme, nets=1).export(0), Requantization.THRESHOLDS)
    rng = np.random.default_rng(5)
    normalization = Normalization(rng.normal(0, 2, 11), rng.uniform(0.1, 9, 11), 10.0)
    high = np.array([0.4, 1.0, 2.0], dtype=np.float32)
    return IntegerPolicy(
        ObservationTransform((11,), normalization=normalization), net, ActionHead(HeadKind.TANH, -high, high)
    )


@pytest.mark.parametrize("scheme", ["i6c2o8", "i8c3o8", "i8c8o8", "i3c2o2wide"])
def test_from_the_raw_state_to_the_action_only_ties_of_the_input_differ(scheme):
    policy = make_controller(scheme)
    states = normal(np.random.default_rng(7), STATES, 11, spread=4.0)
    found = compare_forwards(policy, states)
    assert (found.states, found.outputs) == (STATES, 0)
    assert found.actions <= found.inputs <= STATES * 11 * 1e-4  # float32 against float64, in 11 values a state
    assert found.tie < 1e-4
    verdict = judge_agreement([found], 0.999)
    assert verdict.outcome is Outcome.SUPPORTED
    assert "0 of 100,000 states differ in an output integer" in verdict.caveats[0]


def test_a_wrong_threshold_is_found():
    policy = make_controller("i8c3o8")
    states = normal(np.random.default_rng(7), 5_000, 11, spread=4.0)
    damaged = replace(policy.net)
    damaged.__dict__["_thresholds"] = tuple(thresholds + 1 for thresholds in policy.net._thresholds)
    found = compare_forwards(replace(policy, net=damaged), states)
    assert found.outputs > 50
    assert found.actions > 50
    verdict = judge_agreement([found, compare_forwards(policy, states)], 0.999)
    assert verdict.outcome is Outcome.REFUTED
    raw = replace(policy, transform=ObservationTransform((11,)))
    with pytest.raises(SpecError, match="normalizes"):
        compare_forwards(raw, states)
    assert judge_agreement([], 0.999, ["here"]).missing == ("here",)
