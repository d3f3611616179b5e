"""The verdict on one cell: an interval first, then which side of the threshold it lies on."""

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.pairs import (
    ANCHOR,
    FEWEST_EPISODES,
    TIES,
    Pairs,
    align,
    bootstrap_unseen,
    bound_guard,
    find_guard_error,
    find_support_error,
    invert,
    is_anchored,
    pair_up,
    share_at_cap,
)
from quarl_bench.judging.statistics import Floats
from quarl_bench.spec import Measurement, Outcome, Verdict

FEWEST = 3  # policies a plan asks for: with two, t has one degree of freedom and hardly ever decides
COPIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # sample sizes tried by a plan, in multiples of the present one


def judge_retention(
    reference: Measurement,
    candidate: Measurement,
    *,
    margin: float = 0.05,
    cap: float | None = None,
    worst_loss: float | None = None,
    floor: float | None = None,
) -> Verdict:
    """Judge "the candidate keeps more than 1 - margin of the reference's return" on one cell.

    Estimate, interval and threshold are the ratio 1 + (candidate - reference) / |reference| of mean returns. `cap` is
    the highest possible return and `worst_loss` the most that one unseen episode can lose, both in return units; with
    `floor`, a return that counts as nothing, the ratio is of returns above it. Where one policy has played every start
    there is, the estimate is exact and is the whole interval. Raises SpecError for measurements that are not paired or
    options out of range, QuarlError for NaN or infinity.
    """
    base, other = align(reference, candidate)
    starts, census = reference.starts, reference.census
    _check_options(margin, cap, worst_loss, floor, base, other)
    zero = floor or 0.0
    base, other, top = _count_from(zero, base, other, cap)
    policies, episodes, distinct = base.shape[0], len(reference.environment_seeds), base.shape[1]
    caveats = [] if distinct == episodes else [f"{episodes} episodes are {distinct} distinct ones, each counted once"]
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    if distinct < 2 and not census:
        caveats.append("one distinct episode gives no interval")
        needed = f"at least {_count_ties(margin, policies)} distinct episodes" if margin else "more distinct episodes"
    else:
        pairs = pair_up(base, other, base, top, worst_loss, census=census)
        estimate = 1.0 - pairs.drop if pairs.level else None
        if pairs.scarce:
            caveats.append(f"{distinct} distinct episodes of one policy give no interval")
            needed = f"at least {min(FEWEST_EPISODES, starts or FEWEST_EPISODES)} distinct episodes"
        elif not is_anchored(pairs):
            caveats.append(
                f"the mean reference return lies within {ANCHOR:g} standard errors of {zero:g}: no ratio is stable"
            )
            needed = f"a reference further from {zero:g}"
            needed += ", or a floor, a return that counts as nothing" if floor is None else ""
        else:
            low, high = invert(pairs, margin)
            if math.isfinite(high - low):
                interval = (1.0 - high, 1.0 - low)
            else:
                caveats.append("the data give no bounded interval")
            needed = _plan(pairs, margin, starts)
            caveats += _list_caveats(pairs)
            if top is not None and (share := share_at_cap(base, top)) >= TIES:
                caveats.append(
                    f"the reference reaches its cap of {cap:g} in {share:.0%} of episodes, where gains cannot show"
                )
    outcome = conclude(interval, 1.0 - margin, math.inf)
    return Verdict(
        outcome=outcome,
        estimate=estimate,
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        threshold=1.0 - margin,
        scope=name_scope(policies) + (f", on all {starts} starts" if census else ""),
        policies=policies,
        episodes=episodes,
        distinct_episodes=distinct,
        needed=needed if outcome.open else "",
        caveats=tuple(caveats),
    )


def judge_loss(
    pair: tuple[Measurement, Measurement] | None,
    *,
    margin: float = 0.05,
    cap: float | None = None,
    missing: Sequence[str] = (),
) -> Verdict:
    """Judge "the candidate loses more than `margin` of the reference's return" on one cell; see `judge_retention`.

    `pair` is (reference, candidate), or None when the cell is missing: then the outcome is partial.
    """
    if pair is None:
        return Verdict(Outcome.PARTIAL, None, None, None, 1.0 - margin, name_scope(0), 0, 0, 0, missing=tuple(missing))
    return reverse(judge_retention(*pair, margin=margin, cap=cap))


def judge_harder(
    first: tuple[Measurement, Measurement] | None,
    second: tuple[Measurement, Measurement] | None,
    *,
    threshold: float = 0.0,
    caps: tuple[float | None, float | None] = (None, None),
    missing: Sequence[str] = (),
) -> Verdict:
    """Judge "the first cell loses a larger share of its return than the second", by more than `threshold`.

    Each is (reference, candidate), or None when the cell is missing: then the outcome is partial. Estimate and interval
    are the difference of relative losses. The cells share no policy, and of their episodes the starts at most, so they
    count as independent: the distances of the limits of `judge_retention` add in squares (method of variance estimates
    recovery).
    """
    pairs = zip((first, second), caps, strict=True)
    cells = [judge_retention(*pair, cap=cap) for pair, cap in pairs if pair is not None]
    ratios = [
        (cell.estimate, cell.low, cell.high)
        for cell in cells
        if cell.estimate is not None and cell.low is not None and cell.high is not None
    ]
    estimate, interval = None, None
    if len(ratios) == 2:
        (kept, low, high), (other, other_low, other_high) = ratios
        estimate = other - kept
        below, above = math.hypot(other - other_low, high - kept), math.hypot(other_high - other, kept - low)
        interval = estimate - below, estimate + above
    outcome = conclude(interval, threshold, math.inf)
    policies = min((cell.policies for cell in cells), default=0)
    return Verdict(
        outcome=Outcome.PARTIAL if missing else outcome,
        estimate=estimate,
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        threshold=threshold,
        scope="these policies" if policies == 1 else name_scope(policies),
        policies=policies,
        episodes=min((cell.episodes for cell in cells), default=0),
        distinct_episodes=min((cell.distinct_episodes for cell in cells), default=0),
        needed="more policies of both" if outcome.open and not missing else "",
        caveats=tuple(dict.fromkeys(caveat for cell in cells for caveat in cell.caveats)),
        missing=tuple(missing),
    )


def reverse(verdict: Verdict) -> Verdict:
    """The verdict on the opposite sentence: the same interval on the other side of the threshold."""
    opposite = {Outcome.SUPPORTED: Outcome.REFUTED, Outcome.REFUTED: Outcome.SUPPORTED}
    return replace(verdict, outcome=opposite.get(verdict.outcome, verdict.outcome))


def retention_p_values(
    reference: Measurement,
    candidate: Measurement,
    *,
    margin: float = 0.05,
    cap: float | None = None,
    worst_loss: float | None = None,
    floor: float | None = None,
) -> tuple[float, float]:
    """One-sided p-values (of supported, of refuted) of the rule of `judge_retention`; the same options and errors.

    For counting cells and for false discovery rates; (1, 1) where there is no interval. The guard's part is resolved
    to one in `stats.WEIGHT_DRAWS`.
    """
    base, other = align(reference, candidate)
    _check_options(margin, cap, worst_loss, floor, base, other)
    if base.shape[1] < 2 and not reference.census:
        return 1.0, 1.0
    base, other, top = _count_from(floor or 0.0, base, other, cap)
    pairs = pair_up(base, other, base, top, worst_loss, census=reference.census)
    if pairs.scarce or not is_anchored(pairs):
        return 1.0, 1.0
    contrast = pairs.contrast(margin)
    if pairs.exact:
        return float(contrast.mean() <= 0.0), float(contrast.mean() >= 0.0)
    supported, refuted = [0.0], [0.0]
    if pairs.policies > 1:
        above, below = stats.split_tails(contrast, census=pairs.census)
        supported.append(min(1.0, above * stats.ERROR / find_support_error(pairs)))
        refuted.append(below)
    if pairs.guarded:
        lower, upper = bootstrap_unseen(pairs, margin)
        scale = stats.ERROR / find_guard_error(pairs.policies, census=pairs.census)
        supported.append(min(1.0, scale * (int((lower <= 0.0).sum()) + 1) / (lower.size + 1)))
        refuted.append((int((upper >= 0.0).sum()) + 1) / (upper.size + 1))
    return max(supported), max(refuted)


def _count_ties(margin: float, policies: int) -> int:
    """Distinct episodes that support retention when every pair of them is equal."""
    return math.ceil(math.log(find_guard_error(policies)) / math.log(1.0 - margin))


def _plan(pairs: Pairs, drop: float, starts: int | None = None) -> str:
    """What would decide if the truth were the estimate, as a phrase.

    Policies by the power of the t-test; episodes by asking the guard about a sample in which each was seen more often.
    Of `starts` that are all there are, no more are asked for.
    """
    if pairs.exact:
        return "nothing: the ratio is the threshold itself"
    if starts is not None and pairs.policies == 1:
        return f"this policy on all {starts} starts"
    contrast = pairs.contrast(drop)
    effect = float(contrast.mean())
    policies, ratio = pairs.policies, f"if the true ratio is {1.0 - pairs.drop:.3f}"
    if policies > 1:
        ratio = f"for {stats.POWER:.0%} power {ratio}"
        if pairs.census:
            per_policy, shared = float(contrast.mean(axis=1).var(ddof=1)), 0.0
        else:
            parts = stats.split_variance(contrast)
            per_policy, shared = parts.policy + parts.interaction / pairs.episodes, parts.episode / pairs.episodes
        count = stats.count_policies(effect, per_policy, shared)
        if count is None:
            return f"more than 1000 policies at {pairs.episodes} distinct episodes {ratio}"
        policies = max(count, policies, FEWEST)
    if pairs.census:
        return f"about {policies} policies {ratio}"
    copies: int | None = 1
    if pairs.guarded:
        side = 0 if effect > 0.0 else 1
        signs = ((n, bound_guard(pairs, drop, n, policies)[side]) for n in COPIES)
        copies = next((n for n, bound in signs if (bound > 0.0) == (effect > 0.0) and bound != 0.0), None)
    runs = "this policy" if policies == 1 else f"about {policies} policies"
    if starts is not None and (copies is None or copies * pairs.episodes >= starts):
        return f"{runs} on all {starts} starts {ratio}"
    if copies is None:
        return f"{runs} x more than {COPIES[-1] * pairs.episodes} distinct episodes {ratio}"
    return f"{runs} x {copies * pairs.episodes} distinct episodes {ratio}"


def _list_caveats(pairs: Pairs) -> list[str]:
    """What a sample of this size cannot exclude."""
    episodes, policies, found = pairs.episodes, pairs.policies, []
    if not pairs.loss.any():
        bound = "" if pairs.census else f"; loss <= 3/{episodes} = {3 / episodes:.3g}"
        found.append(f"identical on all {episodes} distinct episodes{bound}")
    if policies == 1:
        found.append("one policy: says nothing about other training runs")
    else:
        worst = 1.0 - float(pairs.loss.mean(axis=1).max()) / pairs.level
        found.append(rule_of_three(policies))
        found.append(f"the worst of {policies} policies keeps {worst:.3f} of the mean reference return")
    if pairs.guarded and not pairs.census:
        found.append(f"failures in fewer than 3/{episodes} of episodes are not excluded")
    if pairs.tied and not pairs.exact:
        found.append(f"assumes that no unseen episode loses more than {pairs.unseen_loss:g}")
    return found


def check_limits(margin: float, floor: float | None) -> None:
    """SpecError for a share that may be lost outside of 0 to 1, and for a floor that is no finite number."""
    if not isinstance(margin, Real) or not 0 < margin < 1:
        raise SpecError(f"margin {margin!r}: the share of the return that may be lost lies between 0 and 1")
    if floor is not None and not (isinstance(floor, Real) and math.isfinite(floor)):
        raise SpecError(f"floor {floor!r}: it must be finite, and below what the reference returns")


def check_floor(floor: float | None, mean: float) -> None:
    """SpecError for a return that counts as nothing where the reference's mean return is not above it."""
    if floor is not None and not (math.isfinite(floor) and floor < mean):
        raise SpecError(f"floor {floor:g}: it must be finite, and below what the reference returns, {mean:.4g}")


def _count_from(floor: float, base: Floats, other: Floats, cap: float | None) -> tuple[Floats, Floats, float | None]:
    return base - floor, other - floor, None if cap is None else cap - floor


def _check_options(
    margin: float, cap: float | None, worst_loss: float | None, floor: float | None, *arrays: Floats
) -> None:
    if not 0.0 <= margin < 1.0:
        raise SpecError(f"margin {margin!r}: it must be at least 0 and below 1")
    if worst_loss is not None and not (math.isfinite(worst_loss) and worst_loss > 0.0):
        raise SpecError(f"worst_loss {worst_loss!r}: it must be a positive number of return units")
    check_floor(floor, float(arrays[0].mean()))
    top = max(float(array.max()) for array in arrays)
    if cap is not None and not (math.isfinite(cap) and top <= cap + 1e-9 * max(1.0, abs(cap))):
        raise SpecError(f"cap {cap!r}: it must be finite and not below the highest measured return, {top:g}")


def name_scope(policies: int) -> str:
    """What a verdict on this many policies is about."""
    return "this policy" if policies == 1 else "policies trained this way"


def conclude(interval: tuple[float, float] | None, supported_from: float, supported_to: float) -> Outcome:
    """Which side of a threshold, or of two, an interval lies on."""
    if interval is None:
        return Outcome.UNDECIDABLE
    low, high = interval
    if low > supported_from and high < supported_to:
        return Outcome.SUPPORTED
    return Outcome.REFUTED if high < supported_from or low > supported_to else Outcome.INCONCLUSIVE


def rule_of_three(policies: int) -> str:
    """The rule of three: an event never seen in P policies may still happen in up to 3/P of them."""
    return f"barring collapses in fewer than 3/{policies} of policies" if policies > 3 else "barring any rare collapse"
