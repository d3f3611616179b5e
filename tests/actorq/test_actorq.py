"""ActorQ without Ray: messages, kernels, limiter, replay, losses, clocks, refusals, and a run of threads."""

import itertools
import json
import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.actorq import breakdown as clocks
from quarl_bench.actorq.acting.actor import Behaviour, play
from quarl_bench.actorq.acting.exploration import (
    CorrelatedNoise,
    choose_exploration,
    diverge_gaussian,
    diverge_greedy,
    diverge_softmax,
    draw,
)
from quarl_bench.actorq.acting.inference import RUNTIMES
from quarl_bench.actorq.acting.task import open_task
from quarl_bench.actorq.comparison import compare_runs, find_target, list_breakdown, list_summary
from quarl_bench.actorq.delta import is_delta
from quarl_bench.actorq.evaluator import find_time, score_run
from quarl_bench.actorq.learning import losses
from quarl_bench.actorq.learning.agents import make_agent
from quarl_bench.actorq.learning.checkpoint import has_checkpoint
from quarl_bench.actorq.learning.learner import Learner
from quarl_bench.actorq.learning.limiter import Limiter, Ratio
from quarl_bench.actorq.learning.replay import Assembler, Replay, Transitions
from quarl_bench.actorq.message import build, center, compress, decompress, deserialize, encode, quantize
from quarl_bench.actorq.record import read_costs
from quarl_bench.actorq.server import ParameterServer
from quarl_bench.actorq.settings import choose_settings
from quarl_bench.errors import PolicyError, SpecError, StoreError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear, Net
from tests.support.sizes import choose, draw_examples


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Kernels are compiled once, and not into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUARL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def make_policy(sizes, activation=Activation.RELU, *, discrete=False, seed=0):
    rng = np.random.default_rng(seed)
    layers = tuple(
        Linear(
            (rng.standard_normal((o, i)) / np.sqrt(i)).astype(np.float32),
            rng.standard_normal(o).astype(np.float32),
            activation if index < len(sizes) - 2 else Activation.NONE,
        )
        for index, (i, o) in enumerate(itertools.pairwise(sizes))
    )
    ones = np.ones(sizes[-1], dtype=np.float32)
    head = ActionHead(HeadKind.ARGMAX) if discrete else ActionHead(HeadKind.TANH, -ones, ones)
    return PolicyNet(ObservationTransform((sizes[0],)), Net((sizes[0],), layers), head)


def draw_states(count, width, seed=1):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


SIZES = (17, 256, 256, 256, 6)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("shipped", ["fp32", "fp16", "int8"])
def test_a_message_carries_its_precision_and_nothing_wider(shipped, precision):
    policy, states = make_policy(SIZES), draw_states(64, 17)
    message = encode(policy, 7, shipped=shipped, precision=precision, states=states)
    header, tensors = deserialize(message)
    weights = [array for name, array in tensors.items() if name.endswith(".weight")]
    assert {str(array.dtype) for array in weights} == {{"fp32": "float32", "fp16": "float16", "int8": "int8"}[shipped]}
    assert not weights[0].flags.owndata
    broadcast = build((header, tensors))
    assert broadcast.version == 7
    full = encode(policy, 7, shipped="fp32", precision="fp32")
    assert len(message) <= {"fp32": 1.05, "fp16": 0.53, "int8": 0.32}[shipped] * len(full)
    assert (decompress(compress(message)) == message).all()


def test_an_int8_broadcast_of_the_papers_width_is_about_a_quarter():
    policy = make_policy((17, 2048, 2048, 6))
    full = encode(policy, 0, shipped="fp32", precision="fp32")
    assert len(encode(policy, 0, shipped="int8", precision="int8", states=draw_states(16, 17))) <= 0.27 * len(full)


@pytest.mark.needs("cc")
@draw_examples(25)
@given(
    widths=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    activation=st.sampled_from([Activation.RELU, Activation.TANH]),
    seed=st.integers(0, 1000),
)
def test_the_integer_kernel_is_the_golden_model(widths, activation, seed):
    policy = make_policy((5, *widths, 3), activation, seed=seed)
    states = draw_states(40, 5, seed)
    golden = quantize(policy, states)
    inference = RUNTIMES["c"]()
    inference.load(build(deserialize(encode(policy, 0, shipped="int8", precision="int8", states=states))))
    for x in (*states, np.full(5, 1e30, dtype=np.float32), np.full(5, -np.inf, dtype=np.float32)):
        np.testing.assert_array_equal(inference.forward(x[None]), golden.net.forward(x[None]))


@pytest.mark.needs("cc", "litert")
@pytest.mark.parametrize("activation", [Activation.RELU, Activation.TANH])
def test_every_runtime_computes_the_same_policy(activation):
    policy, states = make_policy((17, 100, 67, 6), activation), draw_states(8, 17)
    for precision in ("fp32", "fp16", "int8"):
        broadcast = build(deserialize(encode(policy, 0, shipped=precision, precision=precision, states=states)))
        outputs = []
        for name in RUNTIMES:
            if (name, precision) == ("torch", "int8"):
                continue
            inference = RUNTIMES[name]()
            inference.load(broadcast)
            outputs.append(np.concatenate([inference.forward(x[None]) for x in states]))
        for other in outputs[1:]:
            np.testing.assert_allclose(other, outputs[0], rtol=1e-4, atol=1e-5 if precision != "int8" else 0)
        wanted = quantize(policy, states).net if precision == "int8" else policy.net
        tolerance = {"fp32": 1e-4, "fp16": 5e-3, "int8": 0}[precision]
        np.testing.assert_allclose(outputs[0], wanted.forward(states), atol=tolerance)


def test_centering_keeps_actions_and_shrinks_the_range():
    policy, states = make_policy((4, 64, 3), discrete=True), draw_states(500, 4)
    policy.net.layers[-1].bias[:] += 80  # values of good states
    centered = center(policy)
    np.testing.assert_array_equal(centered.act(states), policy.act(states))
    assert np.ptp(centered.outputs(states)) < np.ptp(policy.outputs(states) - 0) + 1e-3
    agreement = (quantize(policy, states).act(states) == policy.act(states)).mean()
    assert agreement > 0.97, "with the state's value in the range, a step of int8 is wider than most differences"
    assert center(make_policy((4, 8, 2))).net.layers[-1].bias.mean() != 0  # continuous actions are left alone


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"\x05" + b"\0" * 7 + b"[1,2]", b"\xff" * 64])
def test_a_damaged_broadcast_is_one_line(damage):
    with pytest.raises(PolicyError, match="a broadcast cannot be read"):
        deserialize(np.frombuffer(damage, dtype=np.uint8))


def test_half_precision_overflow_is_refused():
    policy = make_policy((3, 4, 2))
    policy.net.layers[0].weight[0, 0] = 1e6
    with pytest.raises(PolicyError, match=r"fp16: layers\.0"):
        encode(policy, 0, shipped="fp16", precision="fp16")


@given(
    ratio=st.floats(0.25, 64), warmup=st.integers(1, 300), chunk=st.integers(1, 64), batch=st.integers(1, 256),
    order=st.lists(st.booleans(), max_size=300),
)  # fmt: skip
def test_neither_side_runs_away_and_both_never_wait_at_once(ratio, warmup, chunk, batch, order):
    rule = Ratio.balance(ratio, warmup, chunk, batch)
    for inserting in order:
        # A chunk may hold a few more: an episode's last transitions come at once.
        assert rule.may_insert(2 * chunk) or rule.may_insert(chunk) or rule.may_sample(batch)
        if inserting and rule.may_insert(chunk):
            rule.inserts += chunk
        elif not inserting and rule.may_sample(batch):
            rule.samples += batch
        if rule.inserts >= warmup:
            ahead = (rule.inserts - warmup) * ratio - rule.samples
            assert -rule.slack - ratio * chunk <= ahead <= rule.slack + ratio * chunk


def test_the_limiter_lets_go_when_it_is_closed():
    limiter = Limiter(Ratio(1.0, 10, 10.0))
    results = []
    threads = [threading.Thread(target=lambda: results.append(limiter.sample(4)))]
    for thread in threads:
        thread.start()
    assert limiter.insert(5)
    limiter.close()
    for thread in threads:
        thread.join(5)
    assert results == [False]
    assert not limiter.insert(1)


def test_the_limiter_wakes_whoever_may_go_on():
    limiter, total = Limiter(Ratio(2.0, 10, 40.0)), []
    learner = threading.Thread(target=lambda: total.extend(limiter.sample(8) for _ in range(20)))
    learner.start()
    for _ in range(90):
        assert limiter.insert(1)
    learner.join(10)
    assert not learner.is_alive()
    assert limiter.ratio.samples == 160


@given(st.integers(1, 6), st.integers(1, 20), st.booleans(), st.floats(0.5, 1.0))
def test_n_step_transitions_are_the_sums_they_say(n_step, length, terminated, discount):
    rewards = np.arange(1.0, length + 1)
    assembler = Assembler(n_step, discount)
    for t in range(length):
        last = t == length - 1
        assembler.add(np.float32([t]), t, rewards[t], np.float32([t + 1]), terminated=last and terminated)
    if not terminated:
        assembler.end(np.float32([length]))
    rows = assembler.take()
    assert rows.actions.tolist() == list(range(length))
    for t in range(length):
        k = min(n_step, length - t)
        assert rows.rewards[t] == pytest.approx(sum(discount**i * rewards[t + i] for i in range(k)), rel=1e-5)
        ended = terminated and t + k == length
        assert rows.discounts[t] == pytest.approx(0.0 if ended else discount**k, rel=1e-5)
        assert rows.next_observations[t, 0] == t + k


def make_rows(first, count):
    values = np.arange(first, first + count, dtype=np.float32)
    return Transitions(values[:, None], values.astype(np.int64), values, values, values[:, None], values)


def test_the_ring_overwrites_the_oldest_and_survives_a_checkpoint():
    replay = Replay(10, np.random.default_rng(0))
    for first in range(0, 24, 4):
        replay.add(make_rows(first, 4))
    assert len(replay) == 10
    assert set(replay.sample(500).actions) == set(range(14, 24))
    other = Replay(10, np.random.default_rng(0))
    other.restore(replay.state(), replay.count)
    for ring in (replay, other):
        ring.add(make_rows(24, 3))
    assert set(other.sample(500).actions) == set(range(17, 27)) == set(replay.sample(500).actions)


def test_runs_come_in_the_order_in_which_they_were_added():
    replay = Replay(12, np.random.default_rng(0))
    for first in range(0, 20, 4):
        replay.add(make_rows(first, 4))
    runs = replay.sample_runs(40, 4).actions.reshape(10, 4)
    assert (np.diff(runs) == 1).all()
    assert set(runs[:, 0]) <= {8, 12, 16}


def trace_slowly(ratios, rewards, discounts, values, ahead, goes_on):
    """V-trace by its sum over steps (Espeholt et al. 2018, equation 1)."""
    weights = np.minimum(np.exp(ratios), 1)
    errors = weights * (rewards + discounts * ahead - values)
    goals = values.copy()
    for s in range(len(values)):
        factor = 1.0
        for t in range(s, len(values)):
            goals[s] += factor * errors[t]
            if not goes_on[t]:
                break
            factor *= discounts[t] * weights[t]
    behind = np.append(goals[1:] - values[1:], 0) * goes_on + ahead
    return goals, weights * (rewards + discounts * behind - values)


@given(st.integers(1, 12), st.integers(0, 999))
def test_the_trace_is_that_of_the_paper(length, seed):
    rng = np.random.default_rng(seed)
    ratios, rewards, values = rng.normal(size=(3, length))
    goes_on = (rng.random(length) < 0.8) & (np.arange(length) < length - 1)
    ahead = np.where(goes_on, np.append(values[1:], 0), rng.normal(size=length))
    discounts = np.where(goes_on | (rng.random(length) < 0.5), 0.9, 0.0)
    arguments = (ratios, rewards, discounts, values, ahead, goes_on.astype(float))
    found = losses.find_v_trace(*(torch.from_numpy(argument)[None] for argument in arguments))
    for ours, slow in zip(found, trace_slowly(*arguments), strict=True):
        np.testing.assert_allclose(ours[0].numpy(), slow, atol=1e-12)


def test_drawn_actions_have_the_probabilities_they_state():
    logits, rng = np.float32([0.0, 1.0, -2.0]), np.random.default_rng(0)
    expected = np.exp(logits) / np.exp(logits).sum()
    drawn = [draw(logits, rng) for _ in range(20_000)]
    counts = np.bincount([index for index, _ in drawn], minlength=3) / len(drawn)
    np.testing.assert_allclose(counts, expected, atol=4 * np.sqrt(0.25 / len(drawn)))
    assert all(log_prob == pytest.approx(np.log(expected[index]), abs=1e-5) for index, log_prob in drawn[:50])
    other = np.float32([0.5, 0.5, 0.5])
    kl = float((expected * np.log(expected * 3)).sum())
    assert diverge_softmax(logits[None], other[None]) == pytest.approx(kl, abs=1e-5)
    assert diverge_softmax(logits[None], logits[None] + 3) == pytest.approx(0, abs=1e-6)


def project_slowly(p, reward, discount, atoms):
    out, step = np.zeros(len(atoms)), atoms[1] - atoms[0]
    for mass, atom in zip(p, atoms, strict=True):
        place = (np.clip(reward + discount * atom, atoms[0], atoms[-1]) - atoms[0]) / step
        low = min(int(np.floor(place)), len(atoms) - 2)
        out[low] += mass * (1 - (place - low))
        out[low + 1] += mass * (place - low)
    return out


@given(st.integers(2, 30), st.floats(-3, 3), st.floats(0, 1), st.integers(0, 99))
def test_the_projection_is_that_of_the_paper(count, reward, discount, seed):
    atoms = losses.make_atoms((-4.0, 4.0), count)
    p = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(count), 1)).float()
    out = losses.project(p, torch.tensor([reward]), torch.tensor([discount]), atoms)
    assert out.sum().item() == pytest.approx(1, abs=1e-5)
    slow = project_slowly(p[0].double().numpy(), reward, discount, atoms.double().numpy())
    np.testing.assert_allclose(out[0].numpy(), slow, atol=2e-5)
    if abs(reward) + 4 * discount <= 4:
        mean = (out @ atoms).item()
        assert mean == pytest.approx(reward + discount * (p @ atoms).item(), abs=1e-4)


def test_double_targets_use_the_online_choice_and_the_target_value():
    online, target = torch.tensor([[1.0, 2.0]]), torch.tensor([[10.0, 3.0]])
    goal = losses.find_double_q_targets(torch.tensor([1.0]), torch.tensor([0.5]), online, target)
    assert goal.item() == 1 + 0.5 * 3


def test_the_ladder_spans_its_ends():
    rungs = [choose_exploration((0.02, 0.2), i, 5) for i in range(5)]
    assert rungs[0] == pytest.approx(0.02)
    assert rungs[-1] == pytest.approx(0.2)
    assert choose_exploration((0.02, 0.2), 0, 1) == pytest.approx(np.sqrt(0.02 * 0.2)) == pytest.approx(rungs[2])


def test_noise_has_unit_variance_and_its_correlation():
    noise = CorrelatedNoise(2000, 0.9, np.random.default_rng(0))
    first, second = noise.draw(), noise.draw()
    assert first.std() == pytest.approx(1, abs=0.06)
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0.9, abs=0.03)


def test_divergences_against_their_definitions():
    epsilon, actions = 0.1, 4
    p, q = (np.full(actions, epsilon / actions) for _ in range(2))
    p[0] += 1 - epsilon
    q[2] += 1 - epsilon
    expected = float((p * np.log(p / q)).sum())
    assert diverge_greedy(np.array([0]), np.array([2]), epsilon, actions) == pytest.approx(expected)
    assert diverge_greedy(np.array([0, 1]), np.array([0, 1]), epsilon, actions) == 0
    assert diverge_gaussian(np.float32([[1.0, 0.0]]), np.float32([[0.0, 0.0]]), 0.5) == pytest.approx(2.0)


def test_amdahl():
    assert clocks.find_ceiling(0.75) == 4
    assert clocks.find_ceiling(1.0) == float("inf")
    stages = dict.fromkeys(clocks.ACTING, 0.0) | {"environment": 2.0, "inference": 6.0, "wait": 1.0}
    acting = clocks.Breakdown(10, stages, stages)
    learning = clocks.Breakdown(5, dict.fromkeys(clocks.LEARNING, 1.0), dict.fromkeys(clocks.LEARNING, 1.0))
    whole = clocks.cost_per_step(9.0, 10, 1, acting, learning)
    assert whole.learner == pytest.approx(0.3)  # idle time is no work
    assert whole.untouched == pytest.approx(0.2)
    assert whole.ceiling == pytest.approx(3.0)
    assert clocks.Breakdown.from_dict(json.loads(json.dumps(acting.as_dict()))) == acting


def test_a_stopwatch_gives_all_time_to_stages():
    watch = clocks.Stopwatch(("a", "b"))
    watch.lap("a")
    sum(range(200_000))
    watch.lap("b")
    watch.resume()
    found = watch.read(1)
    assert 0 <= found.cpu["a"] < found.cpu["b"]  # the wall clock also counts what others did meanwhile
    assert all(found.wall[stage] >= 0 for stage in "ab")
    assert found.per_step() == {stage: pytest.approx(1e6 * seconds) for stage, seconds in found.wall.items()}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("ppo", "cartpole"), "on-policy.*quantized"),
        (("a2c", "cartpole"), "on-policy.*or a2c with --behaviour-log-probs"),
        (("sac", "pendulum"), "no distributed form"),
        (("quack", "cartpole"), "unknown"),
    ],
)
def test_what_actors_cannot_feed_is_refused(arguments, reason):
    with pytest.raises(SpecError, match=reason):
        choose_settings(*arguments)


@pytest.mark.parametrize(
    ("algo", "changes", "reason"),
    [
        ("dqn", {}, "dqn learns from any data and needs no behaviour log-probabilities"),
        ("ppo", {}, "'ppo' has no distributed form here"),
        ("a2c", {"n_step": 3}, "n-step 3"),
        ("a2c", {"batch": 100}, "batch 100: must be a multiple of the chunk, 32"),
        ("a2c", {"replay": 1000}, "replay 1000: must be a multiple"),
    ],
)
def test_probabilities_of_actions_are_for_a2c_and_for_whole_chunks(algo, changes, reason):
    with pytest.raises(SpecError, match=reason):
        choose_settings(algo, "cartpole", log_probs=True, **changes)
    assert choose_settings("a2c", "cartpole", log_probs=True).log_probs


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"actors": 0}, "actors 0"),
        ({"precision": "int9"}, "unknown precision 'int9'; known are fp32, fp16, int8"),
        ({"communication": "bf16"}, "unknown communication"),
        ({"runtime": "jax"}, "unknown runtime"),
        ({"device": "gpu"}, "unknown device 'gpu'; known are cpu, cuda"),
        ({"runtime": "torch", "precision": "int8"}, "torch"),
        ({"widths": ()}, "widths"),
        ({"samples_per_insert": 0.0}, "samples per insert"),
        ({"samples_per_insert": math.inf}, "samples per insert inf: must be above 0, and finite"),
        ({"rate": math.nan}, "rate nan: must be above 0, and finite"),
        ({"rate": -1.0}, "rate -1: must be above 0"),
        ({"steps": 100}, "train longer"),
        ({"warmup": 3}, "warmup"),
        ({"no_such": 3}, "unknown option"),
    ],
)
def test_options_that_cannot_work_are_one_line(changes, reason):
    with pytest.raises(SpecError, match=reason):
        choose_settings("dqn", "cartpole", **changes)


def test_tasks_have_to_fit_the_algorithm():
    with pytest.raises(SpecError, match="needs discrete actions"):
        open_task(choose_settings("dqn", "mountaincarcontinuous"))
    with pytest.raises(SpecError, match="needs continuous actions"):
        open_task(choose_settings("d4pg", "cartpole"))
    with pytest.raises(SpecError, match="without images"):
        open_task(choose_settings("dqn", "pong"))
    assert open_task(choose_settings("d4pg", "mountaincarcontinuous")).outputs == 1
    with pytest.raises(SpecError, match="cartpole: its observations have no bounds to scale them by"):
        open_task(choose_settings("dqn", "cartpole", scaled=True))


def test_observations_are_scaled_from_their_bounds():
    chosen = choose_settings("d4pg", "mountaincarcontinuous", widths=(16,))  # its recipe scales
    task = open_task(chosen)
    ends = np.array([[-1.2, -0.07], [0.6, 0.07], [-0.3, 0.0]], dtype=np.float32)
    np.testing.assert_allclose(task.transform.apply(ends), [[-1, -1], [1, 1], [0, 0]], atol=1e-5)
    policy = make_agent(chosen, task).export()
    np.testing.assert_allclose(quantize(policy, ends).outputs(ends), policy.outputs(ends), atol=0.05)
    for precision in ("fp32", "fp16", "int8"):
        shipped = build(deserialize(encode(policy, 0, shipped=precision, precision=precision, states=ends)))
        np.testing.assert_array_equal(shipped.transform.apply(ends), task.transform.apply(ends))


class LocalPorts:
    """Threads instead of processes."""

    def __init__(self, learner, latest):
        self._learner, self._latest, self._go_on = learner, latest, True

    def count_steps(self):
        return self._learner.steps

    def pull(self, known):
        found = self._latest[-1] if self._latest else None
        if found is None or found[0] <= known:
            return []
        whole = next(message for _, message in reversed(self._latest) if not is_delta(message))
        return [found[1]] if found[1] is whole else [whole, found[1]]

    def wait(self):
        return self._go_on

    def send(self, chunk):
        self._go_on = self._learner.insert(chunk)


def run_threads(chosen, folder, *, resume=False, stop_at=None):
    """The report of a run in this process, and its actors'; it is stopped when version `stop_at` is published."""
    task, latest, server, reports = open_task(chosen), [], ParameterServer(chosen, 1), []

    def publish(policy, version, states):
        latest.append((version, server.prepare(policy, version, states)))
        if version == stop_at:
            learner.stop()

    learner = Learner(chosen, task, folder, publish)
    if resume:
        learner.resume()
    actors = [
        threading.Thread(target=lambda i=i: reports.append(play(chosen, task, i, 0, LocalPorts(learner, latest))))
        for i in range(chosen.actors)
    ]
    for actor in actors:
        actor.start()
    return learner, actors, reports, server


@pytest.mark.needs("cc")
@pytest.mark.parametrize(
    ("algo", "environment"), [("dqn", "cartpole"), ("d4pg", "mountaincarcontinuous"), ("a2c", "cartpole")]
)
@pytest.mark.parametrize("precision", choose(["int8"], ["fp32", "fp16", "int8"]))
def test_a_small_run_of_threads(algo, environment, precision, tmp_path):
    small = {"steps": 700, "warmup": 200, "widths": (16, 16), "batch": 32, "chunk": 20, "samples_per_insert": 2.0,
             "publish_period": 5, "update_period": 10, "actors": 2, "critic": (16, 16)}  # fmt: skip
    small = {k: v for k, v in small.items() if algo != "dqn" or k != "critic"}
    if algo == "a2c":
        small |= {"log_probs": True, "warmup": 220, "batch": 40, "replay": 240}
    chosen = choose_settings(algo, environment, precision=precision, **small)
    learner, actors, reports, server = run_threads(chosen, tmp_path)
    report = learner.learn()
    for actor in actors:
        actor.join(20)
    assert len(reports) == 2
    assert report["steps"] >= 700
    assert abs(report["updates"] - chosen.updates) <= 0.2 * chosen.updates + 10
    assert report["drift"]["staleness"] > 0, "actors act by weights that the learner has left behind"
    assert 0 <= report["drift"]["agreement"] <= 1
    assert report["drift"]["kl"] >= 0
    found = server.report()
    assert found["broadcasts"] > 3
    assert (found["quantized_agreement"] is None) == (precision != "int8")
    scored = score_run(chosen, learner.task, tmp_path, report["curve"], validation=2, test=3)
    assert [p["steps"] for p in scored["curve"]] == sorted(p["steps"] for p in scored["curve"])
    assert set(scored["scores"]) == ({"fp32", "int8"} if precision == "int8" else {"fp32"})
    assert (tmp_path / "policy" / "manifest.json").exists()
    acting = clocks.sum_breakdowns([clocks.Breakdown.from_dict(r["breakdown"]) for r in reports], clocks.ACTING)
    record = {"settings": chosen.as_dict(), "acting": acting.as_dict(), "server": found, "deaths": 0} | report | scored
    base = record | {"settings": record["settings"] | {"precision": "fp32"}}
    (row, other) = compare_runs([json.loads(json.dumps(record)), json.loads(json.dumps(base))])
    assert row.ceiling is not None
    assert row.ceiling > 0
    assert other.speedup == pytest.approx(1.0)
    assert len(list_summary([row, other])) == 3
    assert len(list_breakdown([row])) == 1 + len(clocks.ACTING)


@pytest.mark.needs("cc")
def test_a_learner_that_waits_for_more_than_will_come_ends(tmp_path, monkeypatch):
    """A chunk allows fewer samples than a batch, and the actor is the slow side."""
    send = LocalPorts.send
    monkeypatch.setattr(LocalPorts, "send", lambda ports, chunk: (time.sleep(0.02), send(ports, chunk)))
    small = {"steps": 700, "warmup": 200, "widths": (16, 16), "batch": 32, "chunk": 20, "samples_per_insert": 1.0}
    learner, actors, _, _ = run_threads(choose_settings("dqn", "cartpole", precision="fp32", **small), tmp_path)
    learning = threading.Thread(target=learner.learn, daemon=True)
    learning.start()
    for thread in (*actors, learning):
        thread.join(60)
        assert not thread.is_alive()


WITH_A_GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"))


@pytest.mark.parametrize("device", ["cpu", WITH_A_GPU])
@pytest.mark.parametrize("precision", choose(["bf16"], ["fp32", "bf16"]))
@pytest.mark.parametrize(("algo", "environment"), [("dqn", "cartpole"), ("d4pg", "pendulum"), ("a2c", "cartpole")])
def test_an_agent_learns_a_bandit(algo, environment, precision, device):
    """One state, no future: the better action is found, and a checkpoint holds everything."""
    shape = {"d4pg": {"critic": (32, 32), "support": (-2.0, 2.0)}, "a2c": {"log_probs": True}}.get(algo, {})
    chosen = choose_settings(
        algo,
        environment,
        widths=(32,),
        rate=3e-3,
        learner_precision=precision,
        target_period=10,
        device=device,
        **shape,
    )
    task = open_task(chosen)
    agent, rng = make_agent(chosen, task), np.random.default_rng(0)
    states = np.ones((64, task.inputs), dtype=np.float32)
    for _ in range(350):
        if task.head.discrete:
            actions = rng.integers(2, size=64)
            rewards = np.where(actions == 1, 1.0, -1.0).astype(np.float32)
        else:
            actions = rng.uniform(-1, 1, (64, 1)).astype(np.float32)
            rewards = 1 - 3 * np.minimum((actions[:, 0] + 0.3) ** 2, 1)
        zeros = np.zeros(64, dtype=np.float32)
        agent.update(Transitions(states, actions, rewards, zeros, states, zeros + np.float32(np.log(0.5))))
    policy = agent.export()
    if task.head.discrete:
        assert policy.act(states[:1])[0] == 1
    else:
        assert np.tanh(policy.outputs(states[:1])[0, 0]) == pytest.approx(-0.3, abs=0.15)
    other = make_agent(replace(chosen, device="cpu"), task)  # what a GPU began, a CPU may go on with
    other.restore(agent.state())
    np.testing.assert_array_equal(other.export().outputs(states), policy.outputs(states))
    assert other.updates == 350


@pytest.mark.needs("cc")
def test_a_stopped_run_goes_on_and_another_network_is_refused(tmp_path):
    small = {"steps": 3000, "warmup": 100, "batch": 16, "chunk": 10, "samples_per_insert": 1.0, "publish_period": 5}
    chosen = choose_settings("dqn", "cartpole", widths=(16, 16), **small)
    learner, actors, _, _ = run_threads(chosen, tmp_path, stop_at=20)
    report = learner.learn()
    for actor in actors:
        actor.join(20)
    assert report["stopped"]
    assert has_checkpoint(tmp_path)
    wider = choose_settings("dqn", "cartpole", widths=(32, 16), **small)
    with pytest.raises(StoreError, match=r"another network: its widths is \[16, 16\], not \[32, 16\]"):
        Learner(wider, open_task(wider), tmp_path, print).resume()
    kept = (tmp_path / "curve").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="000: this policy of the run is gone; restore it"):
        Learner(chosen, open_task(chosen), tmp_path, print).resume()
    kept.rename(tmp_path / "curve")
    resumed, actors, _, _ = run_threads(chosen, tmp_path, resume=True)
    before = report["steps"], report["updates"]
    assert resumed.steps >= before[0]
    report = resumed.learn()
    for actor in actors:
        actor.join(20)
    assert not report["stopped"]
    assert report["steps"] >= 3000
    assert report["updates"] > before[1]
    assert report["resumed"]["steps"] >= before[0]
    assert report["breakdown"]["steps"] == report["updates"] - before[1], "times and updates begin at the resume"


@pytest.mark.needs("cc")
def test_an_actor_explores_where_the_run_stands():
    chosen = choose_settings("dqn", "cartpole", widths=(8,), warmup=100, batch=16, anneal=1000, actors=2)
    task = open_task(chosen)
    states = np.zeros((4, 4), dtype=np.float32)
    broadcast = build(deserialize(encode(make_agent(chosen, task).export(), 0, shipped="fp32", precision="fp32")))
    shares = {}
    for begun in (0, 100, 600, 1100):
        behaviour = Behaviour(chosen, task, 0, np.random.default_rng(0), begun)
        behaviour.load(broadcast)
        outputs = behaviour.infer(states[0])
        shares[begun] = np.mean([a != g for a, g, _ in (behaviour.explore(outputs) for _ in range(90))])
    assert shares[0] == shares[100] > shares[600] > shares[1100]
    assert shares[1100] <= behaviour.rung


def test_costs_of_a_resumed_run_are_of_what_came_behind():
    acting = clocks.Breakdown(50, dict.fromkeys(clocks.ACTING, 1.0), dict.fromkeys(clocks.ACTING, 1.0)).as_dict()
    learning = clocks.Breakdown(50, dict.fromkeys(clocks.LEARNING, 1.0), dict.fromkeys(clocks.LEARNING, 1.0)).as_dict()
    record = {"settings": {"actors": 1}, "steps": 150, "elapsed": 25.0, "acting": acting, "breakdown": learning}
    resumed = read_costs(record | {"resumed": {"steps": 100, "elapsed": 20.0}})
    assert resumed == read_costs(record | {"steps": 50, "elapsed": 5.0})
    assert resumed.elapsed == pytest.approx(0.1)


def test_a_damaged_checkpoint_is_one_line(tmp_path):
    chosen = choose_settings("dqn", "cartpole", widths=(8,))
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "state.json").write_text("{")
    with pytest.raises(StoreError, match="nothing to resume"):
        Learner(chosen, open_task(chosen), tmp_path, print).resume()


@pytest.mark.needs("cc")
def test_without_a_learner_an_actor_stops():
    class Gone:
        def count_steps(self):
            return 0

        def pull(self, known):
            return []

        def wait(self):
            return False

        def send(self, chunk):
            raise AssertionError("nobody is there")

    chosen = choose_settings("dqn", "cartpole", chunk=8)
    report = play(chosen, open_task(chosen), 0, 0, Gone())
    assert report["breakdown"]["steps"] < 50


def test_time_to_a_share_of_the_best_return():
    curve = [{"mean": value, "elapsed": float(i), "cpu": 2.0 * i} for i, value in enumerate((-500, -120, -101, -100))]
    assert find_target({"curve": curve}) == pytest.approx(-105)
    assert find_time(curve, -105) == 2
    assert find_time(curve, -105, "cpu") == 4
    assert find_time(curve, 0) is None


def test_recipes_name_listed_environments():
    from quarl_bench.actorq.settings import _read_recipes

    for algo, table in _read_recipes().items():
        for environment in table["environments"]:
            probabilities = {"log_probs": True} if algo == "a2c" else {}
            assert choose_settings(algo, environment, **probabilities).environment == environment


def test_the_plot_stacks_every_stage(tmp_path: Path):
    from quarl_bench.report.page.kinds.breakdown import draw_breakdown
    from quarl_bench.report.page.plots import render_png

    bars = [
        ("fp32", {"environment": 1.0, "inference": 3.0, "pull": 0.0}),
        ("int8", {"environment": 1.0, "inference": 1.0, "pull": 0.0}),
    ]
    figure = draw_breakdown(bars)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["inference", "environment"]
    assert render_png(figure).startswith(b"\x89PNG")


def make_record(precision: str, seed: int, returns: list[float], **settings: object) -> dict[str, object]:
    curve = [{"elapsed": 2.0 * place + seed, "mean": value} for place, value in enumerate(returns)]
    return {"settings": {"precision": precision, "seed": seed, "actors": 1, **settings}, "curve": curve}


def test_runs_of_one_arm_differ_in_their_seed_alone():
    from quarl_bench.actorq.comparison import group_seeds

    runs = [
        make_record(bits, seed, [0.0], widths=[8, 8], actors=actors)
        for actors, bits, seed in itertools.product((1, 2), ("fp32", "int8"), (0, 1))
    ]
    groups = group_seeds(runs)
    assert [*groups] == ["fp32, actors 1", "int8, actors 1", "fp32, actors 2", "int8, actors 2"]
    assert [run["settings"]["seed"] for run in groups["int8, actors 2"]] == [0, 1]
    runs[0]["settings"]["widths"] = [4, 4]
    assert "fp32, actors 1, widths 4x4" in group_seeds(runs)
    assert [*group_seeds(runs[2:4])] == ["int8"]


@pytest.mark.needs("report")
def test_curves_are_means_over_seeds_with_a_band():
    from quarl_bench.actorq.comparison import list_curve
    from quarl_bench.judging.statistics import bound_mean
    from quarl_bench.report.page.kinds.curves import LearningCurve, draw_curves

    runs = [make_record("int8", 0, [1.0, 5.0, 7.0]), make_record("int8", 1, [3.0, 8.0])]
    alone = [make_record("fp32", 0, [2.0, 4.0])]
    arms = (("int8", runs), ("fp32", alone))
    figure = draw_curves([LearningCurve(name, [list_curve(run) for run in arm]) for name, arm in arms], "seconds")
    (axes,) = figure.axes
    first, second = axes.lines
    assert first.get_xydata().tolist() == [[0.5, 2.0], [2.5, 6.5]]  # as long as the shortest
    assert second.get_xydata().tolist() == [[0.0, 2.0], [2.0, 4.0]]
    (band,) = axes.collections  # one seed has none
    _, low, high = bound_mean([5.0, 8.0])
    assert {low, high} <= set(band.get_paths()[0].vertices[:, 1].tolist())
    assert axes.get_xlabel() == "seconds"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["int8", "fp32"]
