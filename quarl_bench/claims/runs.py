"""Our own controllers as LQCC's sentences need them: returns per policy by configuration, and learning curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from quarl_bench.cells import FP32, Cells, PolicySet, check_budgets
from quarl_bench.claims.collect import ABSENT
from quarl_bench.claims.parity import Returns
from quarl_bench.claims.replay import Tasks
from quarl_bench.claims.selection import WIDTHS, Configuration, Finder
from quarl_bench.spec import Case

NOTHING: Returns = np.empty(0)


def find_runs(cells: Cells, algo: str, environments: Sequence[str], origin: str) -> Tasks:
    """By task: fp32 returns, none where no policy is there, and a finder; measured through the store."""
    found = {}
    for environment in environments:
        arm = find_arm(cells, Case(algo, environment, FP32, origin))
        reference = NOTHING if arm is None else average(cells, arm)
        found[environment] = reference, _make_finder(cells, algo, environment, origin)
    return found


def find_arm(cells: Cells, case: Case) -> PolicySet | None:
    """The policies of `case`, or None where there are none."""
    try:
        plain = cells.find_policies(case)
        return plain if case.scheme == FP32 else cells.quantize(plain, case.scheme)
    except ABSENT:
        return None


def find_untrained(cells: Cells, case: Case) -> PolicySet | None:
    """As `find_arm`, policies of the width of `case`, trained in fp32 and quantized to its bits afterwards."""
    bits = Configuration.parse(case.scheme)
    width = "" if bits.width == WIDTHS[-1] else f"h{bits.width}"
    scheme = f"i{bits.input}c{bits.core}o{bits.output}ptq"
    return find_arm(cells, replace(case, scheme=scheme, origin=f"{case.origin}{width}"))


def find_pairs(
    cells: Cells, arms: Mapping[str, Sequence[PolicySet | None]]
) -> tuple[dict[str, tuple[Returns, ...]], list[str]]:
    """By task the returns of its arms, two policies of each trained for as long; and the tasks where one lacks."""
    found, missing = {}, []
    for task, sets in arms.items():
        whole = [arm for arm in sets if arm is not None and len(arm.members) > 1]
        if len(whole) < len(sets):
            missing.append(task)
        else:
            check_budgets(whole)
            found[task] = tuple(average(cells, arm) for arm in whole)
    return found, missing


def average(cells: Cells, policies: PolicySet) -> Returns:
    """Mean return of each policy."""
    return np.asarray(np.mean(cells.measure(policies).returns, axis=1))


def read_curves(policies: PolicySet) -> list[list[dict[str, Any]]]:
    """Learning curves, one per training seed, from where learning starts: before, all arms act at random."""
    curves = []
    for member in policies.members:
        begin = member.stored.about["recipe"]["learning_starts"]
        curves.append([point for point in member.stored.about["curve"] if point["timesteps"] > begin])
    return curves


def _make_finder(cells: Cells, algo: str, environment: str, origin: str) -> Finder:
    @cache
    def find(configuration: Configuration) -> Returns | None:
        arm = find_arm(cells, Case(algo, environment, configuration.scheme, origin))
        return None if arm is None else average(cells, arm)

    return find
