"""Judgements on boards: what a scheme gains over fp32 in time, in size, and in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quarl_bench.judging.rules.judgement import Domain, Judgement

if TYPE_CHECKING:
    from quarl_bench.boards.timing import BoardComparison
    from quarl_bench.spec import Verdict


@dataclass(frozen=True)
class Faster(Judgement):
    """The scheme is more than `threshold` times as fast as fp32 on this board."""

    name = "faster"
    meaning = "ratio of median times on one board, fp32 over the scheme; supported above the threshold"
    domain = Domain.RATIO
    each = True
    boards = True
    timed = True

    def decide_board(self, compared: "BoardComparison") -> "Verdict":
        """The verdict on one policy on one board."""
        from quarl_bench.boards.speedup import judge_speed

        return judge_speed(compared, self.threshold)

    def explain(self, compared: "BoardComparison") -> str:
        """Why the ratio is what it is."""
        from quarl_bench.boards.speedup import explain_speed

        return explain_speed(compared)


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
