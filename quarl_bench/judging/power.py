"""How many policies would decide a claim: its own judgement, asked about policies drawn like those that were measured.

There is no second rule. A draw makes up the returns of some policies of every cell, with the mean and the spread that
stored rows have, and the claim's judgement decides on them. Its power is how often it decides, the same way.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np

from quarl_bench.environments.registry import find_environment
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.claim import JudgedCase, JudgedClaim
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.spec import Measurement, Outcome, name_seeds
from quarl_bench.views.rows import Row

DRAWS = 200
SEED = 20191001
COUNTS = (3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)  # policies that are tried
NEAR, FAR = -5.0, 8.0  # spreads that a normal number's centre lies below a cap: hardly any is lower, or is cut
DEFINITE = (Outcome.SUPPORTED, Outcome.REFUTED)
Item = JudgedCase | JudgedClaim


@dataclass(frozen=True)
class Spread:
    """What a stored row tells of the policies of a cell.

    `level` is fp32's mean return, `kept` the ratio of mean returns, `sd` what that varies by between policies, and
    `shared` the standard error that the episodes leave, which all policies play; both are shares of |level|.
    """

    level: float
    kept: float
    sd: float
    episodes: int
    shared: float = 0.0

    @classmethod
    def of(cls, row: Row) -> "Spread | None":
        """From the interval of a case's row; None of one policy alone, or where there is no interval.

        The limit nearest to the threshold says how uncertain the mean is. Where the row has the means of every policy,
        these say how much of that more policies would mend; else it counts as all of it.
        """
        policies = int(row.reference.get("policies", 0))
        if row.interval is None or row.estimate is None or policies < 2 or not row.reference.get("mean"):
            return None
        low, high = row.interval
        distance = row.estimate - low if row.estimate > row.threshold else high - row.estimate
        error = distance / stats.find_t_quantile(policies - 1)
        level = float(row.reference["mean"])
        own, shared = error * math.sqrt(policies), 0.0
        before, after = (side.get("per_policy", ()) for side in (row.reference, row.measured))
        if len(before) == len(after) == policies:
            base = np.array(before)
            contrast = np.array(after) - base + (1.0 - row.estimate) * math.copysign(1.0, level) * base
            own = min(own, float(contrast.std(ddof=1)) / abs(level))
            shared = math.sqrt(max(0.0, error**2 - own**2 / policies))
        return cls(level, row.estimate, own, max(2, int(row.reference["distinct_episodes"])), shared)

    def draw(self, policies: int, cap: float | None, rng: np.random.Generator) -> Measurement:
        """A measurement of made-up policies; at a cap, too, of the mean and spread that are stated."""
        lost = self.kept - 1.0 + self.sd * rng.standard_normal((policies, 1))
        episodes = self.shared * math.sqrt(self.episodes) * rng.standard_normal((1, self.episodes))
        returns = self.level + abs(self.level) * (lost + episodes)
        if cap is None:
            return _measure(returns)
        mean = self.level + abs(self.level) * (self.kept - 1.0)
        spread = abs(self.level) * math.hypot(self.sd, self.shared * math.sqrt(self.episodes))
        return _measure(_cut(returns, mean, spread, cap))

    def repeat(self, policies: int) -> Measurement:
        """As many fp32 policies, none of which differs: what they differ by is in `sd`."""
        return _measure(np.full((policies, self.episodes), self.level))


Spreads = Mapping[str, tuple[Spread, ...]]  # by case: of the scheme, and of what it is compared with


def count_policies(item: Item, spreads: Spreads, fewest: int = COUNTS[0]) -> tuple[int, Outcome] | None:
    """Fewest policies of every cell, from `fewest`, with which it is decided with probability `stats.POWER`, and how.

    None where even the most that are tried do not.
    """
    counts = [count for count in COUNTS if count >= fewest]
    if not counts:
        return None
    found: dict[int, Outcome | None] = {}

    def decides(index: int) -> bool:
        found[index], power = find_power(item, spreads, counts[index], needed=stats.POWER)
        return power >= stats.POWER

    low, high, last = -1, 0, len(counts) - 1
    while not decides(high):  # few policies cost little to try
        if high == last:
            return None
        low, high = high, min(2 * high + 1, last)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return counts[high], cast("Outcome", found[high])


def find_power(
    item: Item, spreads: Spreads, policies: int, needed: float | None = None
) -> tuple[Outcome | None, float]:
    """The definite verdict that comes most often with so many policies, and how often it does.

    Where `needed` is given, draws end as soon as they have settled whether that power is reached; a verdict counts as
    not seen in those that are left.
    """
    episodes = min(spread.episodes for arms in spreads.values() for spread in arms)
    caps = {name: find_environment(name.split("-")[1]).cap for name in spreads}
    rng = np.random.default_rng([SEED, policies, episodes])
    seen: Counter[Outcome] = Counter()
    for left in reversed(range(DRAWS)):
        seen[_decide(item, spreads, caps, policies, rng)] += 1
        most = max(seen[each] for each in DEFINITE)
        if needed is not None and (most >= needed * DRAWS or most + left < needed * DRAWS):
            break
    outcome = max(DEFINITE, key=lambda each: seen[each])
    return (outcome, seen[outcome] / DRAWS) if seen[outcome] else (None, 0.0)


def _decide(
    item: Item, spreads: Spreads, caps: Mapping[str, float | None], policies: int, rng: np.random.Generator
) -> Outcome:
    """The judgement's verdict on one draw."""
    groups = {
        name: (arms[0].repeat(policies), *(arm.draw(policies, caps[name], rng) for arm in arms))
        for name, arms in spreads.items()
    }
    if isinstance(item, JudgedCase):
        ((reference, measured),) = groups.values()
        kept, lost = item.claim.require(Keeps).find_p_values(item, reference, measured)
        if min(kept, lost) >= stats.ERROR:
            return Outcome.INCONCLUSIVE
        return Outcome.SUPPORTED if kept < lost else Outcome.REFUTED
    evidence = Evidence(dict(groups), policies=policies)
    return item.claim.judgement.decide(item, evidence).outcome


def _cut(returns: stats.Floats, mean: float, spread: float, cap: float) -> stats.Floats:
    """Normal returns of this mean and spread as ones that a cap cuts: of the same mean and spread, which stay below it.

    Returns whose mean is the cap are all there.
    """
    room = cap - mean
    if room > FAR * spread:
        return returns
    if room <= 0.0:
        return np.full_like(returns, cap)
    distance = _find_distance(spread / room)
    return cap - room / _lose(distance)[0] * np.maximum(distance - (returns - mean) / spread, 0.0)


@lru_cache(maxsize=256)
def _find_distance(ratio: float) -> float:
    """How far below its cap a normal number is centred, in its own spreads, so that what it loses there has this ratio
    of spread to mean; at least `NEAR`.
    """
    low, high = NEAR, FAR
    for _ in range(60):
        middle = (low + high) / 2
        mean, square = _lose(middle)
        low, high = (middle, high) if square > (1.0 + ratio**2) * mean**2 else (low, middle)
    return high


def _lose(distance: float) -> tuple[float, float]:
    """Mean, and mean square, of how far a standard normal number that is cut `distance` above 0 stays below that."""
    density = math.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
    below = math.erfc(-distance / math.sqrt(2)) / 2
    return distance * below + density, (distance**2 + 1) * below + distance * density


def _measure(returns: stats.Floats) -> Measurement:
    """The rows stay an array, which the judge reads as it reads tuples: most of a draw would go into making them."""
    return replace(_frame(*returns.shape), returns=cast("tuple[tuple[float, ...], ...]", returns))


@lru_cache(maxsize=64)
def _frame(policies: int, episodes: int) -> Measurement:
    """What all measurements of one shape share."""
    seeds = tuple(range(episodes))
    return Measurement(
        policies=tuple(map(str, range(policies))),
        environment_seeds=seeds,
        episodes=name_seeds(seeds),
        returns=(),
        lengths=((1,) * episodes,) * policies,
    )
