"""Ratios of contenders that took turns: their arithmetic, and what is refused."""

import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import SpecError
from quarl_bench.judging.times.contest import Contest, Pair, Ratio, format_ratio

TIMES = st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=9)
PAIR = Pair("ours", "theirs", 2.0)


def make_contest(times, **changes):
    ours, theirs = zip(*times, strict=True)
    return Contest("a task", "s", {"ours": ours, "theirs": theirs}, (PAIR,), **changes)


@given(TIMES)
def test_a_ratio_is_taken_within_rounds(times):
    found = make_contest(times).find_ratio(PAIR)
    ratios = sorted(theirs / ours for ours, theirs in times)
    middle = len(ratios) // 2
    median = ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
    assert found == Ratio(median, ratios[0], ratios[-1])
    assert found.least <= found.median <= found.most


@given(TIMES, st.integers(0, 8))
def test_what_slows_a_whole_round_moves_no_ratio(times, index):
    slowed = [(8 * a, 8 * b) if i == index else (a, b) for i, (a, b) in enumerate(times)]
    assert make_contest(slowed).find_ratio(PAIR) == make_contest(times).find_ratio(PAIR)


@given(TIMES)
def test_of_rates_more_is_better(times):
    rates = [(1 / ours, 1 / theirs) for ours, theirs in times]
    found, wanted = make_contest(rates, rate=True).find_ratio(PAIR), make_contest(times).find_ratio(PAIR)
    assert math.isclose(found.least, wanted.least)
    assert math.isclose(found.median, wanted.median)
    assert math.isclose(found.most, wanted.most)


@given(TIMES, st.booleans(), st.text())
def test_it_is_the_same_behind_json(times, rate, note):
    contest = make_contest(times, rate=rate, note=note)
    data = json.loads(json.dumps(contest.as_dict()))
    assert Contest.from_dict(data) == contest
    (told,) = data["pairs"]
    assert (told["median"], told["target"]) == (contest.find_ratio(PAIR).median, 2.0)


def test_medians():
    contest = make_contest([(1.0, 4.0), (3.0, 9.0), (2.0, 2.0)])
    assert (contest.find_median("ours"), contest.find_median("theirs")) == (2.0, 4.0)
    assert str(contest.find_ratio(PAIR)) == "3.00x (1.00x to 4.00x)"
    assert contest.find_ratio(PAIR).median != statistics.median([4.0, 9.0, 2.0]) / 2.0  # of medians


@pytest.mark.parametrize(("ratio", "text"), [(1.3, "1.30x"), (0.07, "0.0700x"), (41.23, "41.2x"), (1234.0, "1,234x")])
def test_three_digits(ratio, text):
    assert format_ratio(ratio) == text


@pytest.mark.parametrize(
    ("rounds", "line"),
    [
        ({}, "equally many rounds"),
        ({"ours": (), "theirs": ()}, "equally many rounds"),
        ({"ours": (1.0,), "theirs": (1.0, 2.0)}, "equally many rounds"),
        ({"ours": (1.0,)}, "nobody is called theirs"),
        ({"ours": (0.0,), "theirs": (1.0,)}, "ours has a number that is no measurement"),
        ({"ours": (1.0,), "theirs": (math.inf,)}, "theirs has a number"),
        ({"ours": (1.0,), "theirs": (1.0,), "alone": (math.nan,)}, "alone has a number"),
    ],
)
def test_what_no_clock_gives_is_refused(rounds, line):
    with pytest.raises(SpecError, match=line):
        Contest("a task", "s", rounds, (PAIR,))


def test_who_is_held_against_nobody_may_have_zeros():
    assert Contest("returns", "mean", {"fp32": (0.0,), "int8": (-3.0,)}).find_median("int8") == -3.0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"rounds": None}, "ill-formed"),
        ({"rounds": {"ours": ["fast"]}}, "ill-formed"),
        ({"pairs": [{"ours": "ours"}]}, "ill-formed"),
        ({"pairs": [vars(PAIR) | {"median": 9.0, "least": 1.0, "most": 9.0}]}, "not what the rounds give"),
    ],
)
def test_a_stored_one_is_what_its_rounds_give(change, line):
    with pytest.raises(SpecError, match=line):
        Contest.from_dict(make_contest([(1.0, 2.0)]).as_dict() | change)
