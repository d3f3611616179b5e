"""Other rules for one cell, beside the judge's: is there one with more power at 3 to 8 policies?

`python -m tests.support.judge_rules --draws 1000` draws cells as `judge_simulation` does, and judges each by five
rules. They differ in how they estimate the variance of the mean, and in the degrees of freedom that they take for it.
A rule that errs more often than the judge's gets a smaller error per side, until it errs no more often on any kind.
Then the power of both is compared. Kinds that the tie guard decides are left out: it is the same for every rule.
"""

import argparse
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy import special

from quarl_bench.judging import statistics as stats
from tests.support.judge_simulation import (
    CONTINUOUS,
    ERROR_RHOS,
    MARGIN,
    POWER_RHO,
    POWER_TRUTHS,
    TAUS,
    Floats,
    Rates,
    Scenario,
    draw_returns,
)

POLICIES = (3, 5, 8)
KINDS = (*CONTINUOUS, "agree")
LIKE = 3  # other cells that share a variance, of the same kind and of any tau
ERRORS = (0.05, 0.045, 0.04, 0.035, 0.03, 0.025, 0.02, 0.015, 0.01, 0.005, 0.0025)  # per side
MANY = 50.0  # degrees of freedom that a prior has at most
EQUAL = 1e-3  # spread of the logarithms of variances below which they count as one


class Cells(NamedTuple):
    """Simulated cells of one scenario, one entry each; variances are relative to the squared mean return."""

    centre: Floats  # mean contrast
    policy: Floats  # A of `statistics.estimate_variance`
    episode: Floats  # B
    interaction: Floats  # C
    like: Floats  # (cells, LIKE): A of other cells

    def join(self, policy: Floats) -> Floats:
        """The variance of the mean with that of the policies replaced."""
        return np.maximum.reduce([policy + self.episode - self.interaction, policy, self.episode])


Rule = Callable[[Cells, int, int], tuple[Floats, Floats]]  # cells, policies, episodes: variances, degrees of freedom


def keep(cells: Cells, policies: int, _: int) -> tuple[Floats, Floats]:
    """The judge's own: the policies' number decides the degrees of freedom."""
    return cells.join(cells.policy), np.full(len(cells.centre), policies - 1.0)


def match_moments(cells: Cells, policies: int, episodes: int) -> tuple[Floats, Floats]:
    """Satterthwaite's degrees of freedom of A + B - C, and at least the policies'."""
    variance = np.maximum(cells.policy + cells.episode - cells.interaction, 1e-300)
    few, many = policies - 1.0, episodes - 1.0
    squares = cells.policy**2 / few + cells.episode**2 / many + cells.interaction**2 / (few * many)
    return cells.join(cells.policy), np.maximum(variance**2 / squares, few)


def pool(cells: Cells, policies: int, _: int) -> tuple[Floats, Floats]:
    """One variance of the policies for all like cells."""
    shared = (cells.policy + cells.like.sum(axis=1)) / (1 + LIKE)
    return cells.join(shared), np.full(len(cells.centre), (policies - 1.0) * (1 + LIKE))


def pool_above(cells: Cells, policies: int, _: int) -> tuple[Floats, Floats]:
    """The like cells' variance where it is larger than the cell's own."""
    shared = np.maximum(cells.policy, cells.like.mean(axis=1))
    return cells.join(shared), np.full(len(cells.centre), (policies - 1.0) * (1 + LIKE))


def moderate(cells: Cells, policies: int, _: int) -> tuple[Floats, Floats]:
    """The cell's own variance drawn towards the like cells' (Smyth 2004): their spread says how far."""
    own = policies - 1.0
    logs = np.log(np.maximum(np.concatenate([cells.policy[:, None], cells.like], axis=1), 1e-12))
    logs -= special.digamma(own / 2) - np.log(own / 2)
    spread = logs.var(axis=1, ddof=1) - special.polygamma(1, own / 2)
    prior = np.minimum(np.where(spread > EQUAL, 2 * _invert_trigamma(np.maximum(spread, EQUAL)), MANY), MANY)
    typical = np.exp(logs.mean(axis=1) + special.digamma(prior / 2) - np.log(prior / 2))
    return cells.join((prior * typical + own * cells.policy) / (prior + own)), prior + own


RULES: dict[str, Rule] = {
    "the judge's": keep, "Satterthwaite": match_moments, "pooled": pool, "pooled above": pool_above,
    "moderated": moderate,
}  # fmt: skip


def _invert_trigamma(values: Floats) -> Floats:
    """The arguments at which trigamma has these values, by Newton's method (Smyth 2004, appendix)."""
    x = 0.5 + 1.0 / values
    for _ in range(20):
        found = special.polygamma(1, x)
        x = x + found * (1.0 - found / values) / special.polygamma(2, x)
    return x


def draw_cells(scenario: Scenario, draws: int) -> Cells:
    """Simulated cells without like ones."""
    rng = np.random.default_rng(scenario.seed())
    found = np.empty((4, draws))
    for i in range(draws):
        reference, candidate = draw_returns(scenario, rng)
        level = abs(float(reference.mean()))
        contrast = candidate - reference + MARGIN * np.sign(reference.mean()) * reference
        found[0, i] = contrast.mean() / level
        found[1:, i] = stats.split_squares(contrast / level)
    return Cells(*found, np.empty((draws, 0)))


def draw_all(policies: int, draws: int) -> dict[Scenario, Cells]:
    """Cells of every scenario of the margin and of power, each with like cells of any tau."""
    cases = [(rho, 1.0 - MARGIN) for rho in ERROR_RHOS] + [(POWER_RHO, truth) for truth in POWER_TRUTHS]
    grid = [Scenario(k, policies, t, rho, truth) for k, t, (rho, truth) in itertools.product(KINDS, TAUS, cases)]
    alone = {scenario: draw_cells(scenario, draws) for scenario in grid}
    rng = np.random.default_rng(policies)
    found = {}
    for scenario, cells in alone.items():
        others = np.concatenate([alone[replace(scenario, tau=tau)].policy for tau in TAUS])
        found[scenario] = cells._replace(like=rng.choice(others, (draws, LIKE)))
    return found


def count(cells: Mapping[Scenario, Cells], rule: Rule, error: float) -> dict[Scenario, Rates]:
    """By scenario, the shares of cells that are supported and refuted at that error per side."""
    rates = {}
    for scenario, drawn in cells.items():
        variance, dof = rule(drawn, scenario.policies, scenario.episodes)
        above = special.stdtr(dof, -drawn.centre / np.sqrt(variance))
        rates[scenario] = float((above < error).mean()), float((above > 1.0 - error).mean())
    return rates


def find_errors(rates: Mapping[Scenario, Rates]) -> dict[str, float]:
    """By kind, the largest rate of wrong verdicts at the margin."""
    wrong = [(scenario.kind, max(pair)) for scenario, pair in rates.items() if scenario.truth == 1.0 - MARGIN]
    return {kind: max(rate for name, rate in wrong if name == kind) for kind in KINDS}


def find_power(rates: Mapping[Scenario, Rates], truth: float, tau: float) -> float:
    """Share of right verdicts, averaged over the continuous kinds."""
    side = 0 if truth > 1.0 - MARGIN else 1
    found = [r[side] for s, r in rates.items() if (s.truth, s.tau) == (truth, tau) and s.kind in CONTINUOUS]
    return fmean(found)


def calibrate(cells: Mapping[Scenario, Cells], rule: Rule, allowed: Mapping[str, float]) -> float:
    """The largest of ERRORS at which the rule errs no more often than `allowed` on any kind; the smallest otherwise."""
    for error in ERRORS:
        if all(rate <= allowed[kind] for kind, rate in find_errors(count(cells, rule, error)).items()):
            return error
    return ERRORS[-1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print, for each number of policies and each rule, its error, the calibrated one, and its power with that."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args(arguments)
    print("P  rule           wrong at .05  error per side   right at 1.00, .98 (supported), .80 (refuted), per tau")
    for policies in POLICIES:
        cells = draw_all(policies, options.draws)
        allowed = find_errors(count(cells, keep, stats.ERROR))
        for name, rule in RULES.items():
            wrong = max(find_errors(count(cells, rule, stats.ERROR)).values())
            error = calibrate(cells, rule, allowed)
            rates = count(cells, rule, error)
            power = "   ".join(" ".join(f"{find_power(rates, t, tau):.2f}" for tau in TAUS) for t in POWER_TRUTHS)
            print(f"{policies}  {name:14} {wrong:.3f}         {error:<16g} {power}")


if __name__ == "__main__":
    main()
