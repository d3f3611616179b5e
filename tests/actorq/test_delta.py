"""Broadcasts as changes: every byte comes back, a first comer gets what they refer to, and they are shorter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.actorq.acting.task import open_task
from quarl_bench.actorq.delta import MAGIC, Unpacker, is_delta, pack_delta
from quarl_bench.actorq.learning.agents import make_agent
from quarl_bench.actorq.learning.replay import Transitions
from quarl_bench.actorq.message import encode
from quarl_bench.actorq.record import RECORD, read_record
from quarl_bench.actorq.server import WHOLE_PERIOD, ParameterServer
from quarl_bench.actorq.settings import choose_settings
from quarl_bench.errors import PolicyError
from tests.support.sizes import draw_examples

pytest.importorskip("zstandard", reason="zstandard is in the extra actorq")


def learn(precision, broadcasts, **options):
    """A server, and the policies of so many broadcasts, five updates apart, with states that calibrate."""
    chosen = choose_settings("dqn", "cartpole", precision=precision, widths=(64, 64), **options)
    task, rng = open_task(chosen), np.random.default_rng(0)
    agent, policies = make_agent(chosen, task), []
    states = rng.standard_normal((32, task.inputs)).astype(np.float32)
    for _ in range(broadcasts):
        for _ in range(5):
            rewards = rng.standard_normal(32).astype(np.float32)
            agent.update(Transitions(states, rng.integers(2, size=32), rewards, 0 * rewards, states, 0 * rewards))
        policies.append(agent.export())
    return ParameterServer(chosen), policies, states


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_every_byte_of_a_broadcast_comes_back(precision):
    server, policies, states = learn(precision, WHOLE_PERIOD + 3, delta=True)
    unpacker, sizes = Unpacker(), {True: [], False: []}
    for version, policy in enumerate(policies):
        plain = encode(policy, version, shipped=precision, precision=precision, states=states)
        sent = server.prepare(policy, version, states)
        sizes[is_delta(sent)].append(len(sent))
        np.testing.assert_array_equal(unpacker.unpack([sent]), plain)
    assert len(sizes[False]) >= 2, "a whole one comes again"
    assert np.mean(sizes[True]) < np.mean(sizes[False]), "and what is between is shorter"


def test_who_comes_late_is_given_what_changes_refer_to():
    server, policies, states = learn("int8", 3, delta=True)
    whole, _, last = (server.prepare(policy, version, states) for version, policy in enumerate(policies))
    plain = encode(policies[2], 2, shipped="int8", precision="int8", states=states)
    np.testing.assert_array_equal(Unpacker().unpack([whole, last]), plain)
    with pytest.raises(PolicyError, match="before what they refer to"):
        Unpacker().unpack([last])


@draw_examples(40)
@given(
    size=st.integers(1, 400), shipped=st.sampled_from(["fp32", "fp16", "int8"]), changed=st.integers(0, 400),
    longer=st.integers(-9, 9), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_bytes_come_back(size, shipped, changed, longer, seed):
    rng = np.random.default_rng(seed)
    base = rng.integers(256, size=size).astype(np.uint8)
    message = base[max(0, -longer) :].copy()
    if len(message):
        message[rng.integers(len(message), size=changed)] ^= 1
    message = np.concatenate([rng.integers(256, size=max(0, longer)).astype(np.uint8), message])
    packed = pack_delta(message, base, shipped)
    if packed is not None:
        assert len(packed) < len(message)
        np.testing.assert_array_equal(Unpacker().unpack([base, packed]), message)


@pytest.mark.parametrize("longer", [-8, 8])
def test_a_header_of_another_length_moves_no_weight(longer):
    rng = np.random.default_rng(0)
    weights = rng.integers(256, size=4000).astype(np.uint8)
    base, message = (np.concatenate([np.full(size, 7, dtype=np.uint8), weights]) for size in (64, 64 + longer))
    packed = pack_delta(message, base, "int8")
    assert packed is not None
    assert len(packed) < 200, "random weights would not shrink if they were moved"
    np.testing.assert_array_equal(Unpacker().unpack([base, packed]), message)


def test_without_the_option_all_is_sent_whole():
    server, policies, states = learn("fp16", 3)
    assert not any(is_delta(server.prepare(policy, version, states)) for version, policy in enumerate(policies))
    assert len(MAGIC) == 8


def test_a_record_from_before_an_option_has_its_default(tmp_path):
    (tmp_path / RECORD).write_text(
        '{"settings": {"algo": "dqn"}, "elapsed": 1, "steps": 1, "curve": [], "acting": {}, "breakdown": {}, '
        '"server": {}, "cpu": 0, "load": {}, "scores": [], "drift": {}, "deaths": 0}'
    )
    settings = read_record(tmp_path)["settings"]
    assert (settings["algo"], settings["delta"], settings["compress"]) == ("dqn", False, False)
