"""Paired episodes of one cell, and the bounds on what a candidate loses there.

Two bounds must agree on a definite verdict. The first is Student's t over policies on a contrast whose variance counts
policies, shared episodes and their interaction. The second, the tie guard, adds one unseen episode and is asked where
t is known to err: one policy, many exactly equal pairs, or a reference that sits at the score's ceiling.

In a census, where every start there is was played, episodes have no chance in them. What one policy keeps is then
known, without an interval. Over policies t counts them alone, and the guard adds one unseen game of an unseen policy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.statistics import Floats
from quarl_bench.spec import Measurement, Outcome, agree_on_episodes

TIES = 0.05  # share of equal pairs, or of reference episodes at the cap, from which the guard is asked
ANCHOR = 5.0  # standard errors that the mean reference return must be away from 0
FEWEST_EPISODES = 10  # of one policy: fewer without ties err in 5% to 16% of cases, even where they are normal
SPREADLESS = 1e-6  # standard error, relative to the mean reference return, below which data count as constant


@dataclass(frozen=True, eq=False)
class Pairs:
    """Paired episodes of one cell, in return units; `loss` and `base` are P x D, one column per distinct episode.

    The judged quantity is the drop: mean loss / |mean base|. At a drop of m the contrast m * sign * base - loss has
    mean 0, whatever the sign of the mean base.
    """

    loss: Floats
    base: Floats
    tied: bool  # many equal pairs, a reference at its cap, or no spread at all
    unseen_loss: float  # the largest loss assumed of an episode nobody has seen
    unseen_gain: float
    census: bool = False  # whether the columns are all the episodes there are
    level: float = field(init=False)  # |mean base|
    sign: float = field(init=False)

    def __post_init__(self) -> None:
        mean = float(self.base.mean())
        object.__setattr__(self, "level", abs(mean))
        object.__setattr__(self, "sign", math.copysign(1.0, mean))

    @property
    def policies(self) -> int:
        """How many policies (training seeds) there are."""
        return int(self.loss.shape[0])

    @property
    def episodes(self) -> int:
        """How many distinct episodes each policy played."""
        return int(self.loss.shape[1])

    @property
    def guarded(self) -> bool:
        """Whether the tie guard is asked; with one policy it is the only bound, unless nothing of it is unseen."""
        return (self.tied or self.policies == 1) and not self.exact

    @property
    def exact(self) -> bool:
        """Whether the pairs are all that the verdict is about: one policy on every start there is."""
        return self.census and self.policies == 1

    @property
    def scarce(self) -> bool:
        """Whether one policy has played so little that its own extremes bound nothing.

        With ties, or at a cap, the guard takes an unseen episode for a total loss, which holds for any number.
        """
        return self.policies == 1 and not self.tied and not self.census and self.episodes < FEWEST_EPISODES

    @property
    def drop(self) -> float:
        """Relative loss of the mean return."""
        return float(self.loss.mean()) / self.level

    def contrast(self, drop: float) -> Floats:
        """P x D values whose mean is positive when the true drop is below `drop`."""
        values: Floats = (drop * self.sign) * self.base - self.loss
        return values


def find_se(values: Floats, *, census: bool = False) -> float:
    """Standard error of the mean of P x D values: over episodes when there is one policy, in a census over policies."""
    if census:
        means = values.mean(axis=1)
        return float(means.std(ddof=1)) / math.sqrt(means.size) if means.size > 1 else 0.0
    if values.shape[0] == 1:
        return float(values.std(ddof=1)) / math.sqrt(values.size)
    return math.sqrt(stats.estimate_variance(values))


def share_at_cap(returns: Floats, cap: float) -> float:
    """Share of returns that have reached the cap."""
    return float((returns >= cap - 1e-9 * max(1.0, abs(cap))).mean())


def pair_up(
    reference: Floats,
    candidate: Floats,
    base: Floats,
    cap: float | None = None,
    worst_loss: float | None = None,
    *,
    census: bool = False,
) -> Pairs:
    """Pairs of two P x D arrays with D >= 2; `base` is what losses are relative to."""
    loss = reference - candidate
    mean = float(base.mean())
    level = abs(mean)
    tied = bool((loss == 0.0).mean() >= TIES)
    if cap is not None and not tied:
        tied = share_at_cap(base, cap) >= TIES
    if not tied and level > 0.0:
        residual = loss - (float(loss.mean()) / mean) * base
        tied = find_se(residual, census=census) <= SPREADLESS * level
    return Pairs(
        loss=loss,
        base=base,
        tied=tied,
        unseen_loss=level if worst_loss is None else worst_loss,
        unseen_gain=level if cap is None else cap - mean,
        census=census,
    )


def is_anchored(pairs: Pairs) -> bool:
    """Whether the mean base is far enough from 0 for its sign and the ratio to mean anything."""
    factor = ANCHOR if pairs.policies == 1 else max(ANCHOR, stats.find_t_quantile(pairs.policies - 1))
    return pairs.level > 0.0 and pairs.level > factor * find_se(pairs.base, census=pairs.census)


def find_guard_error(policies: int, *, census: bool = False) -> float:
    """Error spent by the guard's lower bound; calibrated by simulation, so that both bounds together keep ERROR.

    The games of a `census` are as many as its policies' times its starts, and fail together where a policy does.
    """
    if census:
        return 0.01 if policies < 8 else 0.005
    return stats.ERROR if policies == 1 or policies >= 8 else 0.025 if policies >= 5 else 0.01


def find_support_error(pairs: Pairs) -> float:
    """Error spent by t's lower bound: in a census with ties that of the guard, because policies' losses are skewed."""
    return find_guard_error(pairs.policies, census=True) if pairs.census and pairs.tied else stats.ERROR


def bootstrap_unseen(pairs: Pairs, drop: float, copies: int = 1) -> tuple[Floats, Floats]:
    """Weighted means of the contrast at `drop` with the worst, and with the best, unseen episode added."""
    contrast = pairs.contrast(drop)
    by_episode = contrast.ravel() if pairs.census else contrast.mean(axis=0)
    worst, best = float(by_episode.min()), float(by_episode.max())
    if pairs.tied:
        worst = min(worst, drop * pairs.level - pairs.unseen_loss)
        best = max(best, drop * pairs.level + pairs.unseen_gain)
    lower = stats.draw_means(by_episode, worst, copies)
    return lower, lower + stats.draw_weights(len(by_episode), copies)[:, -1] * (best - worst)


def bound_guard(pairs: Pairs, drop: float, copies: int = 1, policies: int | None = None) -> tuple[float, float]:
    """Lower and upper bound of the mean contrast at `drop` that the guard gives."""
    lower, upper = bootstrap_unseen(pairs, drop, copies)
    error = find_guard_error(policies or pairs.policies, census=pairs.census)
    return float(np.quantile(lower, error)), float(np.quantile(upper, 1.0 - stats.ERROR))


def _bound(pairs: Pairs, drop: float) -> tuple[float, float]:
    """Lower and upper bound of the mean contrast at `drop`: the wider of t over policies and the guard."""
    contrast, low, high = pairs.contrast(drop), math.inf, -math.inf
    if pairs.exact:
        low = high = float(contrast.mean())
    elif pairs.census:
        means = contrast.mean(axis=1)
        low, high = stats.bound_mean(means, find_support_error(pairs)).low, stats.bound_mean(means).high
    elif pairs.policies > 1:
        _, low, high = stats.bound_contrast(contrast)
    if pairs.guarded:
        guard = bound_guard(pairs, drop)
        low, high = min(low, guard[0]), max(high, guard[1])
    return low, high


def solve_crossing(bound: Callable[[float], float], start: float) -> float:
    """The drop at which an increasing `bound` turns positive, on the side of `start` that its sign there demands."""
    rising = bound(start) <= 0.0
    inner, step = start, 0.02 if rising else -0.02
    for _ in range(40):
        outer = inner + step
        if (bound(outer) > 0.0) == rising:
            return float(brentq(bound, inner, outer, xtol=1e-12))
        inner, step = outer, step * 2.0
    return math.inf if rising else -math.inf


def invert(pairs: Pairs, start: float) -> tuple[float, float]:
    """Interval (low, high) of drops that the bounds do not exclude, consistent with their signs at `start`."""
    if pairs.exact:
        return pairs.drop, pairs.drop
    high = solve_crossing(lambda drop: _bound(pairs, drop)[0], start)
    low = solve_crossing(lambda drop: _bound(pairs, drop)[1], start)
    return low, high


def decide(
    reference: Floats,
    candidate: Floats,
    margin: float = 0.05,
    cap: float | None = None,
    worst_loss: float | None = None,
    *,
    census: bool = False,
) -> Outcome:
    """Whether `candidate` keeps more than 1 - margin of `reference`, both P x D paired returns of distinct episodes.

    The ratio is 1 + (mean candidate - mean reference) / |mean reference|. `cap` is the highest possible return and
    `worst_loss` (return units) the most that one unseen episode can lose; the default is |mean reference|. One episode
    decides nothing, unless it is a `census` of all there are. The arrays are taken as they are: `judge_retention` is
    what checks them.
    """
    if reference.shape[1] < 2 and not census:
        return Outcome.INCONCLUSIVE
    pairs = pair_up(reference, candidate, reference, cap, worst_loss, census=census)
    low, high = _bound(pairs, margin)
    if low <= 0.0 <= high or pairs.scarce or not is_anchored(pairs):
        return Outcome.INCONCLUSIVE
    return Outcome.SUPPORTED if low > 0.0 else Outcome.REFUTED


def _read(measurement: Measurement, what: str) -> Floats:
    """Returns as a P x D array over distinct episodes."""
    width = len(measurement.environment_seeds)
    rows, names = measurement.returns, measurement.episodes
    if (
        not len(rows)
        or not width
        or len(rows) != len(measurement.policies)
        or {len(r) for r in (*rows, names)} != {width}
    ):
        raise SpecError(f"{what}: returns do not form {len(measurement.policies)} policies x {width} episodes")
    return stats.merge_columns(stats.check_finite(rows, f"{what}: returns"), names)


def find_error(reference: Measurement, measured: Measurement) -> float:
    """Relative loss of the mean return over policies and distinct episodes; inf where the reference's is 0."""
    before, after = (float(returns.mean()) for returns in align(reference, measured))
    return (before - after) / abs(before) if before else math.inf


def align(*measurements: Measurement, cell: str = "") -> tuple[Floats, ...]:
    """P x D arrays of measurements that were made on the same policies and episodes; SpecError when they were not."""
    first, where = measurements[0], f"{cell}: " if cell else ""
    for other in measurements[1:]:
        if len(other.policies) != len(first.policies):
            raise SpecError(
                f"{where}{len(first.policies)} reference and {len(other.policies)} candidate policies; "
                "measure the same ones"
            )
        if other.environment_seeds != first.environment_seeds:
            raise SpecError(f"{where}reference and candidate ran on different environment seeds; pair them")
    try:
        episodes = agree_on_episodes(first.environment_seeds, [each.episodes for each in measurements])
    except SpecError as error:
        raise SpecError(f"{where}{error}") from error
    named = [each if each.episodes == episodes else replace(each, episodes=episodes) for each in measurements]
    return tuple(_read(m, f"{where}{'candidate' if index else 'reference'}") for index, m in enumerate(named))
