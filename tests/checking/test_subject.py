"""The policy that is checked: what it has played is remembered."""

import numpy as np
import pytest

from quarl_bench.checking import subject as module
from quarl_bench.checking.subject import Subject
from quarl_bench.environments.registry import find_environment
from quarl_bench.experiments.store import Store, StorePaths
from tests.support.fragile import make_subject


def test_without_a_store_nothing_is_played_twice(monkeypatch):
    played, measure = [], module.measure
    monkeypatch.setattr(module, "measure", lambda *told: played.append(told[2]) or measure(*told))
    subject = make_subject()
    first = subject.play("int8", range(3))
    assert subject.play("int8", range(3)) is first
    assert subject.play("fp32", range(3)) is not first
    assert len(subject.play("int8", range(5)).returns[0]) == 5
    assert played == [range(3), range(3), range(5)]


def test_a_store_keeps_random_play_and_the_states_that_calibrate(tmp_path, monkeypatch):
    def open_again():
        return Subject(make_subject().stored, find_environment("cartpole"), Store(StorePaths(tmp_path)))

    first, again = open_again(), open_again()
    random, states = first.play_randomly(range(30)), first.calibration
    for name in ("play_randomly", "show_calibration"):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("played again"))
    assert again.play_randomly(range(30)) == random
    np.testing.assert_array_equal(again.calibration, states)
