"""Which process of xdist runs what: the tests of one cell one after the other, dear cells first.

Tests of a cell share its policies and its fp32 episodes. In two processes at once, one of them waits for the other.
"""

from collections import OrderedDict
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from quarl_bench.environments.registry import ATARI, NAVIGATION, list_environments

DEAR, SHARED, USUAL, CHEAP = range(4)  # the order in which they begin
PRICES = {ATARI: DEAR, "": CHEAP}  # by the extra that brings the environment; any other is in between


class CellScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's scheduling by scope, where a scope is a cell, or the sentences of one file.

    A sentence over many cells needs what dear cells measure, and measures cheap ones that nobody has: it comes between.
    """

    workqueue: OrderedDict[str, dict[str, bool]]  # by scope its tests, and whether they were run

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._environments = {environment.slug: environment for environment in list_environments()}

    def _split_scope(self, nodeid: str) -> str:
        """`x.py::test_y[ppo-cartpole-int8]` -> ppo-cartpole; a sentence's or a plain test's file, and a flight's.

        A board times one flight at a time, and sentences on how times grow want what the others have timed.
        """
        file, _, test = nodeid.partition("::")
        algo, *rest = test.partition("[")[2].split("-")
        environment = self._environments.get(rest[0]) if rest else None
        return file if environment is None or environment.extra == NAVIGATION else f"{algo}-{environment.slug}"

    def _assign_work_unit(self, node: Any) -> None:
        """The next scope in order; what came back from a process that died is sorted in."""
        self.workqueue = OrderedDict(sorted(self.workqueue.items(), key=lambda entry: self._rank(entry[0])))
        super()._assign_work_unit(node)

    def _rank(self, scope: str) -> int:
        environment = self._environments.get(scope.partition("-")[2])
        return SHARED if environment is None else PRICES.get(environment.extra, USUAL)
