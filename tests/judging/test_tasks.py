"""Sentences over tasks: sign flips, and on few tasks what is within them, with their error rates."""

import numpy as np
import pytest
import scipy.stats

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.average import measure_gain
from quarl_bench.judging.claim import over
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.rules.returns import Gains, Varies
from quarl_bench.judging.tasks import TaskMean, judge_gains, judge_order, judge_wider, pool_tasks
from quarl_bench.spec import Outcome
from tests.support.claims import make_item
from tests.support.measurements import measure_all
from tests.support.sizes import choose


@pytest.mark.parametrize("values", [[0.1, 0.3, 0.2, 1.2, 0.0], [0.5, 0.4, 0.0, 0.0, 0.3, 0.2]])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_tie_with_the_threshold_excludes_nothing(values, sign):
    """The p-value, a step function of the centre, is above 5% at 0: its step lies exactly there."""
    values = sign * np.array(values)
    assert stats.flip_signs(values)[0 if sign > 0 else 1] > stats.ERROR
    cells = dict(zip("abcdefg", values, strict=False))
    for verdict in (judge_gains(cells, policies=3), judge_order(cells, policies=3)):
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert verdict.low <= 0 <= verdict.high
    assert judge_wider({name: np.exp(v) for name, v in cells.items()}, policies=3).outcome is Outcome.INCONCLUSIVE


def test_gains_with_ties_are_rarely_called_supported():
    """Gains are symmetric around 0 and a third of the cells are equal: a definite verdict is as rare as the test's."""
    rng, draws, wrong = np.random.default_rng(0), choose(100, 300), 0
    for _ in range(draws):
        values = rng.normal(size=8).round(1) * (rng.random(8) > 0.3)
        verdict = judge_gains(dict(enumerate(values)), policies=3)
        exact = stats.flip_signs(values)
        assert (verdict.outcome is Outcome.SUPPORTED) <= (exact[0] <= stats.ERROR)
        assert (verdict.outcome is Outcome.REFUTED) <= (exact[1] <= stats.ERROR)
        wrong += verdict.outcome is Outcome.SUPPORTED
    assert wrong <= scipy.stats.binom.isf(0.02, draws, 0.05)


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_fewer_than_five_tasks_of_one_policy_each_decide_nothing(tasks):
    verdict = judge_wider({f"t{i}": 9.0 for i in range(tasks)}, policies=3)
    assert (verdict.outcome, verdict.low) == (Outcome.UNDECIDABLE, None)
    assert verdict.needed == f"two policies of each task, or 5 tasks; {tasks} are here"
    assert verdict.estimate == pytest.approx(9.0)


def test_five_tasks_decide_when_all_agree():
    ratios = dict(zip("abcde", [2.0, 3.0, 5.0, 2.5, 4.0], strict=True))
    wider, narrower = judge_wider(ratios, policies=3), judge_wider({k: 1 / v for k, v in ratios.items()}, policies=3)
    assert (wider.outcome, narrower.outcome) == (Outcome.SUPPORTED, Outcome.REFUTED)
    assert 1 < wider.low < wider.estimate < wider.high
    assert narrower.low == pytest.approx(1 / wider.high)


def test_one_task_the_other_way_leaves_five_undecided():
    assert judge_wider(dict(zip("abcde", [2, 3, 5, 2.5, 0.9], strict=True)), policies=3).outcome is Outcome.INCONCLUSIVE


def test_wider_errs_as_often_as_it_says():
    rng = np.random.default_rng(0)
    draws = [dict(enumerate(np.exp(rng.normal(0, 0.5, size=8)))) for _ in range(choose(100, 300))]
    wrong = sum(judge_wider(draw, policies=3).outcome is not Outcome.INCONCLUSIVE for draw in draws)
    assert wrong <= scipy.stats.binom.isf(1e-3, len(draws), 0.1)  # 5% on either side


def test_a_ratio_is_held_against_its_threshold():
    ratios = dict(zip("abcdefgh", [1.5, 1.6, 1.4, 1.55, 1.45, 1.5, 1.52, 1.48], strict=True))
    outcomes = [judge_wider(ratios, policies=3, threshold=threshold).outcome for threshold in (1.0, 1.5, 2.0)]
    assert outcomes == [Outcome.SUPPORTED, Outcome.INCONCLUSIVE, Outcome.REFUTED]


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_ratios_are_refused(ratio):
    with pytest.raises(SpecError, match="positive and finite"):
        judge_wider({"a": ratio}, policies=3)


def test_equal_ratios_give_no_interval():
    assert judge_wider(dict.fromkeys("abcdef", 2.0), policies=3).low is None


# --- few tasks -------------------------------------------------------------------------------------------------------


def draw_spreads(rng, ratio, policies, tasks, spread=0.2):
    """Per task, the spreads of two kinds of policies; the ratio of the tasks' geometric means is `ratio`."""
    apart = rng.normal(0, 0.5, tasks)
    shifts = np.log(ratio) + apart - apart.mean()
    return [[np.exp(mean + rng.normal(0, spread, policies)) for mean in (shift, 0.0)] for shift in shifts]


def judge_spreads(draws, **options):
    ratios = {f"t{i}": float(above.mean() / below.mean()) for i, (above, below) in enumerate(draws)}
    within = {f"t{i}": TaskMean.of_ratio(above, below) for i, (above, below) in enumerate(draws)}
    return judge_wider(ratios, policies=3, within=within, **options)


@pytest.mark.parametrize("tasks", [1, 2, 4])
@pytest.mark.parametrize("policies", [3, 8])
def test_few_tasks_err_as_seldom_as_they_say(tasks, policies):
    rng, draws = np.random.default_rng(5), 400
    outcomes = [judge_spreads(draw_spreads(rng, 1.0, policies, tasks)).outcome for _ in range(draws)]
    allowed = scipy.stats.binom.isf(1e-4, draws, 0.06)
    assert max(outcomes.count(Outcome.SUPPORTED), outcomes.count(Outcome.REFUTED)) <= allowed


def test_few_tasks_decide_about_themselves():
    rng = np.random.default_rng(0)
    verdict = judge_spreads(draw_spreads(rng, 4.0, 3, 2))
    assert (verdict.outcome, verdict.scope, verdict.needed) == (Outcome.SUPPORTED, "these 2 tasks", "")
    assert 1 < verdict.low < verdict.estimate < verdict.high
    assert judge_spreads(draw_spreads(rng, 0.25, 3, 2)).outcome is Outcome.REFUTED
    undecided = judge_spreads(draw_spreads(rng, 1.0, 3, 2))
    assert (undecided.outcome, undecided.needed) == (Outcome.INCONCLUSIVE, "more policies, or 5 tasks")
    partial = judge_spreads(draw_spreads(rng, 4.0, 3, 2), missing=("dqn-pong",))
    assert (partial.outcome, partial.scope) == (Outcome.PARTIAL, "these 2 tasks")
    assert partial.low > 1


def test_five_tasks_do_not_look_within():
    rng = np.random.default_rng(0)
    verdict = judge_spreads(draw_spreads(rng, 4.0, 3, 5))
    assert verdict.scope == "tasks like these"


def test_a_mean_within_a_task_is_that_of_its_policies():
    found = TaskMean.of([1.0, 2.0, 6.0])
    assert (found.mean, found.dof) == (3.0, 2)
    assert found.variance == pytest.approx(scipy.stats.sem([1.0, 2.0, 6.0]) ** 2)
    assert TaskMean.of([1.0]) is TaskMean.of_ratio([1.0], [2.0, 3.0]) is None
    above, below = np.array([2.0, 2.2, 1.8]), np.array([1.0, 1.1, 0.9])
    ratio = TaskMean.of_ratio(above, below)
    assert ratio.mean == pytest.approx(np.log(2))
    assert ratio.variance == pytest.approx(2 * (0.1**2) / 3)
    assert ratio.dof == pytest.approx(4)  # of two groups that vary alike: both count
    constant = TaskMean.of_ratio(np.ones(3), np.ones(4))
    assert (constant.variance, constant.dof) == (0.0, 2)
    pooled = pool_tasks({"a2c-t": found, "ppo-t": found, "ppo-u": None})
    assert pooled["u"] is None
    assert (pooled["t"].mean, pooled["t"].variance, pooled["t"].dof) == (3.0, found.variance / 2, pytest.approx(4))


def test_gains_on_few_tasks_are_judged_by_their_policies():
    rng = np.random.default_rng(0)
    base = 100 * (1 + 0.05 * rng.normal(size=(5, 40)))
    triples = {}
    for name in ("dqn-acrobot-qat8", "dqn-cartpole-qat8"):
        triples[name] = tuple(measure_all(r * base + rng.normal(size=base.shape)) for r in (1.0, 0.99, 0.8))
    item = make_item(Gains(0.0, "int8"), schemes=("qat8",), cells=over("dqn", "cartpole acrobot"))
    verdict = Gains(0.0, "int8").decide(item, Evidence(triples, policies=5))
    assert (verdict.outcome, verdict.scope) == (Outcome.SUPPORTED, "these 2 tasks")
    assert verdict.low < 0.19 < verdict.high
    assert measure_gain(*(measure_all(base[:1]) for _ in range(3))) is None


class TestVaries:
    """Whether returns differ more between policies under one scheme than under another."""

    ITEM = make_item(
        Varies(1.0, "w8"), schemes=("qat8",), slug="varies", pooled=True,
        cells=over("ppo", "cartpole acrobot lunarlander mountaincarcontinuous pendulum"),
    )  # fmt: skip

    def judge(self, sds, others):
        """The verdict on policies whose means have these SDs, task by task."""
        rng, pattern, measured = np.random.default_rng(5), np.array([[-1.0], [0.0], [1.0]]), {}
        for case, sd, other in zip(self.ITEM.cases, sds, others, strict=True):
            noise = rng.standard_normal((1, 20))
            plain = [measure_all(-100.0 + each * pattern + noise) for each in (0.0, sd, other)]
            measured[case.id] = tuple(plain)
        return self.ITEM.claim.judgement.decide(self.ITEM, Evidence(measured, policies=3))

    def test_the_ratio_is_that_of_the_spreads(self):
        verdict = self.judge([6.0, 6.6, 5.4, 6.3, 5.7], [2.0] * 5)
        assert verdict.outcome is Outcome.SUPPORTED
        assert verdict.estimate == pytest.approx(np.exp(np.mean(np.log([3.0, 3.3, 2.7, 3.15, 2.85]))))
        assert self.judge([2.0] * 5, [6.0, 6.6, 5.4, 6.3, 5.7]).outcome is Outcome.REFUTED

    def test_policies_that_do_not_differ_are_left_out(self):
        verdict = self.judge([6.0, 6.6, 5.4, 6.3, 0.0], [2.0] * 5)
        assert verdict.outcome is Outcome.UNDECIDABLE  # of four tasks
        assert "left out: policies of ppo-pendulum-qat8 do not differ" in verdict.caveats
        alike = self.judge([0.0] * 5, [2.0] * 5)
        assert (alike.outcome, alike.estimate) == (Outcome.PARTIAL, None)
