"""What every judgement is: a threshold, and how a claim's items are measured and decided by it.

Judgements are values beside the claims of their paper. The plugin reads claims at collection, so what decides is
imported when an item is judged.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from quarl_bench.errors import SpecError
from quarl_bench.policies.algorithm import ALGORITHMS
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.training.recipes import PRECISIONS

if TYPE_CHECKING:
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.spec import Verdict

STATES = ("fixed", "visited")  # in which exploration is measured: the same for every policy, or the policy's own
STATISTICS = ("range", "std", "p999", "rmse8")  # of weights


class Domain(Enum):
    """Which numbers a threshold may be."""

    SHARE = "at least 0 and below 1"
    WHOLE = "above 0 and at most 1"
    RATIO = "a ratio above 0; 1 is equality"
    NUMBER = "a finite number"

    def holds(self, value: float) -> bool:
        """Whether `value` is one of them."""
        inside = {
            Domain.SHARE: 0 <= value < 1,
            Domain.WHOLE: 0 < value <= 1,
            Domain.RATIO: value > 0,
            Domain.NUMBER: True,
        }
        return math.isfinite(value) and inside[self]


class Axis(Enum):
    """What the names in a claim's `schemes`, or the one that they are compared with, are."""

    SCHEMES = ("schemes", ())
    ALGORITHM = ("an algorithm", ALGORITHMS)
    STATISTICS = ("statistics of weights", STATISTICS)
    PRECISIONS = ("precisions of training", PRECISIONS)
    STATES = ("a set of states", STATES)

    def __init__(self, words: str, known: Iterable[str]) -> None:
        self.words, self.known = words, known

    def check(self, name: Any) -> None:
        """SpecError for an ill-formed scheme, or for a name that is not among the known ones."""
        if self is Axis.SCHEMES:
            Scheme.parse(name)
        elif name not in self.known:
            raise SpecError(f"{name!r} must be {self.words}: {', '.join(self.known)}")


@dataclass(frozen=True)
class Judgement:
    """How a claim is judged. The threshold stands here and nowhere else: it is what decides, and what is printed."""

    threshold: float

    name: ClassVar[str]  # in rows and on the page of claims
    meaning: ClassVar[str]  # what the interval is on, and when a claim is supported
    domain: ClassVar[Domain] = Domain.SHARE
    axis: ClassVar[Axis] = Axis.SCHEMES  # what a claim's `schemes` are
    each: ClassVar[bool] = False  # every cell is an item of its own, a case
    whole: ClassVar[bool] = False  # one item is about all cells and schemes
    by_cell: ClassVar[bool] = False  # one item is about all schemes of one cell
    pair: ClassVar[bool] = False  # one item is about two cells, the first against the second
    boards: ClassVar[bool] = False  # cells are measured on boards
    timed: ClassVar[bool] = False  # times or memory of a process decide, which are a processor's own

    def check(self) -> None:
        """SpecError, with the field's name, for a threshold or a name that makes no sense."""
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float):
            raise SpecError(f"threshold {self.threshold!r} must be a number")
        if not self.domain.holds(self.threshold):
            raise SpecError(f"threshold {self.threshold!r} must be {self.domain.value}")

    def check_schemes(self, schemes: Sequence[str]) -> None:
        """SpecError where all schemes of a claim together are not what it is judged on."""

    def find_against(self, scheme: str) -> str:  # noqa: ARG002
        """The scheme that an item about `scheme` is compared with; empty where that is none."""
        return ""

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Measure what an item is about: the returns of its cells under fp32, its scheme, and what it is against."""
        from quarl_bench.judging.evidence import collect_returns

        return collect_returns(cells, item)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The verdict on one item."""
        raise NotImplementedError

    def show(self, item: "JudgedClaim", evidence: "Evidence") -> Sequence[Any]:  # noqa: ARG002
        """Panels of the page that belong to an item."""
        return ()
