"""xdist's processes take whole cells, dear ones first."""

import pytest

pytestmark = pytest.mark.needs("claims")

CONFTEST = """
import os
from pathlib import Path

import pytest

from quarl_bench.plugin.scheduling import CellScheduling


def pytest_xdist_make_scheduler(config, log):
    return CellScheduling(config, log)


@pytest.fixture(autouse=True)
def note(request):
    with Path("order.txt").open("a") as file:
        file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {request.node.name}\\n")
"""
CELLS = ("ppo-cartpole", "a2c-lunarlander", "ppo-pong", "dqn-table2", "ppo-table2")
NAMES = [f"{cell}-{scheme}" for cell in CELLS for scheme in ("w8", "int8", "fp16")]
BENCH = f"""
import time

import pytest

@pytest.mark.parametrize("name", {NAMES})
def test_it(name):
    time.sleep(0.05)

def test_plain():
    pass
"""


def find_scope(name):
    return next((cell for cell in CELLS[:3] if cell in name), "the file")


def test_a_cell_stays_in_one_process_and_dear_ones_begin(pytester):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_bench=BENCH)
    result = pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=len(NAMES) + 1)
    ran = [line.split() for line in (pytester.path / "order.txt").read_text().splitlines()]
    workers: dict[str, set[str]] = {}
    for worker, name in ran:
        workers.setdefault(find_scope(name), set()).add(worker)
    assert all(len(found) == 1 for found in workers.values()), workers
    begun = list(dict.fromkeys(find_scope(name) for _, name in ran))
    assert set(begun[:2]) == {"ppo-pong", "the file"}
    assert begun[-1] == "ppo-cartpole"
