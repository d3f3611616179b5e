"""What a board may have said."""

from quarl_bench.boards.board import Board
from quarl_bench.boards.timing import Block, GoldenCheck, State

STATE = State("aarch64", "Raspberry Pi 3", ("asimd",), 4, "6", "3.11", {"numpy": "1.26.4"}, "cc", 0.0, 0.0,
              "performance", 1_200_000, 45.0, 0, 1 << 30, 1 << 29, 0, 1 << 30)  # fmt: skip


CHECK = GoldenCheck("int8", "litert", 1, 1, "r", "k", 1, 1, exact=True, wrong=0, largest=0.0, golden_sha256="a",
                    output_sha256="a", first=None)  # fmt: skip


PI = Board("pi", "ssh", host="pi")


def make_block(p50=1000.0, *, khz=1_200_000, others=0.0):
    ns = {"p50": p50, "p90": p50, "p99": p50, "max": p50}
    return Block(0, 1.0, 1.0, 1, 100, 1.0, ns, {"steady": 0.0, "end": 1.0}, "r", "k", 0.0, 1.0, others, 1, 0, 0, khz,
                 ((0.0, 1, 0),), ())  # fmt: skip
