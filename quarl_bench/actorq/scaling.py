"""A model on paper of a run with more actors: what each part costs a step, and which part is full first.

All costs are seconds of a processor for a step of the environment, taken from a run of a few seconds with few actors.
The rate is the least of what actors, learner, parameter server, network and, where all share one machine, its cores
allow. Left out are bursts in which one side waits for the other, caches that are shared, and Ray's own processes; here
it was within `ERROR` of 1, 2 and 4 actors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quarl_bench.actorq.breakdown import Breakdown
from quarl_bench.actorq.settings import RunSettings

ACTORS_SHOWN = (1, 2, 4, 8, 16, 32, 64)
ERROR = 0.3  # relative: what the model states of itself; tests/actorq/test_scaling.py holds it to that
NETWORK = 1.25e9  # bytes per second: 10 Gbit/s
NODE = 8  # actors on a node


@dataclass(frozen=True)
class Costs:
    """Of one step of the environment, `acting` by one actor; `overhead` of the learner's process, which takes in."""

    acting: float
    learning: float
    serving: float
    overhead: float
    sent: float  # bytes of transitions
    broadcast: float  # bytes for each node


@dataclass(frozen=True)
class Site:
    """Where the actors are: `cores` for all together, where all share one machine; 0 where each has its own."""

    cores: float = 0.0
    bandwidth: float = NETWORK  # bytes per second at the learner's node
    per_node: int = NODE


@dataclass(frozen=True)
class Estimate:
    """Steps of the environment per second, of all actors; `limits` by what they are of, the least first."""

    actors: int
    limits: Mapping[str, float]
    traffic: float  # bytes per second at that rate

    @property
    def rate(self) -> float:
        """What the part that is full first allows."""
        return min(self.limits.values())

    @property
    def bound(self) -> str:
        """That part: actors, learner, server, network or cores."""
        return min(self.limits, key=lambda name: self.limits[name])


def read_costs(settings: RunSettings, report: Mapping[str, Any], sent: float) -> Costs:
    """From what a run reported; `sent` are the bytes of one transition."""
    acting, learning = Breakdown.from_dict(report["acting"]), Breakdown.from_dict(report["breakdown"])
    served = Breakdown.from_dict(report["server"]["breakdown"])
    updates = settings.samples_per_insert / settings.batch  # for each step
    broadcasts = updates / settings.publish_period
    played = sum(seconds for stage, seconds in acting.cpu.items() if stage != "wait") / acting.steps
    learned = sum(seconds for stage, seconds in learning.cpu.items() if stage != "save") / learning.steps * updates
    serving = sum(served.cpu.values()) / max(served.steps, 1) * broadcasts
    overhead = max(report["learner_cpu"] / report["steps"] - learned, 0.0)
    return Costs(played, learned, serving, overhead, sent, report["server"]["bytes"] * broadcasts)


def estimate(costs: Costs, actors: int, site: Site) -> Estimate:
    """What so many actors would do there."""
    nodes = -(-actors // site.per_node) if not site.cores else 0
    moved = costs.sent + costs.broadcast * nodes
    limits = {
        "actors": actors / costs.acting,
        "learner": 1 / (costs.learning + costs.overhead),  # one process, and one lock of its interpreter
        "server": 1 / costs.serving if costs.serving else float("inf"),
    }
    if site.cores:
        limits["cores"] = site.cores / (costs.acting + costs.learning + costs.serving + costs.overhead)
    else:
        limits["network"] = site.bandwidth / moved
    rate = min(limits.values())
    return Estimate(
        actors, dict(sorted(limits.items(), key=lambda entry: entry[1])), 0.0 if site.cores else rate * moved
    )


def size_transition(inputs: int, outputs: int, *, discrete: bool) -> float:
    """Bytes of a transition as it is sent: two observations, an action, reward, discount and log-probability."""
    return 4.0 * (2 * inputs + 3) + (8.0 if discrete else 4.0 * outputs)


def list_estimates(costs: Sequence[tuple[str, Costs]], site: Site) -> list[list[str]]:
    """A header, and a line of cells for each number of actors and each name, ready to be printed as columns."""
    header = ["on paper", "actors", "steps/s", "bound by", "of one learner", "MB/s"]
    lines = []
    for name, cost in costs:
        for actors in ACTORS_SHOWN:
            found = estimate(cost, actors, site)
            share = found.rate / found.limits["learner"]
            lines.append(
                [name, str(actors), f"{found.rate:,.0f}", found.bound, f"{share:.0%}", f"{found.traffic / 1e6:.2f}"]
            )
    return [header, *lines]
