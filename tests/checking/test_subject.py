"""The policy that is checked: what it has played is remembered."""

from quarl_bench.checking import subject as module
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
