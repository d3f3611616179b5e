"""What a board may have said, and boards that measure once."""

from dataclasses import replace

import pytest

from quarl_bench.boards.board import Board
from quarl_bench.boards.session import Session
from quarl_bench.boards.timing import Block, BoardComparison, GoldenCheck, State, Timing

STATE = State("aarch64", "Raspberry Pi 3", ("asimd",), 4, "6", "3.11", {"numpy": "1.26.4"}, "cc", 0.0, 0.0,
              "performance", 1_200_000, 45.0, 0, 1 << 30, 1 << 29, 0, 1 << 30)  # fmt: skip


CHECK = GoldenCheck("int8", "litert", 1, 1, "r", "k", 1, 1, exact=True, wrong=0, largest=0.0, golden_sha256="a",
                    output_sha256="a", first=None)  # fmt: skip


PI = Board("pi", "ssh", host="pi")


def make_block(p50=1000.0, *, khz=1_200_000, others=0.0):
    ns = {"p50": p50, "p90": p50, "p99": p50, "max": p50}
    return Block(0, 1.0, 1.0, 1, 100, 1.0, ns, {"steady": 0.0, "end": 1.0}, "r", "k", 0.0, 1.0, others, 1, 0, 0, khz,
                 ((0.0, 1, 0),), ())  # fmt: skip


def compare_boards(fp32, int8, **state):
    blocks = [tuple(make_block(ns * (1 + 0.01 * (k % 2))) for k in range(4)) for ns in (fp32, int8)]
    checks = (replace(CHECK, scheme="fp32", bytes=40_000, parameters=10_000), replace(CHECK, bytes=10_000))
    first, second = (Timing(check, found) for check, found in zip(checks, blocks, strict=True))
    return BoardComparison(PI, STATE, replace(STATE, **state), first, second)


def measure_once(monkeypatch: pytest.MonkeyPatch):
    """Sessions bring the times that the first one took of the same artefacts: for tests of what is made of times."""
    compare, taken = Session.compare, {}

    def bring(session, artefacts, *rest, **named):
        key = tuple((folder / "manifest.json").read_bytes() for folder in artefacts)
        if key not in taken:
            taken[key] = compare(session, artefacts, *rest, **named)
        return replace(taken[key], board=session.board)

    monkeypatch.setattr(Session, "compare", bring)
