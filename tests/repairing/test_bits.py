"""Mixed bits: the order of the steps, what stands and what does not, and the bytes that are counted."""

import time

import pytest

from quarl_bench.errors import QuantizationError, SpecError
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import bits as mixed
from quarl_bench.repairing import candidate, rounding
from quarl_bench.repairing.bits import check_spare, choose_step, count_bytes, lower, lower_bits
from quarl_bench.repairing.rounding import Size
from quarl_bench.repairing.search import Round
from quarl_bench.repairing.workbench import Workbench
from tests.support.fragile import INT8, make_subject

SIZES = (100, 1000)
REGRETS = {(0, 8): 0.1, (0, 4): 0.2, (0, 2): 0.2, (1, 8): 0.1, (1, 4): 0.3, (1, 2): 9.0}


@pytest.fixture
def bench(monkeypatch):
    """A fragile policy, judged on few states and episodes."""
    monkeypatch.setattr(candidate, "STATES", 200)
    monkeypatch.setattr(rounding, "NUMBERS", Size(20, 32))
    monkeypatch.setattr(mixed, "list_rounds", lambda _: (Round(1, 3),))
    return Workbench(make_subject())


def test_the_step_of_least_regret_for_what_it_saves_comes_first():
    assert choose_step(SIZES, (8, 8), (), REGRETS) == (1, (8, 4))  # .2 for 4,000 bits before .1 for 400
    assert choose_step(SIZES, (8, 4), (), REGRETS) == (0, (4, 4))
    assert choose_step(SIZES, (4, 4), (), REGRETS) == (0, (2, 4))  # for nothing
    assert choose_step(SIZES, (8, 4), {0}, REGRETS) == (1, (8, 2))
    assert choose_step(SIZES, (2, 2), (), REGRETS) is None
    assert choose_step(SIZES, (8, 8), {0, 1}, REGRETS) is None


def test_steps_stand_as_long_as_the_return_is_kept(bench):
    scheme = Scheme.parse("int8cle")
    tried = lower_bits(bench, scheme, lambda attempt: attempt.candidate.scheme.bits_of(1) == 8, time.monotonic() + 60)
    assert all(attempt.returns for attempt in tried)
    last = [attempt.candidate.scheme.layer_bits for attempt in tried if attempt.candidate.scheme.bits_of(1) == 8]
    assert last[-1] == (2, 8)
    assert sum(attempt.candidate.scheme.bits_of(1) == 4 for attempt in tried) == 1  # failed once, and stayed


def test_no_step_is_begun_late(bench):
    assert lower_bits(bench, INT8, lambda _: True, time.monotonic() - 1) == ()


def test_a_target_without_a_form_keeps_its_bits(bench, monkeypatch):
    monkeypatch.setattr(mixed, "find_unfit", lambda *_: "no kernel of 4 bits")
    assert lower_bits(bench, INT8, lambda _: True, time.monotonic() + 60) == ()
    assert set(bench.unfit.values()) == {"no kernel of 4 bits"}


def test_bytes_are_those_of_packed_weights():
    policy = make_subject().quantize(INT8)
    assert count_bytes(policy) == 2 * 4 + 2 * 2 + 4 * (2 + 2)
    mixed_bits = make_subject().quantize(lower(INT8, (4, 2)))
    assert count_bytes(mixed_bits) == 4 + 1 + 4 * (2 + 2)


def test_a_scheme_without_bits_to_spare_is_refused():
    with pytest.raises(SpecError, match="scheme 'int2' has no bits to take away; begin with more than 2"):
        check_spare(Scheme.parse("int2"))


def test_a_scheme_for_another_number_of_layers_is_refused():
    with pytest.raises(QuantizationError, match=r"^int8w444: bits of 3 layers, not of 2$"):
        make_subject().quantize("int8w444")
