"""Schemes that other cores play: the same returns, every scheme played once, and nothing left behind."""

import multiprocessing
import os
import time
from functools import partial

import pytest

from quarl_bench.checking import answer
from quarl_bench.checking.cores import collect_lines, share_plays
from quarl_bench.checking.subject import Subject
from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import SpecError
from quarl_bench.evaluation.protocol import list_test_seeds
from quarl_bench.experiments import member
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.quantization.scheme import Scheme
from tests.support.places import POLICIES
from tests.support.sizes import choose

EPISODES = 10
SCHEMES = [*map(Scheme.parse, ("fp16", "w8", "int8", "int4"))]
pytestmark = [
    pytest.mark.skipif(not POLICIES.is_dir(), reason=f"no policies in {POLICIES}"),
    pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="helpers are for Linux"),
]


@pytest.fixture
def cores(monkeypatch):
    """How many cores there seem to be."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return lambda number: monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(number)))


def make_subject(cache):
    stored = load_stored(POLICIES / "ppo-cartpole-seed0")
    return Subject(stored, find_environment("cartpole"), cache and Store(StorePaths(cache)))


def play(subject):
    return collect_lines(subject, SCHEMES, EPISODES, "scheme")


def list_plays(subject, episodes=1):
    return [(scheme.name, partial(subject.play, scheme, list_test_seeds(episodes))) for scheme in SCHEMES]


def test_as_many_helpers_as_there_are_say_the_same_and_play_each_scheme_once(cores, tmp_path, monkeypatch):
    played, measure = tmp_path / "played", member.measure_all

    def note(*arguments, **options):
        with played.open("a") as log:
            log.write(f"{os.getpid()}\n")
        return measure(*arguments, **options)

    monkeypatch.setattr(member, "measure_all", note)
    found = []
    for number in choose((1, 2), (1, 2, 4)):
        cores(number)
        played.write_text("")
        found.append(play(make_subject(tmp_path / str(number))))
        who = played.read_text().split()
        assert len(who) == len(SCHEMES) + 1
        assert (len(set(who)) > 1) == (number > 1)
        assert not multiprocessing.active_children()
    assert all(answers == found[0] for answers in found)


def test_a_helper_that_fails_leaves_the_error_to_whoever_asks(cores, tmp_path, monkeypatch, capfd):
    cores(2)
    here, measure = os.getpid(), member.measure_all

    def fail(*arguments, **options):
        if os.getpid() != here:
            raise SpecError("broken over there")
        return measure(*arguments, **options)

    monkeypatch.setattr(member, "measure_all", fail)
    assert len(play(make_subject(tmp_path))) == len(SCHEMES)
    assert capfd.readouterr() == ("", "")


def test_an_interrupt_ends_the_helpers_and_leaves_no_file(cores, tmp_path):
    cores(2)
    subject = make_subject(tmp_path)
    with pytest.raises(KeyboardInterrupt), share_plays(subject, list_plays(subject, 2000)):
        raise KeyboardInterrupt
    assert not multiprocessing.active_children()
    assert not [*tmp_path.rglob("*.tmp")]


def test_a_helper_that_swallows_its_end_is_told_again(cores, tmp_path, monkeypatch):
    def swallow(*_):
        (tmp_path / "playing").touch()
        try:
            time.sleep(60)
        except SystemExit:  # as the interpreter does, of what is raised in a destructor
            time.sleep(60)

    monkeypatch.setattr(Subject, "play", swallow)
    cores(2)
    began, subject = time.monotonic(), make_subject(tmp_path)
    with share_plays(subject, list_plays(subject)):
        while not (tmp_path / "playing").exists():
            time.sleep(0.01)
    assert time.monotonic() - began < 30
    assert not multiprocessing.active_children()


def test_nobody_helps_where_nothing_is_stored_or_xdist_has_the_cores(cores, tmp_path, monkeypatch):
    cores(8)
    bare, kept = make_subject(None), make_subject(tmp_path)
    with share_plays(bare, list_plays(bare)) as share:
        assert not multiprocessing.active_children()
        assert not [*share]
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    with share_plays(kept, list_plays(kept)) as share:
        assert not multiprocessing.active_children()
        assert not [*share]


def test_a_floor_above_the_reference_is_refused_once_that_is_known(cores, tmp_path):
    cores(1)
    subject, played = make_subject(tmp_path), []
    subject.play = lambda scheme, seeds: played.append(str(scheme)) or Subject.play(subject, scheme, seeds)
    with pytest.raises(SpecError, match="floor 600: it must be finite, and below what the reference returns"):
        collect_lines(subject, SCHEMES, EPISODES, "scheme", floor=600.0)
    assert played == ["fp32"]


def test_what_else_is_wanted_is_played_beside(cores, tmp_path, monkeypatch):
    cores(2)
    subject = make_subject(tmp_path)
    random = partial(subject.play_randomly, list_test_seeds(EPISODES))
    collect_lines(subject, SCHEMES, EPISODES, "scheme", beside=[("random actions", random)])
    monkeypatch.setattr("quarl_bench.checking.subject.play_randomly", lambda *_: pytest.fail("played again"))
    assert len(random().returns[0]) == EPISODES


@pytest.mark.parametrize("number", [1, 2])
def test_what_waits_for_the_last_plays_is_begun_before_they_are_judged(cores, tmp_path, number, monkeypatch):
    cores(number)
    told, judge = [], answer.judge_retention
    monkeypatch.setattr(answer, "judge_retention", lambda *a, **k: told.append("judged") or judge(*a, **k))
    collect_lines(make_subject(tmp_path), SCHEMES, EPISODES, "scheme", meanwhile=lambda: told.append("begun"))
    assert told == ["begun", *["judged"] * len(SCHEMES)]
