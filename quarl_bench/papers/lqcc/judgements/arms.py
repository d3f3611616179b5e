"""LQCC's judgements on arms of policies: convergence, precision, normalization, algorithms, and exact integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from quarl_bench.judging.rules.judgement import Domain, Judgement

if TYPE_CHECKING:
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.spec import Verdict
    from quarl_bench.views.panel import Panel


@dataclass(frozen=True)
class KeepsCurve(Judgement):
    """Over the learning curve the scheme keeps 1 - `threshold` of fp32's mean return."""

    name = "curve"
    meaning = "ratio of mean returns over learning curves, the scheme's over fp32's; supported above 1 - threshold"
    half: ClassVar[bool] = False  # whether the second arm is fp32 trained in bf16

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Learning curves of both arms, one per training seed."""
        from quarl_bench.papers.lqcc.collect import find_curves

        return find_curves(cells, item, half=self.half)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Welch's t over policies."""
        from quarl_bench.papers.lqcc.arms import judge_convergence

        return judge_convergence(self._take(evidence), self.threshold, evidence.missing)

    def show(self, item: "JudgedClaim", evidence: "Evidence") -> "Sequence[Panel]":
        """Figure 2: return against environment steps."""
        from quarl_bench.papers.lqcc.figures import show_learning

        figure = {"figure": "bf16"} if self.half else {}
        return show_learning(item.cases[0].environment, evidence.own, **figure)

    @staticmethod
    def _take(evidence: "Evidence") -> Any:
        """Both arms, or None where one is missing."""
        return None if evidence.missing else tuple(evidence.own.values())


@dataclass(frozen=True)
class LearnsAlike(KeepsCurve):
    """Over the learning curve bf16's mean return lies within +- `threshold` of fp32's."""

    name = "alike"
    meaning = "difference of mean returns over learning curves, of fp32's; supported within +- threshold"
    half = True

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Two one-sided tests."""
        from quarl_bench.papers.lqcc.arms import judge_same_learning

        return judge_same_learning(self._take(evidence), self.threshold, evidence.missing)


@dataclass(frozen=True)
class EndsAlike(LearnsAlike):
    """Over the last quarter of the learning curve bf16's mean return lies within +- `threshold` of fp32's.

    Before they learn, all policies return alike, and most of a learning curve may be that.
    """

    name = "ends_alike"
    meaning = "difference of mean returns over the last quarter of learning curves; supported within +- threshold"

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Two one-sided tests."""
        from quarl_bench.papers.lqcc.arms import judge_same_learning, settle_curves

        return judge_same_learning(self._take(evidence), self.threshold, evidence.missing, settle_curves)

    def show(self, item: "JudgedClaim", evidence: "Evidence") -> "Sequence[Panel]":  # noqa: ARG002
        """Nothing that `LearnsAlike` does not show."""
        return ()


@dataclass(frozen=True)
class Normalizes(Judgement):
    """Normalized observations return more than raw ones, by more than `threshold` of the raw return."""

    name = "normalization"
    meaning = "return on normalized observations minus that on raw ones, of the raw; supported above the threshold"
    domain = Domain.NUMBER

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """By task a summary of raw and of normalized returns: as printed, or of our policies."""
        from quarl_bench.papers.lqcc.collect import find_normalization

        return find_normalization(cells, item)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Stratified Welch over tasks."""
        from quarl_bench.papers.lqcc.arms import judge_normalization

        return judge_normalization(evidence.own, self.threshold, evidence.missing)

    def show(self, item: "JudgedClaim", evidence: "Evidence") -> "Sequence[Panel]":  # noqa: ARG002
        """Table 6, which is SAC's."""
        from quarl_bench.papers.lqcc.figures import OURS, PRINTED, show_normalization
        from quarl_bench.spec import Source

        source = PRINTED if evidence.source is Source.PUBLISHED else OURS
        return show_normalization(source, evidence.own)


@dataclass(frozen=True)
class NormalizationCosts(Normalizes):
    """Normalized observations return less than raw ones."""

    name = "normalization_costs"
    meaning = "return on normalized observations minus that on raw ones, of the raw; supported below the threshold"

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The opposite sentence, by the same interval."""
        from quarl_bench.judging.retention import reverse

        return reverse(super().decide(item, evidence))

    def show(self, item: "JudgedClaim", evidence: "Evidence") -> "Sequence[Panel]":  # noqa: ARG002
        """Nothing: the paper prints no table of it."""
        return ()


@dataclass(frozen=True)
class Higher(Judgement):
    """SAC returns more than DDPG, by more than `threshold` of DDPG's return."""

    name = "higher"
    meaning = "difference of two arms' returns, as a share of a third's; supported above the threshold"
    domain = Domain.NUMBER

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """By task the returns of DDPG, SAC and DDPG."""
        from quarl_bench.papers.lqcc.collect import find_algorithms

        return find_algorithms(cells, item)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Stratified Welch over tasks."""
        from quarl_bench.papers.lqcc.arms import judge_higher

        return judge_higher(evidence.own, self.threshold, evidence.missing)


@dataclass(frozen=True)
class TrainedHigher(Higher):
    """Trained with the quantizer a net returns more than quantized after training, by `threshold` of fp32's return."""

    name = "trained_higher"
    meaning = (
        "return trained with the quantizer minus quantized after training, of fp32's; supported above the threshold"
    )

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """The returns of fp32, of the trained net, and of the one quantized afterwards."""
        from quarl_bench.papers.lqcc.collect import find_trained

        return find_trained(cells, item)


@dataclass(frozen=True)
class LosesUntrained(Judgement):
    """Quantized after training, a net of the selected width loses more than `threshold` of its return."""

    name = "loses_untrained"
    meaning = "ratio of mean returns of one cell; supported below 1 - threshold"

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Measurements in fp32 and quantized; MissingBaseline where no policy is."""
        from quarl_bench.papers.lqcc.collect import find_untrained

        return find_untrained(cells, item)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """The opposite of keeping the return."""
        from quarl_bench.judging.retention import judge_loss

        return judge_loss(evidence.own, margin=self.threshold)


@dataclass(frozen=True)
class ActsAlike(Judgement):
    """What is deployed acts as the net that was trained, in a share `threshold` of visited states."""

    name = "acts_alike"
    meaning = "share of visited states with the trained net's action, all counted; supported from the threshold"

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Both forwards on the same states."""
        from quarl_bench.papers.lqcc.collect import compare_states

        return compare_states(cells, item)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """A count, without an interval."""
        from quarl_bench.papers.lqcc.integer_agreement import judge_agreement

        return judge_agreement(evidence.own, self.threshold, evidence.missing)
