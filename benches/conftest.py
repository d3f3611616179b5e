"""Where the benches find what is data and no part of the package, unless the environment says otherwise; and in which
order processes run them.
"""

import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PLACES = {
    "QUARL_ACTORQ_RUNS": ROOT / "baselines" / "actorq",  # records of paired runs
    "QUARL_LQCC_RUNS": ROOT.parent / "shared" / "data" / "lqcc",  # the two CSV files of LQCC's authors
}

for name, folder in PLACES.items():
    if folder.is_dir():
        os.environ.setdefault(name, str(folder))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Cell by cell, where `-n` is given and no `--dist`."""
    if config.getoption("dist") != "load":
        return None
    from quarl_bench.plugin.scheduling import CellScheduling

    return CellScheduling(config, log)
