"""Intervals and tests behind the verdicts: NumPy arrays in, plain values out.

A paired comparison is a P x E array of contrasts: P trained policies, each run on the same E episodes, in units of
return. Both factors are random, so the variance of its mean has a policy part and an episode part; an interval that
forgets either is too narrow, and percentile bootstraps of a handful of policies are worse. Every interval here has two
one-sided errors of `ERROR` each, that is, it is a two-sided 90% interval.
"""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from quarl_bench.errors import QuarlError

Floats = NDArray[np.float64]

ERROR = 0.05  # probability of a wrong definite verdict, per side
POWER = 0.80  # what a planned sample size is to reach
WEIGHT_DRAWS = 4000
WEIGHT_SEED = 20200901
EXACT_ORDERS = 8  # 8! orders of ranks are enumerated, more are drawn
PERMUTATIONS = 20_000
MAX_FLIPS = 20  # 2**20 sign patterns are enumerated in well under a second


class Interval(NamedTuple):
    """An estimate between its one-sided lower and upper confidence limits, all in the unit of the estimate."""

    estimate: float
    low: float
    high: float


class Components(NamedTuple):
    """Variance components of a P x E array, each at least 0, in squared units of return."""

    policy: float
    episode: float
    interaction: float


@lru_cache(maxsize=256)
def find_t_quantile(dof: float, error: float = ERROR) -> float:
    """Upper `error` quantile of Student's t with `dof` > 0 degrees of freedom."""
    return float(special.stdtrit(dof, 1.0 - error))


def check_finite(values: ArrayLike, what: str) -> Floats:
    """`values` as float64; raises QuarlError naming `what` when empty or not finite everywhere."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise QuarlError(f"{what}: no values; at least one is needed")
    if not np.isfinite(array).all():
        raise QuarlError(f"{what}: {int((~np.isfinite(array)).sum())} of {array.size} values are NaN or infinite")
    return array


def split_squares(values: Floats) -> tuple[float, float, float]:
    """Mean squares of policies, episodes and interaction, each divided by P*E: the A, B, C of `estimate_variance`."""
    policies, episodes = values.shape
    if policies < 2 or episodes < 2:
        raise QuarlError(f"variance of {policies} policies x {episodes} episodes: at least 2 of each are needed")
    centred = values - values.mean()
    by_policy, by_episode = centred.mean(axis=1), centred.mean(axis=0)
    policy_square, episode_square = float(by_policy @ by_policy), float(by_episode @ by_episode)
    rest = max(0.0, float(np.vdot(centred, centred)) - episodes * policy_square - policies * episode_square)
    return (
        policy_square / (policies - 1) / policies,
        episode_square / (episodes - 1) / episodes,
        rest / ((policies - 1) * (episodes - 1)) / (policies * episodes),
    )


def estimate_variance(values: Floats) -> float:
    """Variance of the mean of a P x E array whose policies and episodes are both random.

    The two-way ("pigeonhole") estimate A + B - C, with A the variance of the policy means over P, B that of the
    episode means over E and C that of the interaction over P*E, never below A or B: the plain difference can come out
    near zero by chance. Raises QuarlError when P or E is below 2.
    """
    policy, episode, interaction = split_squares(values)
    return max(policy + episode - interaction, policy, episode)


def split_variance(values: Floats) -> Components:
    """Method-of-moments components of a P x E array, cut at 0. Raises QuarlError when P or E is below 2."""
    policies, episodes = values.shape
    policy, episode, interaction = split_squares(values)
    return Components(
        policy=max(0.0, (policy - interaction) * policies),
        episode=max(0.0, (episode - interaction) * episodes),
        interaction=interaction * policies * episodes,
    )


def bound_contrast(contrast: Floats, error: float = ERROR) -> Interval:
    """Interval for the mean of a P x E contrast: Student's t with P - 1 degrees of freedom on `estimate_variance`.

    With contrasts `Q - ratio * F` this is Fieller's way to judge a ratio of means: it needs no division, so means that
    are negative or near zero do it no harm. Raises QuarlError when P or E is below 2.
    """
    centre = float(contrast.mean())
    half = find_t_quantile(contrast.shape[0] - 1, error) * math.sqrt(estimate_variance(contrast))
    return Interval(centre, centre - half, centre + half)


def split_tails(contrast: Floats, *, census: bool = False) -> tuple[float, float]:
    """One-sided p-values (of "the mean is above 0", of "below 0") of the test behind `bound_contrast`, for P x E.

    In a `census`, whose episodes are all there are, of the one behind `bound_mean` of the policies' means.
    """
    centre = float(contrast.mean())
    variance = contrast.mean(axis=1).var(ddof=1) / len(contrast) if census else estimate_variance(contrast)
    se = math.sqrt(variance)
    distance = math.copysign(math.inf, centre) if centre and not se else centre / se if se else 0.0
    return split_t(distance, contrast.shape[0] - 1)


def split_t(distance: float, dof: float) -> tuple[float, float]:
    """One-sided p-values (of "above 0", of "below 0") of an estimate that is `distance` standard errors from 0."""
    above = float(special.stdtr(dof, -distance))
    return above, 1.0 - above


@lru_cache(maxsize=8)
def draw_weights(episodes: int, copies: int = 1) -> Floats:
    """WEIGHT_DRAWS x (episodes + 1) Dirichlet weights from a fixed seed, read-only; rows sum to 1.

    The last column belongs to one unseen episode. `copies` > 1 are the weights of a sample in which every observed
    episode had been seen that many times, which is how a larger sample is planned.
    """
    rng = np.random.default_rng([WEIGHT_SEED, episodes, copies])
    weights = rng.standard_gamma(np.append(np.full(episodes, float(copies)), 1.0), size=(WEIGHT_DRAWS, episodes + 1))
    weights /= weights.sum(axis=1, keepdims=True)
    weights.setflags(write=False)
    return weights


def draw_means(by_episode: Floats, unseen: float, copies: int = 1) -> Floats:
    """WEIGHT_DRAWS weighted means of E episode values and one unseen value.

    A Bayesian bootstrap with a pseudo-episode: its 5% quantile is a lower confidence limit for the mean as long as no
    unseen episode is worse than `unseen`. For all-or-nothing values it is exactly Clopper-Pearson's limit. The values
    are sorted first, so that the order of the episodes cannot matter.
    """
    weights = draw_weights(len(by_episode), copies)
    means: Floats = weights[:, :-1] @ np.sort(by_episode) + weights[:, -1] * unseen
    return means


def average_strata(means: ArrayLike, variances: ArrayLike, dofs: ArrayLike, error: float = ERROR) -> Interval:
    """Interval for the plain average of K independent estimates: stratified t with Welch-Satterthwaite degrees.

    `means`, `variances` (of those means) and `dofs` have shape (K,). The strata (tasks) are fixed: the interval says
    nothing about tasks that are not among them. Raises QuarlError on values that are not finite.
    """
    centre = float(check_finite(means, "task means").mean())
    parts = check_finite(variances, "task variances")
    total, dof = add_variances(parts, dofs)
    if total <= 0.0:
        return Interval(centre, centre, centre)
    half = find_t_quantile(dof, error) * math.sqrt(total) / parts.size
    return Interval(centre, centre - half, centre + half)


def add_variances(variances: ArrayLike, dofs: ArrayLike) -> tuple[float, float]:
    """The sum of independent variances (K,), and its degrees of freedom by Welch and Satterthwaite."""
    parts, freedoms = np.asarray(variances, dtype=np.float64), check_finite(dofs, "degrees of freedom")
    total, weight = float(parts.sum()), float((parts**2 / freedoms).sum())
    return total, total**2 / weight if weight > 0.0 else float(freedoms.min())


def bound_mean(means: ArrayLike, error: float = ERROR) -> Interval:
    """Interval for the mean of what K values (K,) are a sample of, by Student's t with K - 1 degrees of freedom.

    The values may be of tasks, of policies, of sessions. Raises QuarlError when K is below 2.
    """
    values = check_finite(means, "means")
    if values.size < 2:
        raise QuarlError(f"t over {values.size} value: at least 2 are needed")
    half = find_t_quantile(values.size - 1, error) * float(values.std(ddof=1)) / math.sqrt(values.size)
    centre = float(values.mean())
    return Interval(centre, centre - half, centre + half)


def bound_ratio(ratios: ArrayLike, error: float = ERROR) -> Interval:
    """Interval for the typical one of positive ratios (K,): their geometric mean, by `bound_mean` of their logarithms.

    Raises QuarlError when K is below 2.
    """
    return Interval(*map(math.exp, bound_mean(np.log(check_finite(ratios, "ratios")), error)))


def combine_cells(p_values: ArrayLike, required: int) -> float:
    """P-value for "at least `required` of the n cells are true" from n one-sided p-values (n,).

    Partial conjunction by Simes: the required - 1 smallest p-values are set aside and Simes' test is run on the rest,
    which holds for independent and for positively dependent cells. Raises QuarlError when `required` is not in 1..n.
    """
    values = np.sort(_check_p_values(p_values))
    if not 1 <= required <= values.size:
        raise QuarlError(f"partial conjunction: {required} required of {values.size} cells; it must be 1..n")
    rest = values[required - 1 :]
    return float(min(1.0, (rest.size * rest / np.arange(1, rest.size + 1)).min()))


def flip_signs(values: ArrayLike) -> tuple[float, float]:
    """Exact sign-flip p-values (of "the centre is above 0", of "below 0") for T symmetric values (T,).

    Each is the share of the 2**T sign patterns whose sum is at least as extreme as the observed one, so fewer than five
    tasks can never decide. Raises QuarlError when T exceeds MAX_FLIPS or a value is not finite.
    """
    observed = check_finite(values, "sign flips")
    if observed.size > MAX_FLIPS:
        raise QuarlError(f"sign flips: {observed.size} values; at most {MAX_FLIPS} are enumerated")
    sums = np.zeros(1)
    for value in observed:
        sums = np.concatenate([sums + value, sums - value])
    slack = 1e-12 * float(np.abs(observed).sum())
    total = float(observed.sum())
    return float((sums >= total - slack).mean()), float((sums <= total + slack).mean())


def correlate_ranks(first: ArrayLike, second: ArrayLike) -> tuple[float, tuple[float, float]]:
    """Spearman's correlation of two arrays (n,), and one-sided permutation p-values (of above 0, of below 0).

    All n! orders up to n = 8, else `PERMUTATIONS` random ones with a fixed seed, the observed order counted among them.
    """
    from scipy.stats import rankdata  # half a second, which no other verdict needs

    ranks = [rankdata(check_finite(values, "rank correlation")) for values in (first, second)]
    if len(ranks[0]) != len(ranks[1]) or len(ranks[0]) < 2:
        raise QuarlError(f"rank correlation: {len(ranks[0])} and {len(ranks[1])} values; need pairs, two at least")
    centred = [rank - rank.mean() for rank in ranks]
    norm = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    if norm == 0.0:
        return 0.0, (1.0, 1.0)
    observed = float(centred[0] @ centred[1])
    if len(ranks[0]) <= EXACT_ORDERS:
        products = np.array([*itertools.permutations(centred[1])]) @ centred[0]
        extra = 0
    else:
        orders = np.random.default_rng(PERMUTATIONS).permuted(np.tile(centred[1], (PERMUTATIONS, 1)), axis=1)
        products, extra = orders @ centred[0], 1
    slack = 1e-9 * norm
    tails = [int((sign * products >= sign * observed - slack).sum()) for sign in (1, -1)]
    above, below = ((count + extra) / (len(products) + extra) for count in tails)
    return observed / norm, (above, below)


def star_discoveries(p_supported: ArrayLike, p_refuted: ArrayLike, rate: float = ERROR) -> tuple[int, ...]:
    """Direction (+1 supported, -1 refuted, 0 neither) of the cells that survive at false discovery rate `rate`.

    Directional Benjamini-Hochberg on twice the smaller of the two one-sided p-values (n,) of each cell: what a cell
    must pass to be quoted singly or picked after looking. Raises QuarlError when the lengths differ.
    """
    up, down = _check_p_values(p_supported), _check_p_values(p_refuted)
    if up.shape != down.shape:
        raise QuarlError(f"false discovery rate: {up.size} p-values one way and {down.size} the other")
    both = np.minimum(1.0, 2.0 * np.minimum(up, down))
    ranked = np.sort(both)
    passing = ranked <= rate * np.arange(1, ranked.size + 1) / ranked.size
    if not passing.any():
        return (0,) * ranked.size
    starred = both <= ranked[np.flatnonzero(passing)[-1]]
    return tuple(int(star) * (1 if u <= d else -1) for star, u, d in zip(starred, up, down, strict=True))


def _check_p_values(values: ArrayLike) -> Floats:
    array = check_finite(values, "p-values").ravel()
    if array.min() < 0.0 or array.max() > 1.0:
        raise QuarlError(f"p-values must lie in 0..1, got {array.min():g}..{array.max():g}")
    return array


def count_policies(
    effect: float, per_policy: float, shared: float = 0.0, strata: int = 1, error: float = ERROR, limit: int = 1000
) -> int | None:
    """Fewest policies whose one-sided t-test finds `effect` with probability POWER, by the noncentral t.

    The mean of P policies has variance per_policy / P + shared (squared units of `effect`), with strata * (P - 1)
    degrees of freedom. None when even `limit` policies do not reach it, or the effect is 0.
    """
    if not effect or not math.isfinite(effect):
        return None

    def reaches(policies: int) -> bool:
        variance = per_policy / policies + shared
        if variance <= 0.0:
            return True
        dof = strata * (policies - 1)
        distance = min(abs(effect) / math.sqrt(variance), 30.0)  # the noncentral t loses its footing far out
        return bool(special.nctdtr(dof, distance, find_t_quantile(dof, error)) <= 1.0 - POWER)

    if not reaches(limit):
        return None
    low, high = 1, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def merge_columns(values: Floats, names: Sequence[str]) -> Floats:
    """P x D means over the columns of P x E `values` that share a name, in order of first appearance."""
    if len(set(names)) == values.shape[1]:
        return values + 0.0
    order = {name: index for index, name in enumerate(dict.fromkeys(names))}
    columns = np.array([order[name] for name in names])
    merged = np.zeros((values.shape[0], len(order)))
    np.add.at(merged.T, columns, values.T)
    merged /= np.bincount(columns)
    return merged
