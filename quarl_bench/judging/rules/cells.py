"""Judgements on the returns of single cells, each an item of its own: a case."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quarl_bench.judging.rules.judgement import Judgement

if TYPE_CHECKING:
    from quarl_bench.judging.claim import JudgedCase
    from quarl_bench.spec import Measurement, Verdict


@dataclass(frozen=True)
class Keeps(Judgement):
    """The scheme costs a cell less than `threshold` of its return."""

    name = "retention"
    meaning = "ratio of mean returns, quantized over fp32, of one cell; supported above 1 - threshold"
    each = True
    opposite: ClassVar[bool] = False  # whether the claim says that the return is lost

    def decide_case(self, item: "JudgedCase", reference: "Measurement", measured: "Measurement") -> "Verdict":
        """The verdict on one cell, measured in fp32 and under the item's scheme."""
        from quarl_bench.judging.modes import judge_case

        return judge_case(item.case.environment, self.threshold, reference, measured, opposite=self.opposite)

    def find_p_values(
        self, item: "JudgedCase", reference: "Measurement", measured: "Measurement"
    ) -> tuple[float, float]:
        """One-sided p-values of "supported" and of "refuted"."""
        from quarl_bench.judging.modes import case_p_values

        return case_p_values(item.case.environment, self.threshold, reference, measured, opposite=self.opposite)


@dataclass(frozen=True)
class Drops(Keeps):
    """The scheme costs a cell more than `threshold` of its return."""

    name = "drops"
    meaning = "ratio of mean returns, quantized over fp32, of one cell; supported below 1 - threshold"
    opposite = True
