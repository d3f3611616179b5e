"""A board with little memory: which machine can be one, and the least memory in which an artefact runs."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from quarl_bench.boards import memory
from quarl_bench.errors import BoardError
from quarl_bench.judging.claim import expand
from quarl_bench.papers.registry import read_catalog
from quarl_bench.report.rows.boards import show_board
from quarl_bench.spec import Outcome
from tests.support.boards import compare_boards

MIB = 1 << 20


class Small:
    """A session whose artefacts need so many MiB each; the kernel ends a process that has less."""

    def __init__(self, **needs):
        self.needs, self.peak, self.limits = needs, 80 * MIB + 12345, []

    def compare(self, pair, plan, *, cgroup=""):
        self.limits.append(int(cgroup or self.peak))
        if cgroup and any(self.needs[path.name] * MIB > int(cgroup) for path in pair):
            raise BoardError("ended by signal 9")
        return SimpleNamespace(first=SimpleNamespace(peak_rss=self.peak), plan=plan)


@pytest.fixture
def limits(monkeypatch):
    monkeypatch.setattr(memory, "limit_memory", lambda limit: contextlib.nullcontext(str(limit)))
    monkeypatch.delenv(memory.SWAP_FOLDER, raising=False)


@pytest.mark.parametrize("need", [1, 2, 19, 20, 63, 79, 80])
def test_the_least_memory_is_that_in_which_fp32_still_runs(limits, need):
    session = Small(fp32=need, int8=1)
    limit, compared = memory.compare_limited(session, (Path("fp32"), Path("int8")), memory.GLANCE)
    assert limit == need * MIB
    assert session.limits[-1] == limit
    assert compared.plan is memory.GLANCE
    assert len(session.limits) <= 10


def test_only_root_with_swap_has_a_small_board(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert memory.find_obstacle() == "the swap cliff needs root, to limit memory"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(memory, "_read", lambda _: "Filename Type Size\n")
    monkeypatch.delenv(memory.SWAP_FOLDER, raising=False)
    assert memory.find_obstacle() == "the swap cliff needs swap: QUARL_SWAP=FOLDER makes a file of 512 MiB there"
    monkeypatch.setenv(memory.SWAP_FOLDER, str(tmp_path))
    assert memory.find_obstacle() == ""
    monkeypatch.delenv(memory.SWAP_FOLDER)
    monkeypatch.setattr(memory, "_read", lambda _: "Filename Type Size\n/dev/sda2 partition 1000\n")
    assert memory.find_obstacle() == ""


def test_limited_memory_is_an_emulation_and_the_row_says_how_much():
    (claim,) = (each for each in read_catalog() if each.id == "figure4-cliff")
    (judged,) = expand(claim)
    compared = compare_boards(900e3, 50e3)
    verdict = claim.judgement.decide_board(compared)
    assert verdict.outcome is Outcome.SUPPORTED
    shown = show_board(judged, compared, verdict, trained=True, memory=20 * MIB)
    assert shown["source"] == "emulated"
    assert "emulated: in a control group with 20 MiB of memory, and swap" in shown["caveats"]
    assert claim.judgement.decide_board(compare_boards(154e3, 50e3)).outcome is Outcome.REFUTED
    plain = next(each for each in read_catalog() if each.id == "table4-eighteenfold")
    shown = show_board(replace(judged, claim=plain), compared, verdict, trained=True)
    assert shown["source"] == "measured"
