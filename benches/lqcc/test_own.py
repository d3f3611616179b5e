"""LQCC's sentences on our own runs: bits, Table 1, convergence, normalization, half precision, and exact integers.

Where configurations were not trained, the verdict is partial and lists them.
"""

from dataclasses import replace

import pytest

STATES = 100_000


@pytest.fixture
def runs(quarl_cells):
    """Our policies, as the sentences ask for them."""
    from quarl_bench.papers.lqcc.own_runs import Runs

    return Runs(quarl_cells)


@pytest.fixture
def tasks(claim, runs):
    """By task of the claim: fp32 returns of our policies, and those of a configuration."""
    return runs.find(claim.algo, [case.environment for case in claim.cases], claim.claim.origin)


@pytest.fixture
def arms(claim, runs):
    """Policies of the claim's cell, by scheme or, for other fp32 ones, by origin; None where there are none."""
    (case,) = claim.cases

    def find(*changes: dict[str, str]) -> list:
        return [runs.find_arm(replace(case, **change)) for change in changes]

    return case, find


@pytest.fixture
def judge(verdict, runs):
    """Takes the verdict on our runs, whose row says which policies they were."""

    def check(result, *, panels=()) -> None:
        verdict.check_result(result, panels=panels, runs=runs)

    return check


@pytest.mark.claim("lqcc-bits-own")
def test_every_part_needs_three_bits(claim, tasks, judge):
    from quarl_bench.papers.lqcc.figures import OURS, show_scopes
    from quarl_bench.papers.lqcc.sentences import judge_parity

    judge(judge_parity(tasks, "all", range(3, 9)), panels=show_scopes("Figure 1 (SAC)", OURS, tasks))


@pytest.mark.claim("lqcc-core-own")
def test_the_core_needs_three_bits(claim, tasks, runs, judge):
    from quarl_bench.papers.lqcc.figures import OURS, show_scopes
    from quarl_bench.papers.lqcc.sentences import judge_parity

    figure = {"sac": "Figure 1 (SAC)", "ddpg": "Figure 6 (DDPG, normalized)"}[claim.algo]
    panels = show_scopes(figure, OURS, tasks)
    if claim.algo == "ddpg":
        raw = runs.find(claim.algo, list(tasks), f"{claim.claim.origin}raw")
        panels += show_scopes("Figure 6 (DDPG, raw)", OURS, raw)
    judge(judge_parity(tasks, "core", range(3, 9)), panels=panels)


@pytest.mark.claim("lqcc-bottleneck-own")
def test_the_input_is_the_bottleneck(claim, tasks, judge):
    from quarl_bench.papers.lqcc.selection import Configuration
    from quarl_bench.papers.lqcc.sentences import judge_bottleneck

    judge(judge_bottleneck(tasks, Configuration.find_scope(claim.scheme)[0]))


@pytest.mark.claim("lqcc-output-least-own")
def test_output_bits_matter_less_than_the_cores(claim, tasks, judge):
    from quarl_bench.papers.lqcc.selection import Configuration
    from quarl_bench.papers.lqcc.sentences import judge_bottleneck

    judge(judge_bottleneck(tasks, Configuration.find_scope(claim.scheme)[0], "core"))


@pytest.mark.claim("lqcc-output-own")
def test_output_bits_do_not_matter(claim, tasks, judge):
    from quarl_bench.papers.lqcc.sentences import judge_output

    judge(judge_output(tasks, claim.claim.threshold))


@pytest.mark.claim("lqcc-two-bit-output-own", "lqcc-halfcheetah-bits-own")
def test_fewer_bits_cost_return(claim, tasks, judge):
    from quarl_bench.papers.lqcc.selection import Configuration
    from quarl_bench.papers.lqcc.sentences import judge_cost

    judge(judge_cost(tasks, Configuration.parse(claim.scheme)))


@pytest.mark.claim("lqcc-halfcheetah-width-own")
def test_narrower_layers_cost_return(claim, tasks, judge):
    from quarl_bench.papers.lqcc.selection import WIDTHS, Configuration
    from quarl_bench.papers.lqcc.sentences import judge_cost

    narrow = Configuration.parse(claim.scheme)
    judge(judge_cost(tasks, narrow, replace(narrow, width=WIDTHS[-1])))


@pytest.mark.claim("lqcc-input-bits-own")
def test_behind_a_small_core_fewer_input_bits_do(claim, tasks, judge):
    from quarl_bench.papers.lqcc.sentences import judge_input_bits, read_printed

    judge(judge_input_bits(tasks, read_printed(claim.claim)))


@pytest.mark.claim("lqcc-two-bit-core-own", "lqcc-ddpg-walker2d-own")
def test_three_tasks_do_with_a_core_of_two_bits(claim, tasks, judge):
    from quarl_bench.papers.lqcc.sentences import judge_parity

    judge(judge_parity(tasks, "core", (2,)))


@pytest.mark.claim("lqcc-ddpg-gains-own")
def test_quantized_ddpg_returns_more(claim, tasks, judge):
    from quarl_bench.papers.lqcc.sentences import FEW, judge_gain

    judge(judge_gain(tasks, "all", FEW))


@pytest.mark.claim("lqcc-ddpg-raw-own")
def test_quantized_ddpg_matches_the_stronger_baseline(claim, runs, judge):
    from quarl_bench.papers.lqcc.sentences import judge_parity

    origin, environments = claim.claim.origin, [case.environment for case in claim.cases]
    found = judge_parity(runs.find(claim.algo, environments, origin, f"{origin}raw"), "core", range(3, 9))
    missing = tuple(f"{gap}, raw" if gap.endswith(": fp32") else gap for gap in found.missing)
    judge(replace(found, missing=missing))


@pytest.mark.claim("lqcc-ddpg-two-bit-core-own")
def test_a_core_of_two_bits_costs_ddpg_return(claim, tasks, judge):
    from quarl_bench.judging.retention import reverse
    from quarl_bench.papers.lqcc.selection import Configuration
    from quarl_bench.papers.lqcc.sentences import judge_gain

    scope, bits = Configuration.find_scope(claim.scheme)
    judge(reverse(judge_gain(tasks, scope, (bits,))))


@pytest.mark.claim("lqcc-table1-own")
def test_the_rule_selects_what_is_printed(claim, tasks, judge):
    """Figures 4 and 5 are drawn around what the rule selects on our runs, where these settle it."""
    from quarl_bench.papers.lqcc.figures import OURS, show_steps
    from quarl_bench.papers.lqcc.sentences import judge_table, read_printed, replay

    printed = read_printed(claim.claim)
    ours = {task: selection.configuration for task, selection in replay(tasks)[0].items()}
    judge(judge_table(tasks, printed), panels=show_steps(OURS, tasks, printed | ours))


@pytest.mark.claim("lqcc-parity-own")
def test_selected_configurations_match(claim, tasks, judge):
    from quarl_bench.papers.lqcc.sentences import judge_selected, read_printed

    judge(judge_selected(tasks, read_printed(claim.claim)))


@pytest.mark.claim(
    "lqcc-convergence-humanoid",
    "lqcc-convergence-walker2d",
    "lqcc-convergence-ant",
    "lqcc-convergence-halfcheetah",
    "lqcc-convergence-hopper",
)
def test_a_selected_net_converges_as_fp32_does(claim, arms, judge):
    from quarl_bench.papers.lqcc.arms import judge_convergence
    from quarl_bench.papers.lqcc.figures import show_learning
    from quarl_bench.papers.lqcc.own_runs import read_curves

    case, find = arms
    found = {name: arm for name in ("fp32", case.scheme) for arm in find({"scheme": name}) if arm is not None}
    missing = [f"{case.environment}: {name}" for name in ("fp32", case.scheme) if name not in found]
    curves = {name: read_curves(arm) for name, arm in found.items()}
    result = judge_convergence(None if missing else tuple(curves.values()), claim.claim.threshold, missing)
    judge(result, panels=show_learning(case.environment, curves))


@pytest.fixture
def precisions(arms):
    """Learning curves in fp32 and bf16, and what is missing of them."""
    from quarl_bench.papers.lqcc.own_runs import read_curves

    case, find = arms
    names = {"fp32": case.origin, "bf16": f"{case.origin}bf16"}
    found = {name: arm for name, origin in names.items() for arm in find({"origin": origin}) if arm is not None}
    missing = [f"{case.environment}: {origin}" for name, origin in names.items() if name not in found]
    return {name: read_curves(arm) for name, arm in found.items()}, missing


@pytest.mark.claim("lqcc-half-precision")
def test_half_precision_learns_as_fp32_does(claim, precisions, judge):
    from quarl_bench.papers.lqcc.arms import judge_same_learning
    from quarl_bench.papers.lqcc.figures import show_learning

    curves, missing = precisions
    result = judge_same_learning(None if missing else tuple(curves.values()), claim.claim.threshold, missing)
    judge(result, panels=show_learning(claim.cases[0].environment, curves, "bf16"))


@pytest.mark.claim("lqcc-half-precision-end")
def test_half_precision_ends_where_fp32_does(claim, precisions, judge):
    """Before they learn, all policies return alike, and most of a learning curve may be that."""
    from quarl_bench.papers.lqcc.arms import judge_same_learning, settle_curves

    curves, missing = precisions
    arms = None if missing else tuple(curves.values())
    judge(judge_same_learning(arms, claim.claim.threshold, missing, settle_curves))


@pytest.mark.claim("lqcc-normalization")
def test_normalized_observations_return_more(claim, verdict):
    """From the printed table: the authors' files hold the normalized half of it only."""
    from quarl_bench.papers.lqcc.arms import judge_normalization
    from quarl_bench.papers.lqcc.figures import PRINTED, read_normalization, show_normalization
    from quarl_bench.spec import Source

    tasks = read_normalization(claim.claim)
    panels = show_normalization(PRINTED, tasks)
    verdict.check_result(judge_normalization(tasks), Source.PUBLISHED, panels=panels)


@pytest.mark.claim("lqcc-normalization-own", "lqcc-ddpg-normalization-own")
def test_our_normalized_observations_return_more(claim, runs, judge):
    """SAC's; the paper's DDPG loses by it in fp32."""
    from quarl_bench.judging.retention import reverse
    from quarl_bench.papers.lqcc.arms import judge_normalization
    from quarl_bench.papers.lqcc.figures import OURS, show_normalization
    from quarl_bench.papers.lqcc.parity import Summary

    arms = {
        case.environment: [runs.find_arm(replace(case, origin=origin)) for origin in (f"{case.origin}raw", case.origin)]
        for case in claim.cases
    }
    found, gaps = runs.find_pairs(arms)
    tasks = {task: tuple(map(Summary.of, pair)) for task, pair in found.items()}
    found = judge_normalization(tasks, [f"{task}: raw and normalized, two policies of each" for task in gaps])
    panels = () if claim.algo == "ddpg" else show_normalization(OURS, tasks)  # Table 6 is SAC's
    judge(reverse(found) if claim.algo == "ddpg" else found, panels=panels)


@pytest.mark.claim("lqcc-sac-over-ddpg-own")
def test_sac_returns_more_than_ddpg(claim, runs, judge):
    from quarl_bench.papers.lqcc.arms import judge_higher

    arms = {
        case.environment: [runs.find_arm(replace(case, algo=algo)) for algo in ("sac", "ddpg")] for case in claim.cases
    }
    found, gaps = runs.find_pairs(arms)
    tasks = {task: (ddpg, sac, ddpg) for task, (sac, ddpg) in found.items()}
    judge(judge_higher(tasks, [f"{task}: SAC and DDPG, two policies of each" for task in gaps]))


@pytest.mark.claim("lqcc-integers")
def test_integers_act_as_the_trained_net(claim, arms, judge):
    from quarl_bench.evaluation.rollouts import CALIBRATION_SEEDS, collect_observations
    from quarl_bench.experiments.cells import environment_for
    from quarl_bench.papers.lqcc.integer_agreement import compare_forwards, judge_agreement

    case, find = arms
    (arm,) = find({})
    found = [
        compare_forwards(
            member.policy,
            collect_observations(member.policy, environment_for(member.stored, case), STATES, CALIBRATION_SEEDS),
        )
        for member in (() if arm is None else arm.members)
    ]
    judge(judge_agreement(found, claim.claim.threshold, () if found else (case.id,)))
