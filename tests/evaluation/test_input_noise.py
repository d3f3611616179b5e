"""Noise on the normalized observation: paired, counted, and integrated; and the arm without training."""

from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import PolicyError, QuarlError, SpecError
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.experiments.cells import Cells, PolicySet
from quarl_bench.experiments.member import LazyPolicy
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.judging.retention import judge_retention
from quarl_bench.papers.lqcc.noise_robustness import NoiseCurve, compare_points, measure_noise
from quarl_bench.policies.clipping import ClipCounter, count_clipped
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.policies.storage.integers import StoredIntegers
from quarl_bench.spec import Case, Measurement, Outcome
from tests.support.strategies import make_net

PENDULUM = find_environment("pendulum")
LIMIT = np.full(1, 2, dtype=np.float32)


def make_policy(seed=0, clip=10.0):
    normalization = Normalization(np.zeros(3), np.ones(3), clip)
    head = ActionHead(HeadKind.TANH, -LIMIT, LIMIT)
    return PolicyNet(ObservationTransform((3,), normalization=normalization), make_net(3, 8, 8, 1, seed=seed), head)


def make_curve(*rows, sigmas=(0.0, 0.5)):
    points = tuple(
        Measurement(
            policies=tuple("abc"),
            environment_seeds=tuple(range(len(row))),
            episodes=tuple(f"seed-{i}" for i in range(len(row))),
            returns=tuple(tuple(float(v) + 0.01 * p for v in row) for p in range(3)),
            lengths=((1,) * len(row),) * 3,
        )
        for row in rows
    )
    return NoiseCurve(sigmas, points)


def test_without_noise_it_is_the_usual_evaluation():
    policy, seeds = make_policy(), range(5)
    quiet = roll_out(policy, PENDULUM, seeds, sigma=0.0)
    usual = roll_out(policy, PENDULUM, seeds)
    np.testing.assert_allclose(quiet.returns, usual.returns)
    assert np.array_equal(quiet.lengths, usual.lengths)


def test_noise_belongs_to_its_seed():
    policy = make_policy()
    together = roll_out(policy, PENDULUM, [3, 8, 5], sigma=0.3).returns
    alone = [roll_out(policy, PENDULUM, [seed], sigma=0.3).returns[0] for seed in (3, 8, 5)]
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert not np.allclose(together, roll_out(policy, PENDULUM, [3, 8, 5], sigma=0.2).returns)


def test_what_lies_beyond_the_clip_is_counted():
    observations = np.array([[0.1, 0.6, -0.2], [-7.0, 0.4, 0.5]], dtype=np.float32)
    for clip, clipped in ((10.0, 0), (0.5, 3)):
        plain = make_policy(clip=clip)
        policy, counter = count_clipped(plain)
        assert np.array_equal(policy.act(observations), plain.act(observations))
        assert (counter.seen, counter.clipped, counter.share) == (6, clipped, clipped / 6)
    assert counter.describe() == "3 of 6 observed values were clipped by the normalization (0.5)"
    raw, nothing = count_clipped(replace(plain, transform=ObservationTransform((3,))))
    raw.act(observations)
    assert nothing == ClipCounter(0, 0)


def test_noise_has_a_standard_deviation():
    with pytest.raises(PolicyError, match="at least 0"):
        roll_out(make_policy(), PENDULUM, [0], sigma=-0.1)
    with pytest.raises(PolicyError, match="one episode"):
        roll_out(make_policy(), PENDULUM, [], sigma=0.1)


def test_areas_are_trapezoids_and_shares_of_the_own_clean_return():
    curve = make_curve([10, 12], [6, 8], [0, 2], sigmas=(0.0, 0.1, 0.5))
    area = np.array(curve.area.returns)
    assert area[0].tolist() == pytest.approx([(0.1 * 8 + 0.4 * 3) / 0.5, (0.1 * 10 + 0.4 * 5) / 0.5])
    assert np.array(curve.relative_area.returns)[0].tolist() == pytest.approx((area[0] / 11).tolist())
    noisy = make_curve([10, 12], [6, 8], [0, 2], [4, 8], sigmas=(0.0, 0.1, 0.3, 0.5)).noisy_area
    assert np.array(noisy.returns)[0].tolist() == pytest.approx([2, 5])
    (line,) = compare_points(make_curve([10.0], [5.0]), make_curve([10.0], [4.0]))  # one episode: nothing to say
    assert "the ratio is" in line
    with pytest.raises(SpecError, match="fewer than two levels"):
        curve.noisy_area  # noqa: B018


def test_a_worse_policy_can_be_the_more_robust_one():
    rng = np.random.default_rng(0)
    clean = 100 + rng.normal(0, 1, 40)
    fp32, quantized = make_curve(clean, clean * 0.2), make_curve(clean * 0.5, clean * 0.4)
    assert judge_retention(fp32.area, quantized.area).outcome is Outcome.REFUTED
    relative = judge_retention(fp32.relative_area, quantized.relative_area)
    assert relative.outcome is Outcome.SUPPORTED
    assert relative.estimate == pytest.approx(0.9 / 0.6, rel=1e-3)


@pytest.mark.parametrize("sigmas", [(0.1, 0.2), (0.0,), (0.0, 0.1, 0.2)])
def test_ill_formed_curves_are_refused(sigmas):
    with pytest.raises(SpecError, match="begin at 0"):
        make_curve([1.0, 2.0], [1.0, 2.0], sigmas=sigmas)
    with pytest.raises(SpecError, match="not positive"):
        make_curve([-1.0, 0.0], [0.0, 0.0]).relative_area  # noqa: B018


def test_the_untrained_arm_and_its_curve_go_through_the_store(tmp_path):
    cells = Cells(Store(StorePaths(tmp_path)), Protocol(policies=2, episodes=3), tmp_path)
    stored = [StoredPolicy(make_policy(seed), f"{seed}" * 64, {}) for seed in (0, 1)]
    members = tuple(LazyPolicy(one, lambda one=one: one.policy) for one in stored)
    policies = PolicySet(Case("sac", "pendulum", "fp32", "lqcch8"), members)
    arm = cells.quantize(policies, "i8c8o8ptq")
    assert arm.case.id == "sac-pendulum-i8c8o8ptq-lqcch8"
    assert all(isinstance(policy, IntegerPolicy) for policy in arm.policies)
    curve = measure_noise(cells, arm, (0.0, 0.5))
    assert np.shape(curve.area.returns) == (2, 3)
    assert curve.points[0].mean == pytest.approx(cells.measure(arm).mean)
    close = measure_noise(cells, policies, (0.0, 0.5)).points[0].mean
    assert curve.points[0].mean == pytest.approx(close, rel=0.1)
    integers = StoredIntegers(arm.policies[0], "2" * 64, {})
    again = cells.quantize(replace(policies, members=(LazyPolicy(integers, lambda: integers.policy),)), "i8c8o8ptq")
    with pytest.raises(QuarlError, match="holds integers"):
        again.policies[0]
