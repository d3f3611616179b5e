"""Where the benches find what is data and no part of the package, unless the environment says otherwise."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {
    "QUARL_ACTORQ_RUNS": ROOT / "baselines" / "actorq",  # records of paired runs
    "QUARL_LQCC_RUNS": ROOT.parent / "shared" / "data" / "lqcc",  # the two CSV files of LQCC's authors
}

for name, folder in PLACES.items():
    if folder.is_dir():
        os.environ.setdefault(name, str(folder))
