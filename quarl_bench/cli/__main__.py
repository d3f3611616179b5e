"""`python -m quarl_bench.cli` is `quarl`."""

import sys

from quarl_bench.cli import main

sys.exit(main())
