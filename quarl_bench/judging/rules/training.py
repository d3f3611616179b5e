"""Judgements on what training leaves behind: weights, learning curves, and the time of a step."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quarl_bench.errors import SpecError
from quarl_bench.judging.rules.judgement import STATES, Axis, Domain, Judgement
from quarl_bench.judging.times.sessions import ALONE, Sessions

if TYPE_CHECKING:
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.spec import Verdict
    from quarl_bench.training.sb3.step_times import StepTimes

PROXY = "a proxy: nobody measured what was explored"
TIMES = "ratio of times of a training step, fp32 over mixed precision"


@dataclass(frozen=True)
class Wider(Judgement):
    """On a typical task the weights are spread more than `threshold` times as wide as another algorithm's."""

    than: str
    than_origin: str = ""  # "control": the other algorithm's policies of the controlled comparison

    name = "wider"
    meaning = "ratio of a statistic of weights between two kinds of policy, over tasks; supported above the threshold"
    domain = Domain.RATIO
    axis = Axis.STATISTICS

    def check(self) -> None:
        """SpecError for a threshold out of range or an unknown algorithm."""
        super().check()
        Axis.ALGORITHM.check(self.than)

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """The ratio of spreads in every task."""
        from quarl_bench.judging.evidence import collect_spreads

        return collect_spreads(cells, item, self.than, self.than_origin)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Sign flips over tasks, of logarithms; on few tasks by the policies within them."""
        from quarl_bench.judging.tasks import judge_wider

        return judge_wider(
            evidence.ratios, policies=evidence.policies, missing=evidence.missing, threshold=self.threshold,
            within=evidence.within,
        )  # fmt: skip


@dataclass(frozen=True)
class OnExploration(Judgement):
    """Decided from how peaked policies stay along learning curves, in the states `states`."""

    states: str

    domain = Domain.NUMBER

    def check(self) -> None:
        """SpecError for a threshold out of range or unknown states."""
        super().check()
        if self.states not in STATES:
            raise SpecError(f"states {self.states!r} must be one of {', '.join(STATES)}")

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Learning curves of fp32 and of the judged arms."""
        from quarl_bench.judging.evidence import collect_exploration

        return collect_exploration(cells, item, self.states)


@dataclass(frozen=True)
class Flatter(OnExploration):
    """On a typical task fp32 stays more than `threshold` times as peaked as the judged arm."""

    name = "flatter"
    meaning = (
        "ratio of the variances of action probabilities, fp32 over an arm, over tasks; supported above the threshold"
    )
    domain = Domain.RATIO

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Sign flips over tasks, of logarithms; on few tasks by the policies within them."""
        import math

        from quarl_bench.judging.tasks import average_tasks, judge_wider, pool_tasks

        logs = average_tasks({name: math.log(ratio) for name, ratio in evidence.ratios.items()})
        ratios = {task: math.exp(mean) for task, mean in logs.items()}
        return judge_wider(
            ratios, policies=evidence.policies, missing=evidence.missing, threshold=self.threshold, caveat=PROXY,
            within=pool_tasks(evidence.within),
        )  # fmt: skip


@dataclass(frozen=True)
class FlatterBehind(Flatter):
    """Behind the delay fp32 is more than `threshold` times as peaked, beside the arm, as it was before."""

    name = "flatter_behind"
    meaning = (
        "ratio of the variances of action probabilities, fp32 over an arm, behind the delay over before it, over "
        "tasks; supported above the threshold"
    )

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Learning curves of fp32 and of the judged arm, each compared with itself before the delay."""
        from quarl_bench.judging.evidence import collect_exploration
        from quarl_bench.judging.exploration import compare_delays

        return collect_exploration(cells, item, self.states, compare_delays)


@dataclass(frozen=True)
class Ordered(OnExploration):
    """On a typical task peakedness follows the bits, with a rank correlation above `threshold`."""

    name = "ordered"
    meaning = "rank agreement of learning curves with the order of the bits; supported above the threshold"
    whole = True

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Sign flips over tasks, of rank correlations; on few tasks by the policies within them."""
        from quarl_bench.judging.tasks import average_tasks, judge_order, pool_tasks

        return judge_order(
            average_tasks(evidence.orders), policies=evidence.policies, missing=evidence.missing,
            threshold=self.threshold, within=pool_tasks(evidence.within),
        )  # fmt: skip


@dataclass(frozen=True)
class Converges(Judgement):
    """Training in another precision ends within +- `threshold` of the highest return of where fp32 ends."""

    name = "converges"
    meaning = "difference of final returns over the highest return, of two trainings; supported within +- threshold"
    axis = Axis.PRECISIONS

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Learning curves in fp32 and in the judged precision, paired by training seed."""
        from quarl_bench.judging.evidence import collect_runs

        return collect_runs(cells, item)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """Two one-sided tests over paired seeds."""
        from quarl_bench.judging.convergence import judge_convergence

        runs, caps = evidence.pair_runs(item.scheme)
        return judge_convergence(runs, caps, margin=self.threshold, missing=evidence.missing)


@dataclass(frozen=True)
class Sooner(Converges):
    """fp32 takes more than `threshold` times as many steps to a level of return as the other training."""

    name = "sooner"
    meaning = "ratio of steps to a level of return, fp32 over the other training; supported above the threshold"
    domain = Domain.RATIO

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """Student's t over paired seeds, of logarithms."""
        from quarl_bench.judging.convergence import judge_sooner

        runs, caps = evidence.pair_runs(item.scheme)
        return judge_sooner(runs, caps, missing=evidence.missing, threshold=self.threshold)


@dataclass(frozen=True)
class OnTimes(Judgement):
    """Decided from times of a training step, in fp32 and in mixed precision."""

    domain = Domain.RATIO
    axis = Axis.PRECISIONS
    timed = True

    def decide_times(
        self, environments: list[str], precision: str, times: "StepTimes", sessions: Sessions = ALONE
    ) -> "Verdict":
        """The verdict on the policies of these environments, the smallest first; it covers earlier `sessions`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Quicker(OnTimes):
    """A training step of this policy is more than `threshold` times as fast as in fp32."""

    name = "quicker"
    meaning = f"{TIMES}; supported above the threshold"
    each = True
    opposite: ClassVar[bool] = False  # whether the claim says that the step is not so fast

    def decide_times(
        self, environments: list[str], precision: str, times: "StepTimes", sessions: Sessions = ALONE
    ) -> "Verdict":
        """The verdict on the policy of one environment."""
        from quarl_bench.judging.times.step_times import judge_step_time

        (environment,) = environments
        return judge_step_time(times, environment, precision, self.threshold, opposite=self.opposite, sessions=sessions)


@dataclass(frozen=True)
class Idles(Quicker):
    """A training step of this policy is at most `threshold` times as fast as in fp32."""

    name = "idles"
    meaning = f"{TIMES}; supported up to the threshold"
    opposite = True


@dataclass(frozen=True)
class Rises(OnTimes):
    """From every policy to the next larger one the gain grows more than `threshold`-fold."""

    name = "rises"
    meaning = "smallest ratio of successive policies' gains in a training step, by size; supported above the threshold"
    ends: ClassVar[bool] = False  # whether only the largest and the smallest policy are compared

    def decide_times(
        self, environments: list[str], precision: str, times: "StepTimes", sessions: Sessions = ALONE
    ) -> "Verdict":
        """The verdict over policies, the smallest first."""
        from quarl_bench.judging.times.step_times import judge_trend

        return judge_trend(times, environments, precision, self.threshold, ends=self.ends, sessions=sessions)


@dataclass(frozen=True)
class Exceeds(Rises):
    """The largest policy gains more than `threshold` times what the smallest one gains."""

    name = "exceeds"
    meaning = (
        "ratio of the largest policy's gain in a training step to the smallest one's; supported above the threshold"
    )
    ends = True
