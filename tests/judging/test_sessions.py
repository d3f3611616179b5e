"""Limits over sessions of a timing: what they cover, and what they say that they cover."""

import math
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.judging.statistics import ERROR, Interval, bound_mean
from quarl_bench.judging.times.sessions import ALONE, Session, Sessions
from tests.support.sizes import choose

TODAY = date(2026, 11, 25)
NOW = Interval(2.0, 1.9, 2.1)


def read(ratios):
    return ratios["speed"]


def make_sessions(*ratios, day=24, step=timedelta(hours=2)):
    """Earlier sessions of these ratios, `step` apart from the morning of that day on."""
    begin = datetime(2026, 11, day, 8, tzinfo=UTC)
    return Sessions(tuple(Session(begin + k * step, {"speed": ratio}) for k, ratio in enumerate(ratios)), TODAY)


def test_alone_it_covers_its_own_blocks():
    assert ALONE.cover(NOW, read) is NOW
    assert str(ALONE) == "this session"


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8))
def test_it_is_students_interval_over_the_logarithms_of_all_sessions(ratios):
    found = make_sessions(*ratios).cover(NOW, read)
    logs = bound_mean([*map(math.log, ratios), math.log(NOW.estimate)])
    assert found == pytest.approx([math.exp(value) for value in logs])
    assert found.low <= found.estimate <= found.high


def test_it_covers_what_sessions_find_on_average_where_one_alone_does_not():
    """Sessions differ by 5%, the blocks of one by 1%: as Policy I's int8 was 1.15 one day, 1.03 another."""
    draws, runs, truth = np.random.default_rng(0), choose(2000, 20_000), 1.1
    means = np.exp(math.log(truth) + draws.normal(0.0, 0.05, (runs, 5)))
    covers = alone = 0
    for ratios in means:
        blocks = bound_mean(math.log(ratios[-1]) + draws.normal(0.0, 0.01, 4))
        now = Interval(*map(math.exp, blocks))
        found = make_sessions(*ratios[:-1]).cover(now, read)
        covers += found.low <= truth <= found.high
        alone += now.low <= truth <= now.high
    wanted, noise = 1 - 2 * ERROR, 4 * math.sqrt(2 * ERROR / runs)
    assert covers / runs == pytest.approx(wanted, abs=noise)
    assert alone / runs < 0.3


@pytest.mark.parametrize(
    ("sessions", "told"),
    [
        (make_sessions(2.0, day=25), "2 sessions on one day (5 on 2 days are wanted)"),
        (make_sessions(2.0), "2 sessions on 2 days (5 on 2 days are wanted)"),
        (make_sessions(2.0, 2.0, 2.0, 2.0), "5 sessions on 2 days"),
        (make_sessions(2.0, 2.0, 2.0, 2.0, day=25), "5 sessions on one day (5 on 2 days are wanted)"),
        (make_sessions(2.0, 2.0, 2.0, 2.0, day=20, step=timedelta(days=1)), "5 sessions on 5 days"),
    ],
)
def test_it_says_how_many_sessions_on_how_many_days(sessions, told):
    assert str(sessions) == told
