"""What learning curves say about exploration (QuaRL, ICLR, Figure 1): how peaked a policy stays, arm by arm.

Arms are fp32, the trained schemes, and fp32 with layer normalization. A curve states, at each of its points, the mean
variance of the action probabilities over two sets of states: `fixed` ones, the same for every policy of a task, and
those that the policy itself `visited` in deterministic episodes. For Gaussian policies it states the variance of the
actions instead, whose meaning is the opposite: a wide Gaussian explores, and so does a flat softmax.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Self

from quarl_bench.errors import SpecError

ACTIONS = "actions"  # what the variance is of, for Gaussian policies; else of probabilities
FULL_PRECISION_BITS = 32


@dataclass(frozen=True)
class Arm:
    """The learning curves of one cell and arm, one per training seed; `since` is when its quantizers began to round."""

    curves: tuple[tuple[Mapping[str, Any], ...], ...]
    since: int

    def take(self, seeds: int) -> Self:
        """The curves of the first so many training seeds."""
        return replace(self, curves=self.curves[:seeds])

    def average(self, states: str, since: int, until: float = math.inf) -> list[float]:
        """Per seed, how peaked the policy is: the mean over the points behind `since`, inverted for Gaussians.

        Points behind `until` do not count. SpecError where none is left.
        """
        return [_average(curve, states, since, until) for curve in self.curves]

    def list_points(self, states: str) -> list[dict[str, float]]:
        """Means over seeds at each point, for a figure: timesteps, variance, return."""
        length = min(len(curve) for curve in self.curves)
        points = [[curve[i] for curve in self.curves] for i in range(length)]
        return [
            {
                "timesteps": float(group[0]["timesteps"]),
                "variance": math.fsum(p["variance"][states] for p in group) / len(group),
                "return": math.fsum(p["mean"] for p in group) / len(group),
            }
            for group in points
        ]


def read_arm(manifests: Sequence[Mapping[str, Any]], where: str) -> Arm:
    """The arm of the first policies whose curves state a variance; SpecError where the very first one's does not.

    Earlier versions trained without: behind such a seed no other pairs with one of another arm.
    """
    first = list(takewhile(_states_variance, manifests))
    if not first:
        raise SpecError(f"{where}: its curves state no variance of actions; train it again with this version")
    since = max(int(about["recipe"].get("quant_delay", 0)) for about in first)
    return Arm(tuple(tuple(about["curve"]) for about in first), since)


Comparison = Callable[[Arm, Arm, str], list[float]]  # of fp32 and another arm, in such states: a logarithm per seed


def compare_arms(plain: Arm, other: Arm, states: str) -> list[float]:
    """How much more peaked fp32 stays than `other`: per seed the logarithm of the ratio, above 0 if it does.

    Both are averaged from where `other` began to round, or over the second half of a run that never rounds.
    """
    since = other.since or plain.curves[0][-1]["timesteps"] // 2
    pairs = zip(plain.average(states, since), other.average(states, since), strict=False)
    return [math.log(a / b) for a, b in pairs]


def compare_delays(plain: Arm, other: Arm, states: str) -> list[float]:
    """`compare_arms` less the same before `other` began to round: what appears behind the delay alone."""
    sides = (arm.average(states, 0, other.since) for arm in (plain, other))
    before = [math.log(a / b) for a, b in zip(*sides, strict=False)]
    return [behind - first for behind, first in zip(compare_arms(plain, other, states), before, strict=True)]


def order_arms(arms: Mapping[int, Arm], states: str) -> list[float]:
    """Per seed, Kendall's rank correlation of bits and peakedness; 1: the fewer bits, the flatter."""
    from scipy.stats import kendalltau  # half a second, which no other verdict needs

    since = max(arm.since for arm in arms.values())
    bits = sorted(arms)
    rows = zip(*(arms[n].average(states, since) for n in bits), strict=False)
    return [float(kendalltau(bits, row).statistic) for row in rows]


def _states_variance(manifest: Mapping[str, Any]) -> bool:
    curve = manifest.get("curve", ())
    return bool(curve) and all("variance" in point for point in curve)


def _average(curve: Sequence[Mapping[str, Any]], states: str, since: int, until: float) -> float:
    points = [point["variance"] for point in curve if since < point["timesteps"] <= until]
    if not points:
        raise SpecError(
            f"a learning curve has no point between steps {since:,} and {until:,}; train it with more points"
        )
    mean = math.fsum(point[states] for point in points) / len(points)
    return 1.0 / mean if points[0].get("of") == ACTIONS else mean
