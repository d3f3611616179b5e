"""Table 5: who is timed against whom, what verdicts make of given times, and the fixtures around them."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
import torch
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from quarl_bench.errors import SpecError
from quarl_bench.judging.claim import expand_cases, expand_claims
from quarl_bench.judging.times.sessions import Session, Sessions
from quarl_bench.judging.times.step_times import (
    explain_kernels,
    explain_step_time,
    judge_step_time,
    judge_trend,
    list_ratios,
)
from quarl_bench.papers.registry import read_catalog
from quarl_bench.report.documents import Document
from quarl_bench.report.page.html import render_report
from quarl_bench.report.page.kinds.mixed_precision import view_step_times
from quarl_bench.report.rows.builder import build_row
from quarl_bench.report.rows.step_times import show_step_times
from quarl_bench.spec import Outcome
from quarl_bench.training.sb3.matmul_times import LeanLinear, list_kernels, multiply, time_call
from quarl_bench.training.sb3.step_times import (
    CONTENDERS,
    LEAN,
    MAX_OTHER_CORES,
    StepPlan,
    StepTimes,
    make_timed_model,
    measure_step_times,
)
from tests.support.mixed_precision import NOISE, make_step_times
from tests.support.rows import ROWS

GLANCE = StepPlan(blocks=2, seconds=0.0, calls=1, steps=0, sizes=("a", "c"), divisor=64)


def test_a_gain_is_over_the_faster_fp32():
    times = make_step_times((0.9, 1.2, 1.5))
    assert times.find_baseline("a") == "lean"
    assert times.list_gains("a", "bf16") == pytest.approx([0.9 * factor for factor in NOISE])
    assert times.list_gains("a", "bf16", "fp32") == pytest.approx([1.8 * factor for factor in NOISE])
    assert make_step_times((0.9, 1.2, 1.5), stock=0.5).find_baseline("a") == "fp32"


@pytest.mark.parametrize(
    ("gain", "opposite", "threshold", "outcome"),
    [
        (0.81, True, 1.1, Outcome.SUPPORTED),
        (1.3, True, 1.1, Outcome.REFUTED),
        (1.1, True, 1.1, Outcome.INCONCLUSIVE),
        (1.61, False, 1.0, Outcome.SUPPORTED),
        (0.81, False, 1.0, Outcome.REFUTED),
        (1.0, False, 1.0, Outcome.INCONCLUSIVE),
    ],
)
def test_one_policy(gain, opposite, threshold, outcome):
    verdict = judge_step_time(make_step_times((gain, 1, 1)), "ponga", "bf16", threshold, opposite=opposite)
    assert verdict.outcome is outcome
    assert verdict.low < verdict.estimate < verdict.high
    assert verdict.estimate == pytest.approx(gain, rel=1e-3)


@pytest.mark.parametrize(
    ("gains", "rises", "exceeds"),
    [
        ((0.81, 1.04, 1.61), Outcome.SUPPORTED, Outcome.SUPPORTED),
        ((1.2, 0.9, 1.6), Outcome.REFUTED, Outcome.SUPPORTED),
        ((1.6, 1.2, 0.9), Outcome.REFUTED, Outcome.REFUTED),
        ((1.0, 1.0, 1.5), Outcome.INCONCLUSIVE, Outcome.SUPPORTED),
    ],
)
def test_the_trend_over_sizes(gains, rises, exceeds):
    times = make_step_times(gains)
    # Shared noise cancels in ratios of gains; give every size its own.
    for size, order in zip("abc", ((0, 1, 2, 3), (1, 2, 3, 0), (2, 0, 1, 3)), strict=True):
        times.steps[f"{size}-lean"][:] = [times.steps[f"{size}-lean"][i] for i in order]
    names = ["ponga", "pongb", "pongc"]
    assert judge_trend(times, names, "bf16", 1.0).outcome is rises
    assert judge_trend(times, names, "bf16", 1.0, ends=True).outcome is exceeds


def test_earlier_sessions_widen_what_blocks_decide():
    """Gains that agree in this session, and not with those of other days."""
    times, day = make_step_times((1.3, 1.5, 1.9)), datetime(2026, 11, 1, 8, tzinfo=UTC)
    earlier = [
        Session(day + k * timedelta(days=1), list_ratios(make_step_times(gains)))
        for k, gains in enumerate([(1.2, 1.1, 1.5), (1.05, 1.3, 1.4), (1.4, 1.35, 1.2)])
    ]
    sessions = Sessions(tuple(earlier), date(2026, 11, 4))
    sizes = ["ponga", "pongb", "pongc"]
    for judge, what, threshold in ((judge_step_time, sizes[0], 1.1), (judge_trend, sizes, 1.0)):
        alone = judge(times, what, "bf16", threshold)
        covered = judge(times, what, "bf16", threshold, sessions=sessions)
        assert (alone.outcome, covered.outcome) == (Outcome.SUPPORTED, Outcome.INCONCLUSIVE)
        assert alone.scope == "these networks on a machine, this session"
        assert covered.scope == "these networks on a machine, 4 sessions on 4 days (5 on 2 days are wanted)"
        assert covered.needed == "more sessions: the ratio varies"


def test_void_times_decide_nothing():
    times = make_step_times((0.8, 1.0, 1.6), others=2 * MAX_OTHER_CORES)
    for verdict in (
        judge_step_time(times, "ponga", "bf16", 1.1, opposite=True),
        judge_trend(times, ["ponga", "pongc"], "bf16", 1.0),
    ):
        assert (verdict.outcome, verdict.low) == (Outcome.INCONCLUSIVE, None)
        assert "void: other processes used 0.20 cores" in verdict.needed


def test_both_baselines_are_named():
    lines = explain_step_time(make_step_times((0.9, 1.2, 1.5)), ["pongc"], "bf16")
    assert "3.00x fp32, 1.50x lean" in lines[0]
    assert "2.00 / 2.00 / 2.00 of stock fp32, 1.50 / 1.50 / 1.50 of onednn fp32" in lines[1]
    assert "stock" not in explain_kernels(replace(make_step_times((1, 1, 1)), kernels={}), "bf16")


def test_the_linear_layer_in_onednn_is_the_linear_layer():
    torch.manual_seed(0)
    plain = torch.nn.Linear(24, 16)
    lean = LeanLinear(24, 16)
    lean.load_state_dict(plain.state_dict())
    inputs = [torch.randn(8, 24).requires_grad_() for _ in range(1)] * 2
    gradients = []
    for layer in (plain, lean):
        inputs[0].grad = None
        layer(inputs[0]).square().sum().backward()
        gradients.append([inputs[0].grad.clone(), layer.weight.grad, layer.bias.grad])
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(multiply(inputs[0], plain.weight, plain.bias), plain(inputs[0]))


@pytest.mark.parametrize("size", ["a", "c"])
def test_contenders_are_the_same_network(size):
    images = DummyVecEnv([lambda: FakeImageEnv(6, 84, 84, 4, discrete=True, channel_first=True)])
    models = {name: make_timed_model(size, name, 32, images, "cpu") for name in CONTENDERS["cpu"]}
    states = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (16, 4, 84, 84), np.uint8))
    found = {}
    for name, model in models.items():
        values = model.q_net(states)
        values.square().mean().backward()
        found[name] = [values.detach(), *(p.grad for p in model.q_net.parameters())]
        assert all(map(torch.equal, model.policy.state_dict().values(), models["fp32"].policy.state_dict().values()))
    for values, expected in zip(found[LEAN], found["fp32"], strict=True):
        torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)
    error = (found["bf16"][0] - found["fp32"][0]).norm() / found["fp32"][0].norm()
    assert 2**-14 < error < 2**-6


def test_kernels_compute_the_same_product():
    calls = dict(list_kernels("cpu", ("bf16",)))
    assert set(calls) == {f"{n}-{kernel}" for n in (64, 256, 1024) for kernel in ("stock", "onednn", "bf16")}
    found = {name: call() for name, call in calls.items() if name.startswith("64")}
    torch.testing.assert_close(found["64-onednn"], found["64-stock"])
    assert found["64-bf16"].dtype == torch.float32
    assert 0 < float((found["64-bf16"] - found["64-stock"]).norm() / found["64-stock"].norm()) < 2**-6
    assert time_call(calls["64-stock"], 3, 0.0, "cpu") > 0


class FixedMeter:
    """A meter by which others use so many cores."""

    def __init__(self, cores):
        self.read = lambda: cores


@pytest.mark.parametrize(("others", "blocks"), [(0.0, 2), (0.15, 2), (1.0, 1)])
def test_a_glance_times_every_contender_as_long_as_times_may_count(others, blocks, monkeypatch):
    monkeypatch.setattr("quarl_bench.training.sb3.step_times.LoadMeter", lambda: FixedMeter(others))
    said = []
    threads = torch.get_num_threads()
    times = measure_step_times("cpu", GLANCE, said.append)
    assert torch.get_num_threads() == threads
    keys = {f"{size}-{name}" for size in GLANCE.sizes for name in CONTENDERS["cpu"]}
    assert set(said) == set(times.steps) == keys
    assert all(len(values) == blocks and min(values) > 0 for values in times.steps.values())
    assert times.rates == {}
    assert StepTimes(**times.as_dict()) == times
    assert bool(times.faults) is (others > MAX_OTHER_CORES)


def test_a_device_that_is_not_there_is_one_line():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(SpecError, match="torch sees none"):
        measure_step_times("cuda", GLANCE)


@pytest.mark.gpu
def test_a_glance_at_a_gpu():
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    times = measure_step_times("cuda", GLANCE)
    assert set(times.steps) == {f"{size}-{name}" for size in GLANCE.sizes for name in CONTENDERS["cuda"]}


def find_claim(name):
    return next(claim for claim in read_catalog() if claim.id == name)


def test_cases_name_their_device_and_the_papers_minutes():
    cases = {item.id: item for item in expand_cases(find_claim("table5-large"))}
    assert list(cases) == ["dqn-pongb-bf16", "dqn-pongb-bf16-cuda", "dqn-pongc-bf16", "dqn-pongc-bf16-cuda"]
    paper = find_claim("table5-small").values
    ratios = {name: row["fp32"] / row["mixed"] for (_, name), row in paper.items()}
    assert {name: round(ratio, 2) for name, ratio in ratios.items()} == {"ponga": 0.81, "pongb": 1.04, "pongc": 1.62}


@pytest.mark.parametrize("others", [0.0, 1.0])
def test_rows_and_the_page(others):
    times = make_step_times((0.9, 1.2, 1.5), others=others)
    rows = []
    for judged in [next(expand_cases(find_claim("table5-small"))), next(expand_claims(find_claim("table5-rises")))]:
        names = ["ponga"] if hasattr(judged, "case") else [case.environment for case in judged.cases]
        verdict = judge_trend(times, ["ponga", "pongc"], "bf16", 1.0)
        notes = explain_step_time(times, names, "bf16")
        rows.append(build_row(judged, verdict, **show_step_times(judged, times, verdict, names, "bf16", notes)))
    assert rows[0].paper == {"reference": 127, "value": 156, "unit": "min"}
    assert rows[0].caveats[-1].startswith("Policies A, B and C are our reading")
    assert any("0.81x" in note for note in rows[0].caveats)
    views = list(view_step_times(rows))
    assert len(views) == (0 if others else 1)
    if views:
        assert views[0].policies == ("ponga", "pongb", "pongc")
        assert views[0].gains[LEAN]["pongc"][0] == pytest.approx(1.5, rel=1e-3)
    rows = [row.as_dict() | {"nodeid": f"x[{i}]"} for i, row in enumerate(rows)]
    page = render_report([Document("r.json", {"schema_version": 1, "rows": [*ROWS, *rows]})])
    assert ("bf16 on a machine" in page) == (not others)
