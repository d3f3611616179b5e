"""From paired measurements to verdicts: an interval first, then which side of the threshold it lies on.

Two bounds must agree on a definite verdict. The first is Student's t over policies on a contrast whose variance counts
policies, shared episodes and their interaction. The second, the tie guard, adds one unseen episode and is asked where
t is known to err: one policy, many exactly equal pairs, or a reference that sits at the score's ceiling.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq

from quarl_bench import stats
from quarl_bench.errors import SpecError
from quarl_bench.spec import Measurement, Outcome, Verdict
from quarl_bench.stats import Floats, Interval

TIES = 0.05  # share of equal pairs, or of reference episodes at the cap, from which the guard is asked
ANCHOR = 5.0  # standard errors that the mean reference return must be away from 0
SPREADLESS = 1e-6  # standard error, relative to the mean reference return, below which data count as constant
FEWEST = 3  # policies a plan asks for: with two, t has one degree of freedom and hardly ever decides
COPIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # sample sizes tried by a plan, in multiples of the present one


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
    level: float = field(init=False)  # |mean base|
    sign: float = field(init=False)

    def __post_init__(self) -> None:
        mean = float(self.base.mean())
        object.__setattr__(self, "level", abs(mean))
        object.__setattr__(self, "sign", math.copysign(1.0, mean))

    @property
    def policies(self) -> int:
        return self.loss.shape[0]

    @property
    def episodes(self) -> int:
        return self.loss.shape[1]

    @property
    def guarded(self) -> bool:
        """Whether the tie guard is asked; with one policy it is the only bound."""
        return self.tied or self.policies == 1

    @property
    def drop(self) -> float:
        return float(self.loss.mean()) / self.level

    def contrast(self, drop: float) -> Floats:
        """P x D values whose mean is positive when the true drop is below `drop`."""
        values: Floats = (drop * self.sign) * self.base - self.loss
        return values


def _find_se(values: Floats) -> float:
    if values.shape[0] == 1:
        return float(values.std(ddof=1)) / math.sqrt(values.size)
    return math.sqrt(stats.estimate_variance(values))


def _share_at_cap(returns: Floats, cap: float) -> float:
    return float((returns >= cap - 1e-9 * max(1.0, abs(cap))).mean())


def _pair(
    reference: Floats, candidate: Floats, base: Floats, cap: float | None = None, worst_loss: float | None = None
) -> Pairs:
    """Pairs of two P x D arrays with D >= 2; `base` is what losses are relative to."""
    loss = reference - candidate
    mean = float(base.mean())
    level = abs(mean)
    tied = bool((loss == 0.0).mean() >= TIES)
    if cap is not None and not tied:
        tied = _share_at_cap(base, cap) >= TIES
    if not tied and level > 0.0:
        residual = loss - (float(loss.mean()) / mean) * base
        tied = _find_se(residual) <= SPREADLESS * level
    return Pairs(
        loss=loss,
        base=base,
        tied=tied,
        unseen_loss=level if worst_loss is None else worst_loss,
        unseen_gain=level if cap is None else cap - mean,
    )


def _is_anchored(pairs: Pairs) -> bool:
    """Whether the mean base is far enough from 0 for its sign and the ratio to mean anything."""
    factor = ANCHOR if pairs.policies == 1 else max(ANCHOR, stats.find_t_quantile(pairs.policies - 1))
    return pairs.level > 0.0 and pairs.level > factor * _find_se(pairs.base)


def _find_guard_error(policies: int) -> float:
    """Error spent by the guard's lower bound; calibrated by simulation, so that both bounds together keep ERROR."""
    return stats.ERROR if policies == 1 or policies >= 8 else 0.025 if policies >= 5 else 0.01


def _draw_guard(pairs: Pairs, drop: float, copies: int = 1) -> tuple[Floats, Floats]:
    """Weighted means of the contrast at `drop` with the worst, and with the best, unseen episode added."""
    by_episode = pairs.contrast(drop).mean(axis=0)
    worst, best = float(by_episode.min()), float(by_episode.max())
    if pairs.tied:
        worst = min(worst, drop * pairs.level - pairs.unseen_loss)
        best = max(best, drop * pairs.level + pairs.unseen_gain)
    lower = stats.draw_means(by_episode, worst, copies)
    return lower, lower + stats.draw_weights(pairs.episodes, copies)[:, -1] * (best - worst)


def _bound_guard(pairs: Pairs, drop: float, copies: int = 1, policies: int | None = None) -> tuple[float, float]:
    lower, upper = _draw_guard(pairs, drop, copies)
    error = _find_guard_error(policies or pairs.policies)
    return float(np.quantile(lower, error)), float(np.quantile(upper, 1.0 - stats.ERROR))


def _bound(pairs: Pairs, drop: float) -> tuple[float, float]:
    """Lower and upper bound of the mean contrast at `drop`: the wider of t over policies and the guard."""
    low, high = math.inf, -math.inf
    if pairs.policies > 1:
        _, low, high = stats.bound_contrast(pairs.contrast(drop))
    if pairs.guarded:
        guard = _bound_guard(pairs, drop)
        low, high = min(low, guard[0]), max(high, guard[1])
    return low, high


def _cross(bound: Callable[[float], float], start: float) -> float:
    """The drop at which an increasing `bound` turns positive, on the side of `start` that its sign there demands."""
    rising = bound(start) <= 0.0
    inner, step = start, 0.02 if rising else -0.02
    for _ in range(40):
        outer = inner + step
        if (bound(outer) > 0.0) == rising:
            return float(brentq(bound, inner, outer, xtol=1e-12))
        inner, step = outer, step * 2.0
    return math.inf if rising else -math.inf


def _invert(pairs: Pairs, start: float) -> tuple[float, float]:
    """Interval (low, high) of drops that the bounds do not exclude, consistent with their signs at `start`."""
    high = _cross(lambda drop: _bound(pairs, drop)[0], start)
    low = _cross(lambda drop: _bound(pairs, drop)[1], start)
    return low, high


def decide(
    reference: Floats,
    candidate: Floats,
    margin: float = 0.05,
    cap: float | None = None,
    worst_loss: float | None = None,
) -> Outcome:
    """Whether `candidate` keeps more than 1 - margin of `reference`, both P x D paired returns of distinct episodes.

    The ratio is 1 + (mean candidate - mean reference) / |mean reference|. `cap` is the highest possible return and
    `worst_loss` (return units) the most that one unseen episode can lose; the default is |mean reference|. One episode
    decides nothing. The arrays are taken as they are: `judge_retention` is what checks them.
    """
    if reference.shape[1] < 2:
        return Outcome.INCONCLUSIVE
    pairs = _pair(reference, candidate, reference, cap, worst_loss)
    low, high = _bound(pairs, margin)
    if low <= 0.0 <= high or not _is_anchored(pairs):
        return Outcome.INCONCLUSIVE
    return Outcome.SUPPORTED if low > 0.0 else Outcome.REFUTED


def _read(measurement: Measurement, what: str) -> Floats:
    """Returns as a P x D array over distinct episodes."""
    width = len(measurement.environment_seeds)
    rows, names = measurement.returns, measurement.episodes
    if not rows or not width or len(rows) != len(measurement.policies) or {len(r) for r in (*rows, names)} != {width}:
        raise SpecError(f"{what}: returns do not form {len(measurement.policies)} policies x {width} episodes")
    return stats.merge_columns(stats.check_finite(rows, f"{what}: returns"), names)


def _align(*measurements: Measurement, cell: str = "") -> tuple[Floats, ...]:
    """P x D arrays of measurements that were made on the same policies and episodes; SpecError when they were not."""
    first, where = measurements[0], f"{cell}: " if cell else ""
    for other in measurements[1:]:
        if len(other.policies) != len(first.policies):
            raise SpecError(
                f"{where}{len(first.policies)} reference and {len(other.policies)} candidate policies; "
                "measure the same ones"
            )
        if other.environment_seeds != first.environment_seeds or other.episodes != first.episodes:
            raise SpecError(f"{where}reference and candidate ran on different environment seeds or starts; pair them")
    return tuple(_read(m, f"{where}{'candidate' if index else 'reference'}") for index, m in enumerate(measurements))


def _check_options(margin: float, cap: float | None, worst_loss: float | None, *arrays: Floats) -> None:
    if not 0.0 <= margin < 1.0:
        raise SpecError(f"margin {margin!r}: it must be at least 0 and below 1")
    if worst_loss is not None and not (math.isfinite(worst_loss) and worst_loss > 0.0):
        raise SpecError(f"worst_loss {worst_loss!r}: it must be a positive number of return units")
    top = max(float(array.max()) for array in arrays)
    if cap is not None and not (math.isfinite(cap) and top <= cap + 1e-9 * max(1.0, abs(cap))):
        raise SpecError(f"cap {cap!r}: it must be finite and not below the highest measured return, {top:g}")


def _name_scope(policies: int) -> str:
    return "this policy" if policies == 1 else "policies trained this way"


def _conclude(interval: tuple[float, float] | None, supported_from: float, supported_to: float) -> Outcome:
    if interval is None:
        return Outcome.INCONCLUSIVE
    low, high = interval
    if low > supported_from and high < supported_to:
        return Outcome.SUPPORTED
    return Outcome.REFUTED if high < supported_from or low > supported_to else Outcome.INCONCLUSIVE


def judge_retention(
    reference: Measurement,
    candidate: Measurement,
    *,
    margin: float = 0.05,
    cap: float | None = None,
    worst_loss: float | None = None,
) -> Verdict:
    """Judge "the candidate keeps more than 1 - margin of the reference's return" on one cell.

    Estimate, interval and threshold are the ratio 1 + (candidate - reference) / |reference| of mean returns. `cap` is
    the highest possible return and `worst_loss` the most that one unseen episode can lose, both in return units.
    Raises SpecError for measurements that are not paired or options out of range, QuarlError for NaN or infinity.
    """
    base, other = _align(reference, candidate)
    _check_options(margin, cap, worst_loss, base, other)
    policies, episodes, distinct = base.shape[0], len(reference.environment_seeds), base.shape[1]
    caveats = [] if distinct == episodes else [f"{episodes} episodes are {distinct} distinct ones, each counted once"]
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    if distinct < 2:
        caveats.append("one distinct episode gives no interval")
        needed = f"at least {_count_ties(margin, policies)} distinct episodes" if margin else "more distinct episodes"
    else:
        pairs = _pair(base, other, base, cap, worst_loss)
        estimate = 1.0 - pairs.drop if pairs.level else None
        if not _is_anchored(pairs):
            caveats.append(f"the mean reference return lies within {ANCHOR:g} standard errors of 0: no ratio is stable")
            needed = "a declared normalised score, or a reference that is further from 0"
        else:
            low, high = _invert(pairs, margin)
            if math.isfinite(high - low):
                interval = (1.0 - high, 1.0 - low)
            else:
                caveats.append("the data give no bounded interval")
            needed = _plan(pairs, margin)
            caveats += _list_caveats(pairs, cap)
    outcome = _conclude(interval, 1.0 - margin, math.inf)
    return Verdict(
        outcome=outcome,
        estimate=estimate,
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        threshold=1.0 - margin,
        scope=_name_scope(policies),
        policies=policies,
        episodes=episodes,
        distinct_episodes=distinct,
        needed=needed if outcome is Outcome.INCONCLUSIVE else "",
        caveats=tuple(caveats),
    )


def weigh_retention(
    reference: Measurement,
    candidate: Measurement,
    *,
    margin: float = 0.05,
    cap: float | None = None,
    worst_loss: float | None = None,
) -> tuple[float, float]:
    """One-sided p-values (of supported, of refuted) of the rule of `judge_retention`; the same options and errors.

    For counting cells and for false discovery rates; (1, 1) where there is no interval. The guard's part is resolved
    to one in `stats.WEIGHT_DRAWS`.
    """
    base, other = _align(reference, candidate)
    _check_options(margin, cap, worst_loss, base, other)
    if base.shape[1] < 2:
        return 1.0, 1.0
    pairs = _pair(base, other, base, cap, worst_loss)
    if not _is_anchored(pairs):
        return 1.0, 1.0
    supported, refuted = [0.0], [0.0]
    if pairs.policies > 1:
        above, below = stats.split_tails(pairs.contrast(margin))
        supported.append(above)
        refuted.append(below)
    if pairs.guarded:
        lower, upper = _draw_guard(pairs, margin)
        scale = stats.ERROR / _find_guard_error(pairs.policies)
        supported.append(min(1.0, scale * (int((lower <= 0.0).sum()) + 1) / (lower.size + 1)))
        refuted.append((int((upper >= 0.0).sum()) + 1) / (upper.size + 1))
    return max(supported), max(refuted)


def _count_ties(margin: float, policies: int) -> int:
    """Distinct episodes that support retention when every pair of them is equal."""
    return math.ceil(math.log(_find_guard_error(policies)) / math.log(1.0 - margin))


def _plan(pairs: Pairs, drop: float) -> str:
    """What would decide if the truth were the estimate, as a phrase.

    Policies by the power of the t-test; episodes by asking the guard about a sample in which each was seen more often.
    """
    contrast = pairs.contrast(drop)
    effect = float(contrast.mean())
    policies, ratio = pairs.policies, f"if the true ratio is {1.0 - pairs.drop:.3f}"
    if policies > 1:
        ratio = f"for {stats.POWER:.0%} power {ratio}"
        parts = stats.split_variance(contrast)
        shared = parts.episode / pairs.episodes
        count = stats.count_policies(effect, parts.policy + parts.interaction / pairs.episodes, shared)
        if count is None:
            return f"more than 1000 policies at {pairs.episodes} distinct episodes {ratio}"
        policies = max(count, policies, FEWEST)
    copies: int | None = 1
    if pairs.guarded:
        side = 0 if effect > 0.0 else 1
        signs = ((n, _bound_guard(pairs, drop, n, policies)[side]) for n in COPIES)
        copies = next((n for n, bound in signs if (bound > 0.0) == (effect > 0.0) and bound != 0.0), None)
    runs = "this policy" if policies == 1 else f"about {policies} policies"
    if copies is None:
        return f"{runs} x more than {COPIES[-1] * pairs.episodes} distinct episodes {ratio}"
    return f"{runs} x {copies * pairs.episodes} distinct episodes {ratio}"


def _bar_collapses(policies: int) -> str:
    """The rule of three: an event never seen in P policies may still happen in up to 3/P of them."""
    return f"barring collapses in fewer than 3/{policies} of policies" if policies > 3 else "barring any rare collapse"


def _list_caveats(pairs: Pairs, cap: float | None) -> list[str]:
    """What a sample of this size cannot exclude."""
    episodes, policies, found = pairs.episodes, pairs.policies, []
    if not pairs.loss.any():
        found.append(f"identical on all {episodes} distinct episodes; loss <= 3/{episodes} = {3 / episodes:.3g}")
    if policies == 1:
        found.append("one policy: says nothing about other training runs")
    else:
        worst = 1.0 - float(pairs.loss.mean(axis=1).max()) / pairs.level
        found.append(_bar_collapses(policies))
        found.append(f"the worst of {policies} policies keeps {worst:.3f} of the mean reference return")
    if pairs.guarded:
        found.append(f"failures in fewer than 3/{episodes} of episodes are not excluded")
    if pairs.tied:
        found.append(f"assumes that no unseen episode loses more than {pairs.unseen_loss:g}")
    if cap is not None and (share := _share_at_cap(pairs.base, cap)) >= TIES:
        found.append(f"the reference reaches its cap of {cap:g} in {share:.0%} of episodes, where gains cannot show")
    return found


@dataclass(frozen=True)
class _Drop:
    """Drop of one cell, with the variance of its estimate seen from above and from below."""

    estimate: float
    upward: float
    downward: float
    policies: int


def _measure_drop(pairs: Pairs) -> _Drop:
    """Linearised (delta method) variance of a cell's drop; a tied cell counts at least its guard's distance.

    Turning a limit's distance into a variance, so that limits of different cells can be added in squares, is the
    method of variance estimates recovery.
    """
    drop, policies = pairs.drop, pairs.policies
    if policies == 1:
        return _Drop(drop, 0.0, 0.0, policies)
    variance = stats.estimate_variance(pairs.contrast(drop)) / pairs.level**2
    if not pairs.tied:
        return _Drop(drop, variance, variance, policies)
    low, high = _invert(pairs, drop)
    quantile = stats.find_t_quantile(policies - 1)
    return _Drop(
        drop, max(variance, ((high - drop) / quantile) ** 2), max(variance, ((drop - low) / quantile) ** 2), policies
    )


def _average(drops: Sequence[_Drop]) -> Interval | None:
    """Interval for the mean drop over cells; None when the data give none."""
    means = [d.estimate for d in drops]
    if not drops or not all(math.isfinite(d.upward + d.downward) for d in drops):
        return None
    if min(d.policies for d in drops) > 1:
        dofs = [d.policies - 1 for d in drops]
        low = stats.average_strata(means, [d.downward for d in drops], dofs).low
        interval = stats.average_strata(means, [d.upward for d in drops], dofs)._replace(low=low)
    elif len(drops) > 1:
        interval = stats.average_tasks(means)
    else:
        return None
    return interval if interval.high - interval.low > SPREADLESS else None


def _judge_average(
    cells: Mapping[str, tuple[Measurement, ...]],
    lower: float,
    upper: float,
    missing: Sequence[str],
    pair: Callable[[tuple[Floats, ...]], Pairs],
) -> Verdict:
    if not cells and not missing:
        raise SpecError("no cells to average; name at least one")
    if not math.isfinite(upper) or upper < 0.0:
        raise SpecError(f"threshold or margin {upper!r}: it must be a finite number of at least 0")
    drops, caveats = [], []
    for name, measurements in cells.items():
        arrays = _align(*measurements, cell=name)
        pairs = pair(arrays) if arrays[0].shape[1] > 1 else None
        if pairs is None or not _is_anchored(pairs):
            reason = "one distinct episode" if pairs is None else f"mean return within {ANCHOR:g} standard errors of 0"
            caveats.append(f"no interval: {name} has {'' if pairs is None else 'a '}{reason}")
        else:
            drops.append(_measure_drop(pairs))
            if pairs.tied:
                caveats.append(f"{name}: assumes that no unseen episode loses more than {pairs.unseen_loss:g}")
    complete = len(drops) == len(cells)
    interval = _average(drops) if complete else None
    firsts = [group[0] for group in cells.values()]
    policies = min((len(m.policies) for m in firsts), default=0)
    if policies == 1:
        caveats.append("one policy per task: the tasks count as a sample of tasks")
    elif drops:
        caveats += ["says nothing about other tasks", _bar_collapses(policies)]
    outcome = _conclude(None if interval is None else interval[1:], lower, upper)
    estimate = float(np.mean([d.estimate for d in drops])) if drops and complete else None
    return Verdict(
        outcome=Outcome.PARTIAL if missing else outcome,
        estimate=estimate,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        threshold=upper,
        scope=_name_scope(policies),
        policies=policies,
        episodes=min((len(m.environment_seeds) for m in firsts), default=0),
        distinct_episodes=min((m.distinct_episodes for m in firsts), default=0),
        needed=_plan_average(drops, lower, upper) if outcome is Outcome.INCONCLUSIVE and complete else "",
        caveats=tuple(caveats),
        missing=tuple(missing),
    )


def _plan_average(drops: Sequence[_Drop], lower: float, upper: float) -> str:
    if not drops or min(d.policies for d in drops) == 1:
        return f"at least {FEWEST} policies per task"
    mean = float(np.mean([d.estimate for d in drops]))
    effect = min(abs(mean - edge) for edge in (lower, upper) if math.isfinite(edge))
    spread = sum(max(d.upward, d.downward) * d.policies for d in drops) / len(drops) ** 2
    count = stats.count_policies(effect, spread, strata=len(drops))
    wanted = "more than 1000" if count is None else f"about {max(count, FEWEST)}"
    return f"{wanted} policies per task if the true mean is {mean:.3f}"


def judge_mean_error(
    cells: Mapping[str, tuple[Measurement, Measurement]], *, threshold: float = 0.05, missing: Sequence[str] = ()
) -> Verdict:
    """Judge "the mean over tasks of the signed relative drop is below `threshold`".

    `cells` maps a cell's id to (reference, candidate). Estimate, interval and threshold are that mean drop, positive
    when candidates are worse. With several policies per task the tasks are fixed (stratified Welch); with one, only t
    over tasks is left. `policies` and `episodes` are the fewest of any cell. With cells `missing` the outcome is
    partial and the numbers are those of the cells that are there. Raises SpecError and QuarlError as
    `judge_retention`, and SpecError when there is no cell at all.
    """
    return _judge_average(cells, -math.inf, threshold, missing, lambda got: _pair(got[0], got[1], got[0]))


def judge_equivalence(
    cells: Mapping[str, tuple[Measurement, Measurement, Measurement]],
    *,
    margin: float = 0.05,
    missing: Sequence[str] = (),
) -> Verdict:
    """Judge "two schemes have the same mean relative error": the mean difference lies within +-margin.

    `cells` maps a cell's id to (reference, first, second); estimate and interval are the mean over tasks of error of
    the first minus error of the second, threshold is `margin`. Two one-sided tests: supported when the whole interval
    lies within +-margin, refuted when it lies wholly outside. Otherwise, and in its errors, as `judge_mean_error`.
    """
    return _judge_average(cells, -margin, margin, missing, lambda got: _pair(got[2], got[1], got[0]))
