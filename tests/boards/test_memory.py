"""A board with little memory: which machine can be one, and how much it has."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from quarl_bench.boards import memory
from quarl_bench.boards.speedup import judge_cliff
from quarl_bench.boards.timing import TimingPlan
from quarl_bench.errors import BoardError
from quarl_bench.judging.claim import expand
from quarl_bench.papers.registry import read_catalog
from quarl_bench.report.rows.boards import show_board
from quarl_bench.spec import Outcome
from tests.support.boards import compare_boards

MIB = 1 << 20


class Small:
    """A session whose artefacts take so many MiB each, as their control group counts them."""

    def __init__(self, peak, **needs):
        self.peak, self.needs, self.limits = peak, needs, []

    def compare(self, pair, plan, *, cgroup=""):
        if not cgroup:
            return SimpleNamespace(plan=plan)
        self.limits.append(int(Path(cgroup).name))
        (Path(cgroup) / self.peak).write_text(f"{max(self.needs[path.name] for path in pair) * MIB}\n")
        return SimpleNamespace(plan=plan)


@pytest.fixture
def groups(monkeypatch, tmp_path):
    def limit(size):
        (tmp_path / str(size)).mkdir(exist_ok=True)
        return contextlib.nullcontext(str(tmp_path / str(size)))

    monkeypatch.setattr(memory, "limit_memory", limit)
    monkeypatch.delenv(memory.SWAP_FOLDER, raising=False)


@pytest.mark.parametrize("peak", memory.PEAKS)
@pytest.mark.parametrize(("fp32", "limit"), [(67, 41.5), (33, 33), (20, 33)])
def test_the_limit_is_what_int8_takes_and_a_quarter_of_the_rest(groups, peak, fp32, limit):
    session = Small(peak, fp32=fp32, int8=33)
    found = memory.compare_limited(session, (Path("fp32"), Path("int8")), TimingPlan(calls=9))
    assert found.memory == limit * MIB
    assert session.limits == [memory.PLENTY, memory.PLENTY, found.memory]
    assert (found.free.plan.calls, found.limited.plan.calls) == (9, 9)


def test_a_kernel_that_does_not_count_is_one_line(groups):
    with pytest.raises(BoardError, match=r"does not tell its peak \(memory.*use Linux 5.19 or newer$"):
        memory.compare_limited(Small("memory.other", fp32=2, int8=1), (Path("fp32"), Path("int8")), memory.GLANCE)


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


def test_a_cliff_is_what_fp32_loses_beside_int8():
    """It is not that int8 is faster: that it is with all memory too."""
    free, little, same = compare_boards(3e6, 3e5), compare_boards(3e8, 3.3e5), compare_boards(3.8e6, 3e5)
    assert judge_cliff(free, little, 10.0).outcome is Outcome.SUPPORTED
    assert judge_cliff(free, little, 10.0).caveats == (
        "fp32 gets 100 times as slow, int8 1.1 times",
        "fp32/int8 is 10x with all memory, 909x with little",
    )
    assert judge_cliff(free, same, 10.0).outcome is Outcome.REFUTED
    void = judge_cliff(compare_boards(3e6, 3e5, others=2.0), little, 10.0)
    assert (void.outcome, void.low) == (Outcome.INCONCLUSIVE, None)


def test_limited_memory_is_an_emulation_and_the_row_says_how_much():
    claims = {claim.id: claim for claim in read_catalog()}
    (judged,) = expand(claims["figure4-cliff"])
    found = memory.LimitedComparison(42 * MIB, compare_boards(3e6, 3e5), compare_boards(3e8, 3e5))
    verdict = judged.claim.judgement.decide_limited(found)
    shown = show_board(judged, found.limited, verdict, trained=False, memory=found.memory)
    assert shown["source"] == "emulated"
    assert "emulated: in a control group with 42 MiB of memory, and swap" in shown["caveats"]
    assert "fp32/int8 is 10x with all memory, 1e+03x with little" in shown["caveats"]
    plain = replace(judged, claim=claims["table4-eighteenfold"])
    assert show_board(plain, found.free, verdict, trained=True)["source"] == "measured"
    printed = show_board(expand(claims["table4-eighteenfold"])[0], found.free, verdict, trained=True)["caveats"]
    assert printed[-1] == "the paper's Policy III is 208.115 ms in its table and 201.115 ms in its text"
