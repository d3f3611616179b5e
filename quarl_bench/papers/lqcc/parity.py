"""LQCC's parity rule (section 3.1): a configuration matches fp32 when its mean return lies in the fp32 band.

The band is the mean over trained policies plus and minus their standard deviation. The rule is lenient: a band one SD
wide passes a deficit of one SD every other time, whatever the number of policies. So an interval stands beside it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.retention import name_scope, rule_of_three
from quarl_bench.spec import Outcome, Verdict

Returns = NDArray[np.float64]  # one mean return per trained policy


@dataclass(frozen=True)
class Parity:
    """A variant of the rule; LQCC's Table 1 follows from the defaults alone.

    `two_sided` is the literal text: too good does not match either. `sample` takes the SD with n - 1.
    """

    two_sided: bool = False
    sample: bool = True

    @property
    def name(self) -> str:
        """The rule in words: sides, and which standard deviation."""
        return f"{'two' if self.two_sided else 'one'}-sided, {'sample' if self.sample else 'population'} SD"

    def find_band(self, reference: Returns) -> tuple[float, float]:
        """Lowest and highest mean that matches; SpecError for a single policy, which has no SD."""
        values = stats.check_finite(reference, "fp32 returns")
        if values.size < 2:
            raise SpecError("parity: one fp32 policy has no standard deviation; train at least two seeds")
        mean, sd = float(values.mean()), float(values.std(ddof=int(self.sample)))
        return mean - sd, mean + sd if self.two_sided else math.inf

    def matches(self, reference: Returns, candidate: Returns) -> bool:
        """Whether the candidate's mean lies in the reference's band."""
        low, high = self.find_band(reference)
        return low <= float(stats.check_finite(candidate, "returns").mean()) <= high


VARIANTS = tuple(Parity(two_sided, sample) for two_sided in (False, True) for sample in (True, False))


class Difference(NamedTuple):
    """Candidate minus reference in mean return, as a share of the reference's; an interval of two one-sided 95%."""

    estimate: float
    low: float
    high: float

    @property
    def below(self) -> bool:
        """Whether the interval says that the candidate is worse."""
        return self.high < 0.0


class Summary(NamedTuple):
    """What a table prints of the mean returns of `policies` trained policies; the SD is that of a sample."""

    mean: float
    sd: float
    policies: int

    @classmethod
    def of(cls, returns: Returns, what: str = "returns") -> Self:
        """Of one mean return per policy; QuarlError when one is not finite."""
        values = stats.check_finite(returns, what)
        return cls(float(values.mean()), float(values.std(ddof=1)) if values.size > 1 else math.nan, values.size)

    @property
    def variance(self) -> float:
        """Variance of the mean return over policies."""
        return self.sd**2 / self.policies


def compare(reference: Returns, candidate: Returns) -> Difference:
    """Welch's t over policies: training seeds of two configurations have nothing in common.

    The reference's mean is taken as known in the division. With a single policy on a side, or without any spread, the
    limits are infinite.
    """
    return compare_summaries(Summary.of(reference, "fp32 returns"), Summary.of(candidate))


def compare_summaries(reference: Summary, candidate: Summary) -> Difference:
    """The same from what a table prints."""
    unit = abs(reference.mean)
    if unit == 0.0:
        raise SpecError("the mean fp32 return is 0: no relative difference; use a normalised score")
    estimate = (candidate.mean - reference.mean) / unit
    if min(reference.policies, candidate.policies) < 2:
        return Difference(estimate, -math.inf, math.inf)
    groups = (candidate, reference)
    if not sum(group.variance for group in groups):  # constant data bound nothing
        return Difference(estimate, -math.inf, math.inf)
    interval = stats.average_strata(
        [candidate.mean, -reference.mean], [g.variance for g in groups], [g.policies - 1 for g in groups]
    )
    return Difference(estimate, 2 * interval.low / unit, 2 * interval.high / unit)


def band_p_values(reference: Returns, candidate: Returns) -> tuple[float, float]:
    """One-sided p-values: of "the true mean is above the floor of fp32's band", and of "below it".

    Welch's t. The floor, mean - SD, is estimated too, from as few policies: its variance is that of the mean plus that
    of a normal sample's SD, SD^2 / 2(n - 1). (1, 1) for one policy on a side, or without spread.
    """
    base, values = Summary.of(reference, "fp32 returns"), Summary.of(candidate)
    if min(base.policies, values.policies) < 2:
        return 1.0, 1.0
    floor = base.variance + base.sd**2 / (2 * (base.policies - 1))
    error = math.sqrt(values.variance + floor)
    if not error:
        return 1.0, 1.0
    dof = error**4 / (values.variance**2 / (values.policies - 1) + floor**2 / (base.policies - 1))
    return stats.split_t((values.mean - (base.mean - base.sd)) / error, dof)


Group = Sequence[Returns]  # cells whose means are averaged


def average_differences(tasks: Mapping[str, tuple[Returns, Group, Group]]) -> stats.Interval:
    """Mean over fixed tasks of (mean of the first group - of the second) / |mean fp32|, by stratified Welch.

    A task is (fp32, first, second); the cells of the groups are independent of each other.
    """
    means, parts = [], []
    for reference, first, second in tasks.values():
        unit = abs(float(reference.mean()))
        cells = [(cell, len(group)) for group in (first, second) for cell in group]
        parts.append([(cell.var(ddof=1) / cell.size / (size * unit) ** 2, cell.size - 1) for cell, size in cells])
        averages = [float(np.mean([cell.mean() for cell in group])) for group in (first, second)]
        means.append((averages[0] - averages[1]) / unit)
    return average_estimates(means, parts)


def average_estimates(means: Sequence[float], parts: Sequence[Sequence[tuple[float, int]]]) -> stats.Interval:
    """Mean of the tasks' estimates, by stratified Welch; constant data bound nothing.

    `parts` are, per task, the variance that each of its groups adds to the estimate, and its degrees of freedom.
    """
    variances = [sum(variance for variance, _ in groups) for groups in parts]
    squares = [sum(variance**2 / dof for variance, dof in groups) for groups in parts]
    dofs = [total**2 / square if square else 1.0 for total, square in zip(variances, squares, strict=True)]
    found = stats.average_strata(means, variances, dofs)
    return found if sum(variances) else found._replace(low=-math.inf, high=math.inf)


def from_interval(
    outcome: Outcome, interval: Sequence[float], threshold: float, policies: int, caveats: Sequence[str] = ()
) -> Verdict:
    """A verdict over policies of which only means are known: no episodes are counted."""
    estimate, low, high = interval
    bounded = math.isfinite(low) and math.isfinite(high)
    return Verdict(
        outcome, estimate, low if bounded else None, high if bounded else None, threshold,
        name_scope(policies), policies, 0, 0,
        needed="more policies" if outcome.open else "",
        caveats=(*caveats, rule_of_three(policies)),
    )  # fmt: skip


def replay_rule(outcome: Outcome, share: float, threshold: float, policies: int, caveats: Sequence[str]) -> Verdict:
    """What a rule says of these runs, which is exact: there is no interval, and nothing about other runs."""
    return Verdict(
        outcome, share, None, None, threshold, "these runs, by the paper's rule", policies, 0, 0,
        caveats=tuple(caveats),
    )  # fmt: skip


def partial(threshold: float, missing: Sequence[str]) -> Verdict:
    """The partial verdict that lists what was not run."""
    return Verdict(Outcome.PARTIAL, None, None, None, threshold, name_scope(0), 0, 0, 0, missing=tuple(missing))
