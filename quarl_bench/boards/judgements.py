"""Judgements on boards: what a scheme gains over fp32 in time, in size, and in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quarl_bench.judging.rules.judgement import Domain, Judgement

if TYPE_CHECKING:
    from quarl_bench.boards.memory import LimitedComparison
    from quarl_bench.boards.timing import BoardComparison
    from quarl_bench.spec import Verdict

GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Faster(Judgement):
    """The scheme is more than `threshold` times as fast as fp32 on this board."""

    name = "faster"
    meaning = "ratio of median times on one board, fp32 over the scheme; supported above the threshold"
    domain = Domain.RATIO
    each = True
    boards = True
    timed = True
    limited: ClassVar[bool] = False  # in emulated memory, too little for fp32

    def decide_board(self, compared: "BoardComparison") -> "Verdict":
        """The verdict on one policy on one board."""
        from quarl_bench.boards.speedup import judge_speed

        return judge_speed(compared, self.threshold)

    def explain(self, compared: "BoardComparison") -> str:
        """Why the ratio is what it is."""
        from quarl_bench.boards.speedup import explain_speed

        return explain_speed(compared)

    def describe(self, compared: "BoardComparison", verdict: "Verdict") -> str:  # noqa: ARG002
        """The verdict as one line for terminal and report."""
        from quarl_bench.boards.speedup import describe_ratio

        return describe_ratio(verdict)


@dataclass(frozen=True)
class Fits(Faster):
    """In memory that holds the weights of the scheme and not those of fp32, fp32 falls behind `threshold`-fold.

    It is swapped there. The memory is this machine's, limited: an emulation of a small board.
    """

    name = "fits"
    meaning = (
        "how many times as slow fp32 gets where memory is short and swapped, over how many times the scheme gets; "
        "supported above the threshold"
    )
    limited = True

    def decide_limited(self, found: "LimitedComparison") -> "Verdict":
        """The verdict on one policy with all memory and with little."""
        from quarl_bench.boards.speedup import judge_cliff

        return judge_cliff(found.free, found.limited, self.threshold)

    def describe(self, compared: "BoardComparison", verdict: "Verdict") -> str:  # noqa: ARG002
        """As many times."""
        from quarl_bench.judging.modes import describe

        return describe(verdict)


@dataclass(frozen=True)
class Reaches(Faster):
    """On this board the scheme acts more than `threshold` times a second, and fp32 does not."""

    name = "reaches"
    meaning = (
        "actions a second under the scheme, or in fp32 where that is as fast; supported where the scheme is above the "
        "threshold and fp32 below"
    )
    domain = Domain.RATIO

    def decide_board(self, compared: "BoardComparison") -> "Verdict":
        """The verdict on one policy on one board."""
        from quarl_bench.boards.speedup import judge_rate

        return judge_rate(compared, self.threshold)

    def describe(self, compared: "BoardComparison", verdict: "Verdict") -> str:
        """In hertz."""
        from quarl_bench.boards.speedup import describe_rate

        return describe_rate(compared, verdict)


@dataclass(frozen=True)
class Smaller(Faster):
    """The file of the scheme is at least `threshold` times smaller than that of fp32."""

    name = "smaller"
    meaning = "ratio of file sizes, fp32 over the scheme; supported from the threshold on"
    timed = False

    def decide_board(self, compared: "BoardComparison") -> "Verdict":
        """The verdict on one policy, which no board changes."""
        from quarl_bench.boards.speedup import judge_size

        return judge_size(compared, self.threshold)

    def explain(self, compared: "BoardComparison") -> str:
        """What keeps the ratio from four."""
        from quarl_bench.boards.speedup import explain_size

        return explain_size(compared)


@dataclass(frozen=True)
class Leaner(Faster):
    """The process of the scheme has a peak memory more than `threshold` times smaller than that of fp32."""

    name = "leaner"
    meaning = "ratio of peak resident memory, fp32 over the scheme; supported above the threshold"

    def decide_board(self, compared: "BoardComparison") -> "Verdict":
        """The verdict on one policy on one board."""
        from quarl_bench.boards.speedup import judge_memory

        return judge_memory(compared, self.threshold)

    def explain(self, compared: "BoardComparison") -> str:
        """What else the processes hold."""
        from quarl_bench.boards.speedup import explain_memory

        return explain_memory(compared)


@dataclass(frozen=True)
class Fills(Leaner):
    """The process that runs the policy in fp32 has a peak memory of more than `threshold` times `memory` bytes."""

    memory: int = GIBIBYTE  # of a Raspberry Pi 3b

    name = "fills"
    meaning = "peak resident memory in fp32 over that of a Raspberry Pi 3b, 1 GiB; supported above the threshold"

    def decide_board(self, compared: "BoardComparison") -> "Verdict":
        """The verdict on one policy on one board."""
        from quarl_bench.boards.speedup import judge_peak

        return judge_peak(compared, self.memory, self.threshold)

    def describe(self, compared: "BoardComparison", verdict: "Verdict") -> str:  # noqa: ARG002
        """In shares of that memory."""
        from quarl_bench.judging.modes import describe

        return describe(verdict)


@dataclass(frozen=True)
class Grows(Judgement):
    """From every policy to the next larger one the speed-up grows more than `threshold`-fold."""

    name = "grows"
    meaning = "smallest ratio of successive policies' speed-ups on one board, by size; supported above the threshold"
    domain = Domain.RATIO
    boards = True
    timed = True

    def decide_boards(self, compared: "Sequence[BoardComparison]") -> "Verdict":
        """The verdict over policies on one board."""
        from quarl_bench.boards.speedup import judge_growth

        return judge_growth(compared, self.threshold)
