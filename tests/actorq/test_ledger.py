"""What arrived of every actor's transitions, and what is lost."""

import pytest

from quarl_bench.actorq.learning.ledger import Ledger, count_lost


def test_a_replacement_is_a_life_of_its_own():
    ledger = Ledger()
    for now, actor, life, acknowledged in ((1.0, 0, 0, 0), (2.0, 1, 0, 0), (3.0, 0, 0, 10), (12.5, 0, 2, 0)):
        ledger.add(actor, life, steps=8, transitions=10, acknowledged=acknowledged, now=now)
    lives = ledger.list_lives()
    assert [(life["actor"], life["life"], life["chunks"], life["transitions"]) for life in lives] == [
        (0, 0, 2, 20), (0, 2, 1, 10), (1, 0, 1, 10),
    ]  # fmt: skip
    assert [life["gap"] for life in lives] == [None, pytest.approx(9.5), None]
    assert sum(life["steps"] for life in lives) == 32
    assert lives[0]["acknowledged"] == 10


def test_what_was_acknowledged_and_is_not_here_is_lost():
    here = {"transitions": 30, "acknowledged": 20}
    assert count_lost([here, here]) == 0
    assert count_lost([here, here | {"acknowledged": 42}]) == 12
