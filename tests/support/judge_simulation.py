"""How often the per-cell verdict is wrong, and how often it decides: simulated on a grid of kinds of returns.

`python -m tests.support.judge_simulation --draws 2000` runs the whole grid, prints it beside the rates that the rule
was adopted with ("expected"), and exits 1 when a wrong definite verdict is too frequent or power is lost.
"""

import argparse
import itertools
import multiprocessing
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy import special

from quarl_bench.judging.pairs import decide
from quarl_bench.spec import Outcome

Floats = NDArray[np.float64]
Rule = Callable[..., Outcome]  # of reference, candidate, margin and cap
Rates = tuple[float, float]  # of supported, of refuted

EPISODES = 100
STARTS = 30  # of a task that has no more, as an Atari game
MARGIN = 0.05
SPREAD = 0.2  # SD of episode returns relative to the policy's mean
POLICIES = (1, 3, 5, 10)
TAUS = (0.0, 0.05, 0.10)  # SD over policies of the ratio
ERROR_RHOS = (0.0, 0.7)  # correlation of paired episodes
POWER_RHO = 0.35
POWER_TRUTHS = (1.0, 0.98, 0.80)
CONTINUOUS = ("normal", "crossed", "skewL", "skewR", "neg")
CEILING = ("ceil", "ceilbin")
SAMPLED = (*CONTINUOUS, "agree", *CEILING, "pong")
CENSUS = "census-"  # of all starts there are: the same returns, on few episodes that have no chance in them
CENSUSES = tuple(CENSUS + kind for kind in ("normal", "skewL", "skewR", "neg", "agree", *CEILING, "pong"))
KINDS = (*SAMPLED, *CENSUSES)
CAPS: dict[str, float] = {"ceil": 1.0, "ceilbin": 1.0, "pong": 21 / 20}
ERROR_LIMIT = 0.07
POWER_SLACK = 0.07


def _pair_up(row: str, kinds: Iterable[str] = SAMPLED) -> dict[str, Rates]:
    rates = [float(rate) for rate in row.split()]
    return dict(zip(kinds, zip(rates[::2], rates[1::2], strict=True), strict=True))


# per number of policies, wrong supported and wrong refuted of each kind at a true ratio of .95: maxima over tau and rho
EXPECTED_ERRORS: dict[int, dict[str, Rates]] = {
    policies: _pair_up(row)
    for policies, row in {
        1: ".026 .031  .026 .031  .034 .036  .032 .037  .036 .037  .007 .003  .021 .037  .039 .031  .000 .031",
        3: ".045 .050  .042 .041  .039 .044  .040 .045  .048 .046  .043 .044  .015 .010  .016 .008  .008 .014",
        5: ".057 .055  .046 .047  .048 .053  .048 .056  .048 .053  .052 .041  .029 .015  .027 .010  .020 .011",
        10: ".054 .058  .049 .048  .056 .058  .054 .049  .063 .051  .052 .047  .021 .021  .024 .017  .012 .017",
    }.items()
}
for count, row in {
    3: ".048 .067  .060 .051  .056 .065  .067 .046  .007 .032  .013 .011  .066 .009  .002 .015",
    5: ".051 .053  .053 .051  .050 .061  .053 .049  .013 .042  .025 .015  .044 .013  .044 .021",
    10: ".051 .056  .058 .054  .048 .056  .051 .054  .005 .045  .022 .023  .032 .021  .053 .030",
}.items():
    EXPECTED_ERRORS[count] |= _pair_up(row, CENSUSES)

# supported at truths 1.00 and .98, refuted at .80: one triple over tau each; a single rate where tau has no meaning
EXPECTED_POWER: dict[str, dict[int, dict[float, tuple[float, ...]]]] = {
    "continuous": {
        1: {1.0: (0.56,), 0.98: (0.28,), 0.80: (0.99,)},
        3: {1.0: (0.53, 0.23, 0.13), 0.98: (0.15, 0.11, 0.09), 0.80: (1.0, 0.88, 0.49)},
        5: {1.0: (0.90, 0.46, 0.22), 0.98: (0.55, 0.22, 0.13), 0.80: (1.0, 1.0, 0.83)},
        10: {1.0: (0.96, 0.77, 0.38), 0.98: (0.81, 0.41, 0.21), 0.80: (1.0, 1.0, 0.99)},
    },
    "ceiling": {
        1: {1.0: (0.93,), 0.98: (0.36,), 0.80: (1.0,)},
        3: {1.0: (0.83, 0.83, 0.83), 0.98: (0.02, 0.09, 0.09), 0.80: (0.99, 0.86, 0.48)},
        5: {1.0: (1.0, 1.0, 1.0), 0.98: (0.13, 0.28, 0.28), 0.80: (1.0, 1.0, 0.91)},
        10: {1.0: (1.0, 1.0, 1.0), 0.98: (0.52, 0.55, 0.56), 0.80: (1.0, 1.0, 1.0)},
    },
}
FAMILIES: dict[str, tuple[str, ...]] = {"continuous": CONTINUOUS, "ceiling": CEILING}


@dataclass(frozen=True)
class Scenario:
    """One cell of the grid; its random stream is its own, so that a subset gives the same numbers as the whole."""

    kind: str
    policies: int
    tau: float
    rho: float
    truth: float
    episodes: int = EPISODES

    def seed(self) -> int:
        return zlib.crc32(repr(self).encode())


def _draw_noise(scenario: Scenario, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Standard normal noise of both precisions, P x E each, correlated by `rho` through episode and policy."""
    shape = (scenario.policies, scenario.episodes)
    shared = (rng.standard_normal(scenario.episodes) + rng.standard_normal(shape)) / np.sqrt(2.0)
    own = rng.standard_normal(shape)
    if scenario.kind == "crossed":
        own = (rng.standard_normal(scenario.episodes) + own) / np.sqrt(2.0)
    keep, add = np.sqrt(scenario.rho), np.sqrt(1.0 - scenario.rho)
    return keep * shared + add * rng.standard_normal(shape), keep * shared + add * own


def _skew(noise: Floats) -> Floats:
    """Standardised lognormal (skewness 6.2) with the ranks of standard normal noise."""
    mean, variance = np.exp(0.5), np.exp(1.0) * (np.exp(1.0) - 1.0)
    skewed: Floats = (np.exp(noise) - mean) / np.sqrt(variance)
    return skewed


def _draw_losses(scenario: Scenario, rng: np.random.Generator) -> Floats:
    """P x 1 one-sided losses per policy: gamma with mean 1 - truth and SD min(tau, 1 - truth)."""
    mean = 1.0 - scenario.truth
    spread = min(scenario.tau, mean)
    if spread <= 0.0:
        return np.full((scenario.policies, 1), mean)
    return rng.gamma((mean / spread) ** 2, spread**2 / mean, size=(scenario.policies, 1))


def _draw_ceiling(scenario: Scenario, rng: np.random.Generator) -> tuple[Floats, Floats]:
    losses = _draw_losses(scenario, rng)
    if scenario.kind == "pong":
        shape = (scenario.policies, scenario.episodes)
        common = 21.0 - rng.poisson(0.7, shape)
        reference = common - rng.poisson(0.3, shape)
        return reference / 20.0, (common - rng.poisson(0.3 + 20.0 * losses, shape)) / 20.0
    noise, other = (special.ndtr(z) for z in _draw_noise(scenario, rng))
    if scenario.kind == "ceilbin":
        return np.ones_like(noise), (other >= losses).astype(np.float64)
    failing = np.clip(2.0 * (1.0 - 0.99 * (1.0 - losses)), 1e-12, 1.0)  # a failure is uniform in 0..1: half is lost
    return np.where(noise < 0.02, noise / 0.02, 1.0), np.where(other < failing, other / failing, 1.0)


def draw_returns(scenario: Scenario, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Paired returns (reference, candidate), P x E each, whose true ratio of means is `scenario.truth`."""
    scenario = replace(scenario, kind=scenario.kind.removeprefix(CENSUS))
    if scenario.kind in CAPS:
        return _draw_ceiling(scenario, rng)
    noise, other = _draw_noise(scenario, rng)
    column = (scenario.policies, 1)
    level = np.exp(0.1 * rng.standard_normal(column) - 0.005)
    ratio = scenario.truth + scenario.tau * rng.standard_normal(column)
    if scenario.kind == "neg":
        return -level * (1.0 + SPREAD * _skew(noise)), -level * (2.0 - ratio) * (1.0 + SPREAD * _skew(other))
    reference = level * (1.0 + SPREAD * noise)
    if scenario.kind == "agree":
        equal = rng.random(noise.shape) < 0.6
        rest = (1.0 - (1.0 - ratio) / 0.4) * level * (1.0 + SPREAD * other)
        return reference, np.where(equal, reference, rest)
    if scenario.kind == "skewL":
        other = -_skew(other)
    elif scenario.kind == "skewR":
        other = _skew(other)
    return reference, ratio * level * (1.0 + SPREAD * other)


def count_outcomes(scenario: Scenario, draws: int, rule: Rule = decide) -> Rates:
    """Share of `draws` simulated cells that `rule` supports, and that it refutes."""
    rng = np.random.default_rng(scenario.seed())
    cap = CAPS.get(scenario.kind.removeprefix(CENSUS))
    if scenario.kind in CENSUSES:
        rule = partial(rule, census=True)
    outcomes = [rule(*draw_returns(scenario, rng), MARGIN, cap) for _ in range(draws)]
    return outcomes.count(Outcome.SUPPORTED) / draws, outcomes.count(Outcome.REFUTED) / draws


def list_scenarios(
    kinds: Iterable[str] = KINDS, policies: Iterable[int] = POLICIES, taus: Iterable[float] = TAUS
) -> list[Scenario]:
    """Error and power scenarios of a part of the grid; for one policy only tau 0, as the verdict is on that policy.

    In a census one policy has no error to make. What policies share there is a part of the truth about these starts,
    so that they share nothing.
    """
    cases = [(0.95, rho) for rho in ERROR_RHOS] + [(truth, POWER_RHO) for truth in POWER_TRUTHS]
    grid = itertools.product([kind for kind in kinds if kind in SAMPLED], policies, taus, cases)
    found = [Scenario(k, p, 0.0 if p == 1 else tau, rho, truth) for k, p, tau, (truth, rho) in grid]
    several = [count for count in policies if count > 1]
    censuses = itertools.product([kind for kind in kinds if kind in CENSUSES], several, taus)
    found += [Scenario(k, p, tau, 0.0, 0.95, STARTS) for k, p, tau in censuses]
    return list(dict.fromkeys(found))


def find_worst(rates: Mapping[Scenario, Rates], kind: str, policies: int) -> Rates:
    """Largest rates of wrong supported and wrong refuted over tau and rho at the margin itself."""
    wrong = [r for s, r in rates.items() if (s.kind, s.policies, s.truth) == (kind, policies, 1.0 - MARGIN)]
    return max(r[0] for r in wrong), max(r[1] for r in wrong)


def find_power(rates: Mapping[Scenario, Rates], family: str, policies: int, truth: float, tau: float) -> float:
    """Rate of the right definite verdict, averaged over the kinds of `family`."""
    side = 0 if truth > 1.0 - MARGIN else 1
    keys = (Scenario(kind, policies, tau, POWER_RHO, truth) for kind in FAMILIES[family])
    return fmean(rates[key][side] for key in keys)


def print_report(rates: Mapping[Scenario, Rates], policies: Iterable[int] = POLICIES) -> list[str]:
    """Print the grid beside what is expected of it; returns one line per miss."""
    misses = []
    print("wrong supported/refuted at a true ratio of .95, maximum over tau and rho; expected in brackets")
    for kinds, counts in ((SAMPLED, policies), (CENSUSES, [count for count in policies if count > 1])):
        print(f"{'P':>3} " + "".join(f"{kind:>24}" for kind in kinds))
        for count in counts:
            row = ""
            for kind in kinds:
                got, expected = find_worst(rates, kind, count), EXPECTED_ERRORS[count][kind]
                row += f"{got[0]:.3f}/{got[1]:.3f} [{expected[0]:.3f}/{expected[1]:.3f}]".rjust(24)
                if max(got) > ERROR_LIMIT:
                    misses.append(f"{kind}, P={count}: wrong {got[0]:.3f}/{got[1]:.3f} above {ERROR_LIMIT}")
            print(f"{count:>3} {row}")
    print("\nright verdicts at rho .35, mean over the kinds of a family, per tau; expected in brackets")
    for family, count, truth in itertools.product(FAMILIES, policies, POWER_TRUTHS):
        expected_triple = EXPECTED_POWER[family][count][truth]
        cells = []
        for tau, expected_rate in zip(TAUS, expected_triple, strict=False):
            power = find_power(rates, family, count, truth, tau)
            cells.append(f"{power:.2f} [{expected_rate:.2f}]")
            if power < expected_rate - POWER_SLACK:
                misses.append(f"{family}, P={count}, truth {truth}, tau {tau}: {power:.2f} for {expected_rate:.2f}")
        side = "supported" if truth > 1.0 - MARGIN else "refuted"
        print(f"{family:>10} P={count:<2} {side:>9} at {truth:.2f}: {'   '.join(cells)}")
    return misses


def _work(job: tuple[Scenario, int]) -> Rates:
    return count_outcomes(*job)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    scenarios = list_scenarios()
    jobs = [(scenario, options.draws * EPISODES // scenario.episodes) for scenario in scenarios]  # as many episodes
    if options.processes > 1:
        with multiprocessing.Pool(min(options.processes, os.cpu_count() or 1)) as pool:
            results = pool.map(_work, jobs, chunksize=4)
    else:
        results = [_work(job) for job in jobs]
    misses = print_report(dict(zip(scenarios, results, strict=True)))
    for miss in misses:
        print(f"MISS {miss}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
