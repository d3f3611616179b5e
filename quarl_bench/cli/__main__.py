"""`python -m quarl_bench.cli` is `quarl`."""

import sys

from quarl_bench.cli import run_process

sys.exit(run_process())
