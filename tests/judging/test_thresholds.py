"""The threshold of a claim stands in one place and decides: moved past the estimate, the verdict is another one.

For every judgement of the catalog there is evidence, made up once, and a threshold on the other side of what it shows.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from quarl_bench.boards.memory import LimitedComparison
from quarl_bench.judging.claim import expand
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.modes import describe
from quarl_bench.papers.lqcc import selection
from quarl_bench.papers.lqcc.hardware.comparison import Fit
from quarl_bench.papers.lqcc.hardware.latency import print_cycles
from quarl_bench.papers.lqcc.integer_agreement import Agreement
from quarl_bench.papers.lqcc.judgements.designs import REFERENCE
from quarl_bench.papers.lqcc.parity import Summary
from quarl_bench.papers.lqcc.selection import Configuration
from quarl_bench.papers.lqcc.sentences import read_printed
from quarl_bench.papers.registry import read_catalog
from quarl_bench.spec import Measurement, name_seeds
from tests.support.boards import compare_boards
from tests.support.mixed_precision import make_step_times
from tests.support.records import make_pairs
from tests.support.sizes import choose

SEEDS = tuple(range(60))
TASKS = tuple(f"t{i}" for i in range(6))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(selection, "RESAMPLES", choose(100, selection.RESAMPLES))


def measure(mean, seed=0, policies=3, unit=1.0):
    """Returns around `mean` units, with an SD of one."""
    rows = unit * mean + unit * np.random.default_rng(seed).normal(size=(policies, len(SEEDS)))
    names = tuple(map(str, range(policies)))
    lengths = ((1,) * len(SEEDS),) * policies
    return Measurement(names, SEEDS, name_seeds(SEEDS), tuple(map(tuple, rows.tolist())), lengths)


def spread(mean, size=10):
    """Mean returns of policies, a hundredth apart."""
    return mean * (1 + 0.01 * np.linspace(-1, 1, size))


def make_curves(*levels):
    return [[{"timesteps": 100 * i, "mean": float(level)} for i in range(1, 21)] for level in levels]


def make_ramps(*starts):
    """From 0 to 10 within 200 steps behind each start."""
    return [
        [{"timesteps": 100 * i, "mean": float(np.clip((100 * i - start) / 200, 0, 1) * 10)} for i in range(1, 21)]
        for start in starts
    ]


def returns(*means):
    """Six tasks of two algorithms that return these means: fp32's, the scheme's, the other one's."""
    cells = {f"ppo-{task}-w8": tuple(measure(m, i) for m in means) for i, task in enumerate(TASKS)}
    return lambda _: Evidence(cells, spreads={name: float(i) for i, name in enumerate(cells)}, policies=3)


def named(*means):
    """The same for the cases of the item, of which each returns its own means."""
    return lambda item: Evidence({case.id: pair for case, pair in zip(item.cases, means, strict=True)}, policies=3)


def ranked(_):
    cells = {f"ppo-{task}-w8": (measure(100, i), measure(100 - 5 * i, i)) for i, task in enumerate(TASKS)}
    return Evidence(cells, spreads={name: float(i) for i, name in enumerate(cells)}, policies=3)


def apart(sd):
    """Three policies whose returns lie `sd` apart."""
    return replace(measure(100), returns=tuple((100.0 + sd * (place - 1),) * len(SEEDS) for place in range(3)))


def varied(_):
    cells = {f"ppo-{task}-w8": (measure(100), apart(6 + 0.1 * i), apart(2)) for i, task in enumerate(TASKS)}
    return Evidence(cells, policies=3)


def mixed(_):
    """Half of the cells return more."""
    return Evidence({f"ppo-{t}-w8": (measure(100, i), measure(120 - 40 * (i % 2), i)) for i, t in enumerate(TASKS)})


def ratios(_):
    values = {f"ppo-{task}": 2 + 0.1 * i for i, task in enumerate(TASKS)}
    return Evidence(ratios=values, orders={name: ratio / 4 for name, ratio in values.items()}, policies=3)


def own(value, **more):
    return lambda _: Evidence(own=value, **more)


def tasks(mean):
    """Returns by configuration, those of fp32 around 100; `mean` is told the task's place and printed net."""

    def make(item):
        printed = {} if "core" not in str(item.claim.values) else read_printed(item.claim)
        names = [*(printed or dict.fromkeys(case.environment for case in item.cases))]
        return Evidence(
            own={
                name: (spread(100), lambda c, i=i, name=name: spread(mean(c, i, printed.get(name))))
                for i, name in enumerate(names)
            }
        )

    return make


def lowest(configuration):
    return min(configuration.core, configuration.input, configuration.output)


def covers(configuration, printed):
    return all(getattr(configuration, name) >= getattr(printed, name) for name in ("core", "width", "input"))


def selects_two(configuration, place, printed):
    """The rule ends at the printed net in two tasks, and at the smallest one in the others."""
    return 100 if place > 1 or covers(configuration, printed) else 50


def needs_less_input(configuration, place, printed):
    """In two tasks one bit of input less, behind the printed core and width."""
    full = (configuration.core, configuration.width) == (8, 256)
    return 100 if configuration.input >= 5 + (full and place < 2) else 50


def match_two(configuration, place, printed):
    return 100 if place < 2 else 50


def cycles(factor):
    return lambda item: Evidence(own={task: int(count * factor) for task, count in print_cycles(item).items()})


def speedups(item):
    return Evidence(own=dict.fromkeys((case.environment for case in item.cases), 100) | {REFERENCE: 1_000_000})


@dataclass(frozen=True)
class Probe:
    """Evidence for an item, a threshold on the other side of it, and how a judgement takes the evidence."""

    moved: float
    make: Any
    how: str = "decide"

    def decide(self, judged):
        judgement, found = judged.claim.judgement, self.make(judged)
        if self.how == "decide":
            return judgement.decide(judged, found)
        if self.how == "decide_case":
            return judgement.decide_case(judged, *found)
        if self.how == "decide_times":
            return judgement.decide_times(["ponga", "pongc"][-found[0] :], "bf16", found[1])
        return getattr(judgement, self.how)(found)


def case(moved, unit=1.0):
    return Probe(moved, lambda _: (measure(100, unit=unit), measure(80, 1, unit=unit)), "decide_case")


def times(moved, policies, *gains):
    return Probe(moved, lambda _: (policies, make_step_times(gains)), "decide_times")


def board(moved):
    return Probe(moved, lambda _: compare_boards(4000.0, 1000.0), "decide_board")


AGREEMENT = Agreement(states=1000, inputs=0, outputs=0, actions=10, tie=0.0)
PROBES = {
    "Keeps": case(0.5),
    "Drops": case(0.5, unit=0.009),
    "MeanError": Probe(0.5, returns(100, 80)),
    "MeanLoss": Probe(0.5, returns(100, 80)),
    "Equivalent": Probe(0.5, returns(100, 80, 100)),
    "SomeCells": Probe(0.9, mixed),
    "MostCells": Probe(0.5, returns(100, 80)),
    "Loses": Probe(0.5, lambda item: Evidence({item.cases[0].id: (measure(100), measure(80, 1), measure(100, 2))})),
    "Harder": Probe(0.6, named((measure(100), measure(70, 1)), (measure(100), measure(100, 1)))),
    "Tracks": Probe(0.001, ranked),
    "Gains": Probe(0.5, returns(100, 95, 80)),
    "Varies": Probe(9.0, varied),
    "Count": Probe(1000.0, lambda _: Evidence()),
    "Wider": Probe(9.0, ratios),
    "Flatter": Probe(9.0, ratios),
    "FlatterBehind": Probe(9.0, ratios),
    "Ordered": Probe(0.95, ratios),
    "Converges": Probe(0.5, lambda item: Evidence(runs={"dqn-catchb": {
        "fp32": make_curves(10.0, 9.9, 9.8), item.scheme: make_curves(8.0, 7.8, 7.9)}})),
    "Sooner": Probe(9.0, lambda item: Evidence(runs={"dqn-catchb": {
        "fp32": make_ramps(1000, 1020, 1060), item.scheme: make_ramps(400, 420, 430)}})),
    "Quicker": times(9.0, 1, 1.5, 1.5, 1.5),
    "Idles": times(9.0, 1, 1.5, 1.5, 1.5),
    "Rises": times(9.0, 2, 1.0, 1.5, 2.0),
    "Exceeds": times(9.0, 2, 1.0, 1.5, 2.0),
    "Faster": board(9.0),
    "Smaller": board(9.0),
    "Leaner": board(0.5),
    "Fits": Probe(3.0, lambda _: LimitedComparison(1 << 20, compare_boards(4000.0, 1000.0),
                                                   compare_boards(20_000.0, 1000.0)), "decide_limited"),
    "Reaches": board(500_000.0),
    "Fills": board(1e-12),
    "Fewest": Probe(2.0, named((measure(100), measure(50, 1)), *[(measure(100), measure(99, 1))] * 6)),
    "SweetSpots": Probe(0.9, named(*[(measure(100), measure(120, 1))] * 7, *[(measure(100), measure(80, 1))] * 28)),
    "Grows": Probe(0.1, lambda _: [compare_boards(4000.0, 1000.0), compare_boards(2000.0, 1000.0)], "decide_boards"),
    "Matches": Probe(0.4, tasks(lambda c, *_: 100 if lowest(c) >= 6 else 50)),
    "MatchesRaw": Probe(0.4, tasks(lambda c, *_: 100 if lowest(c) >= 6 else 50)),
    "Bottleneck": Probe(0.6, tasks(lambda c, *_: 50 if c.input < 8 else 80)),
    "FlatOutput": Probe(0.5, tasks(lambda c, *_: 80 if c.output < 8 else 100)),
    "Costs": Probe(0.6, tasks(lambda c, *_: 100 if c == Configuration() else 80)),
    "NarrowCosts": Probe(0.6, tasks(lambda c, *_: 100 if c.width == 256 else 80)),
    "ReturnsMore": Probe(0.5, tasks(lambda *_: 120)),
    "ReturnsLess": Probe(-0.5, tasks(lambda *_: 80)),
    "FewerInputBits": Probe(0.3, tasks(needs_less_input)),
    "SelectsPrinted": Probe(0.3, tasks(selects_two)),
    "OneReading": Probe(1.0, tasks(lambda c, _, printed: 100 if covers(c, printed) else 50)),
    "SelectedMatch": Probe(0.3, tasks(match_two)),
    "LosesUntrained": Probe(0.5, own((measure(100), measure(80, 1)))),
    "TrainedHigher": Probe(0.5, own({"t": (spread(100), spread(100), spread(80))})),
    "Higher": Probe(0.5, own({"t": (spread(100), spread(100), spread(80))})),
    "KeepsCurve": Probe(0.5, own({"a": make_curves(10, 9.9, 9.8), "b": make_curves(8, 7.9, 7.8)})),
    "LearnsAlike": Probe(0.5, own({"a": make_curves(10, 9.9, 9.8), "b": make_curves(8, 7.9, 7.8)})),
    "EndsAlike": Probe(0.5, own({"a": make_curves(10, 9.9, 9.8), "b": make_curves(8, 7.9, 7.8)})),
    "Normalizes": Probe(0.5, own({"t": (Summary(100, 1, 6), Summary(120, 1, 6))})),
    "NormalizationCosts": Probe(0.5, own({"t": (Summary(100, 1, 6), Summary(120, 1, 6))})),
    "ActsAlike": Probe(0.9, own([AGREEMENT])),
    "ModelLatency": Probe(0.9, cycles(1.5)),
    "ModelTables": Probe(0.9, lambda item: Evidence(own={
        task: round(1.5 * row["luts"]) for (_, task), row in item.claim.values.items()})),
    "ModelBlocks": Probe(3.0, lambda item: Evidence(own={
        task: row["bram"] + 2 for (_, task), row in item.claim.values.items()})),
    "DesignLatency": Probe(2.0, cycles(1.5)),
    "DesignSpeedup": Probe(1e9, speedups),
    "NoneFits": Probe(2.0, own({"a": Fit("BRAM", 1.5), "b": Fit("LUT", 3.0)})),
    "DesignFits": Probe(2.0, own((Fit("LUT", 1.5), Fit("LUT", 0.5)))),
    "ReachesSooner": Probe(0.2, own(make_pairs(0.4, noise=0.05))),
    "StepsForLess": Probe(0.2, own(make_pairs(0.4, noise=0.05))),
    "StepsSooner": Probe(0.2, own(make_pairs(0.4, noise=0.05))),
    "TakesLess": Probe(0.2, own(make_pairs(0.4, noise=0.05))),
    "LearnsAsWell": Probe(0.5, own(make_pairs(0.5, lose=0.2))),
    "StageTakes": Probe(0.2, own(make_pairs(0.4, noise=0.05))),
    "TwinTakes": Probe(2.0, own(make_pairs(0.4, noise=0.05))),
}  # fmt: skip
FIRST = {type(claim.judgement).__name__: claim for claim in reversed(read_catalog())}


def test_every_judgement_of_the_catalog_is_probed():
    assert FIRST.keys() == PROBES.keys()


@pytest.mark.parametrize("name", FIRST)
def test_a_threshold_decides_and_is_printed(name):
    claim, probe = FIRST[name], PROBES[name]
    changed = replace(claim, judgement=replace(claim.judgement, threshold=probe.moved))
    before, after = (probe.decide(expand(each)[0]) for each in (claim, changed))
    assert before.outcome is not after.outcome, f"{before} and {after}"
    stated = [probe.moved, 1 - probe.moved, -probe.moved]
    line = describe(after)
    assert any(f"against {number:g}," in line or f"that keep {number:g}," in line for number in stated), line
    assert line != describe(before)
