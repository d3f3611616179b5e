"""Our own controllers as LQCC's sentences need them: returns per policy by configuration, and learning curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from quarl_bench.experiments.cells import Cells, PolicySet, check_budgets
from quarl_bench.experiments.member import FP32
from quarl_bench.judging.evidence import ABSENT
from quarl_bench.papers.lqcc.parity import Returns
from quarl_bench.papers.lqcc.runs.tasks import Tasks
from quarl_bench.papers.lqcc.selection import WIDTHS, Configuration, Finder
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Case

NOTHING: Returns = np.empty(0)


class Runs:
    """Our own controllers in a store, and which of them a sentence rests on: their hashes by cell, in `policies`."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self.policies: dict[str, list[str]] = {}

    def find(self, algo: str, environments: Sequence[str], origin: str, against: str = "") -> Tasks:
        """By task: fp32 returns, none where no policy is there, and a finder; measured through the store.

        The fp32 policies are of the origin `against`, by default of the same. StoreError from the finder where it
        finds policies that were trained longer, or less long, than they.
        """
        found = {}
        for environment in environments:
            arm = self.find_arm(Case(algo, environment, FP32, against or origin))
            reference = NOTHING if arm is None else average(self._cells, arm)
            found[environment] = reference, self._make_finder(Case(algo, environment, FP32, origin), arm)
        return found

    def find_arm(self, case: Case) -> PolicySet | None:
        """The policies of `case`, or None where there are none."""
        try:
            if Scheme.parse(case.scheme).trained:
                return self.note(self._cells.find_trained(case))
            arm = self._cells.find_policies(case)
            return self.note(arm if case.scheme == FP32 else self._cells.quantize(arm, case.scheme))
        except ABSENT:
            return None

    def note(self, arm: PolicySet) -> PolicySet:
        """The same policies, of which `policies` then knows."""
        self.policies[arm.case.id] = [member.stored.sha256 for member in arm.members]
        return arm

    def find_untrained(self, case: Case) -> PolicySet | None:
        """As `find_arm`, policies of the width of `case`, trained in fp32 and quantized to its bits afterwards."""
        bits = Configuration.parse(case.scheme)
        width = "" if bits.width == WIDTHS[-1] else f"h{bits.width}"
        scheme = f"i{bits.input}c{bits.core}o{bits.output}ptq"
        return self.find_arm(replace(case, scheme=scheme, origin=f"{case.origin}{width}"))

    def find_pairs(
        self, arms: Mapping[str, Sequence[PolicySet | None]]
    ) -> tuple[dict[str, tuple[Returns, ...]], list[str]]:
        """By task the returns of its arms, two policies of each trained for as long; and the tasks where one lacks."""
        found, missing = {}, []
        for task, sets in arms.items():
            whole = [arm for arm in sets if arm is not None and len(arm.members) > 1]
            if len(whole) < len(sets):
                missing.append(task)
            else:
                check_budgets(whole)
                found[task] = tuple(average(self._cells, arm) for arm in whole)
        return found, missing

    def _make_finder(self, fp32: Case, reference: PolicySet | None) -> Finder:
        @cache
        def find(configuration: Configuration) -> Returns | None:
            arm = self.find_arm(replace(fp32, scheme=configuration.scheme))
            if arm is None:
                return None
            check_budgets([arm] if reference is None else [reference, arm])
            return average(self._cells, arm)

        return find


def average(cells: Cells, policies: PolicySet) -> Returns:
    """Mean return of each policy."""
    return np.asarray(np.mean(cells.measure(policies).returns, axis=1))


def read_curves(policies: PolicySet) -> list[list[dict[str, Any]]]:
    """Learning curves, one per training seed, from where learning starts: before, all arms act at random."""
    curves = []
    for member in policies.members:
        begin = member.stored.metadata["recipe"]["learning_starts"]
        curves.append([point for point in member.stored.metadata["curve"] if point["timesteps"] > begin])
    return curves
