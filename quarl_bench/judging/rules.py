"""The rules by which claims are judged: what each is about, and what the keys of its claims mean.

A new rule has an entry here, and its judgement in `judge.py` (or, for kind `case` and for what is not about returns, in
the fixture that applies it). Standard library only, as the catalog.
"""

from dataclasses import dataclass
from enum import Enum

from quarl_bench.quantization.scheme import Scheme
from quarl_bench.training.recipes import ALGORITHMS, PRECISIONS

FAMILIES = ("w", "int")  # as `against`: the scheme of that family with the judged scheme's bits
STATES = ("fixed", "visited")  # in which exploration is measured: the same for every policy, or the policy's own
STATISTICS = ("range", "std", "p999", "rmse8")  # of weights
CASE, AGGREGATE = "case", "aggregate"  # kinds of claims


class AxisKind(Enum):
    """What the names in `schemes`, or the one in `against`, are."""

    SCHEMES = ("schemes", ())
    ALGORITHM = ("an algorithm", ALGORITHMS)
    STATISTICS = ("statistics of weights", STATISTICS)
    PRECISIONS = ("precisions of training", PRECISIONS)
    STATES = ("a set of states", STATES)

    def __init__(self, words: str, known: tuple[str, ...]) -> None:
        self.words, self.known = words, known

    def check(self, name: object) -> None:
        """SpecError or TypeError for an ill-formed scheme, ValueError for a name that is not among the known ones."""
        if self is AxisKind.SCHEMES:
            Scheme.parse(name)  # type: ignore[arg-type]
        elif name not in self.known:
            raise ValueError(f"must be {self.words}: {', '.join(self.known)}")


@dataclass(frozen=True)
class Rule:
    """One rule; `meaning` says what its interval is on and when a claim is supported."""

    kind: str
    meaning: str
    schemes: AxisKind = AxisKind.SCHEMES
    against: AxisKind | None = None  # what `against` is, which the rule then needs
    share: bool = True  # whether the threshold is a share, between 0 and 1
    ratio: bool = False  # whether it is a ratio, above 0
    whole: bool = False  # whether one item is about all cells and schemes
    pair: bool = False  # whether one item is about two cells, the first against the second
    boards: bool = False  # whether cells are measured on boards
    curves: bool = False  # whether learning curves are judged

    @property
    def compares_schemes(self) -> bool:
        """Whether policies under `against` are measured beside the judged ones."""
        return self.against is AxisKind.SCHEMES


_TIMES = "ratio of times of a training step, fp32 over mixed precision"

RULES: dict[str, Rule] = {
    "retention": Rule(
        CASE, "ratio of mean returns, quantized over fp32, of one cell; supported above 1 - threshold"
    ),
    "drops": Rule(CASE, "the same ratio; supported below 1 - threshold"),
    "faster": Rule(CASE, "ratio of median times on one board, fp32 over the scheme", share=False, boards=True),
    "smaller": Rule(CASE, "ratio of file sizes, fp32 over the scheme", share=False, boards=True),
    "leaner": Rule(CASE, "ratio of peak resident memory, fp32 over the scheme", share=False, boards=True),
    "idles": Rule(CASE, f"{_TIMES}; supported up to the threshold", AxisKind.PRECISIONS, share=False),
    "quicker": Rule(CASE, f"{_TIMES}; supported above the threshold", AxisKind.PRECISIONS, share=False),
    "mean_error": Rule(AGGREGATE, "mean over cells of the relative loss of return; supported below the threshold"),
    "mean_loss": Rule(AGGREGATE, "the same; supported above the threshold"),
    "equivalence": Rule(
        AGGREGATE, "mean difference between two schemes' losses; supported within +- threshold",
        against=AxisKind.SCHEMES,
    ),
    "gains": Rule(
        AGGREGATE, "per task, loss under the other scheme minus loss under this one; supported above the threshold",
        against=AxisKind.SCHEMES, share=False,
    ),
    "most_cells": Rule(AGGREGATE, "share of cells that keep 1 - threshold of the return"),
    "some_cells": Rule(AGGREGATE, "share of cells that return more than fp32; supported above the threshold"),
    "wider": Rule(
        AGGREGATE, "ratio of a statistic of weights between two kinds of policy, over tasks; supported above the "
        "threshold", AxisKind.STATISTICS, against=AxisKind.ALGORITHM, share=False, ratio=True,
    ),
    "loses": Rule(
        AGGREGATE, "ratio of mean returns of one cell; supported below 1 - threshold", against=AxisKind.SCHEMES
    ),
    "harder": Rule(
        AGGREGATE, "relative loss of the first of two cells minus that of the second; supported above the threshold",
        share=False, pair=True,
    ),
    "tracks": Rule(
        AGGREGATE, "rank correlation between the spread of weights and the loss, over cells",
        against=AxisKind.STATISTICS,
    ),
    "count": Rule(AGGREGATE, "how many cases there are", share=False, whole=True),
    "flatter": Rule(
        AGGREGATE, "the ratio of `wider`, of the variance of action probabilities along learning curves",
        against=AxisKind.STATES, share=False, ratio=True, curves=True,
    ),
    "ordered": Rule(
        AGGREGATE, "rank agreement of learning curves with the order of the bits; supported above the threshold",
        against=AxisKind.STATES, share=False, whole=True, curves=True,
    ),
    "bench": Rule(
        AGGREGATE, "what the function that its bench calls says; a rule of the paper's own is replayed, without an "
        "interval", share=False
    ),
    "hardware": Rule(AGGREGATE, "a property of a design: cycles, resources, equality with the golden model"),
    "grows": Rule(
        AGGREGATE, "ratio of two policies' speed-ups on one board, the larger policy's over the smaller one's",
        share=False, boards=True,
    ),
    "rises": Rule(
        AGGREGATE, "smallest ratio of successive policies' ratios of that kind, in the order of their size",
        AxisKind.PRECISIONS, share=False,
    ),
    "exceeds": Rule(
        AGGREGATE, "ratio of the largest policy's to the smallest one's", AxisKind.PRECISIONS, share=False
    ),
    "converges": Rule(
        AGGREGATE, "difference of final returns over the highest return, of two trainings; supported within +- "
        "threshold", AxisKind.PRECISIONS, share=False, curves=True,
    ),
    "sooner": Rule(
        AGGREGATE, "ratio of steps to a level of return, fp32 over the other training; supported above the threshold",
        AxisKind.PRECISIONS, share=False, curves=True,
    ),
}  # fmt: skip
