"""What the server of tests/support/forks.py imports, and where a bare Python finds modules."""

import gc
import importlib
import multiprocessing
import subprocess
import sys
from contextlib import suppress

# Neither plugins of pytest nor tests, whose asserts it rewrites as it imports them. Nothing that reads entry points.
for name in (
    "torch._dynamo",
    "stable_baselines3",
    "quarl_bench.cli",
    "quarl_bench.checking.answer",
    "quarl_bench.training.schemes",
    "pandas",
    "pytest",
):
    with suppress(ImportError):
        importlib.import_module(name)

# To pytest's word: it warns of what it comes too late to rewrite.
sys.modules["quarl_bench"].__doc__ += "PYTEST_DONT_REWRITE"
# -E: without PYTHONPATH, which each run brings itself.
_ASKED = subprocess.run(
    [sys.executable, "-E", "-c", "import sys; print(*sys.path[1:], sep='\\n')"],
    capture_output=True,
    text=True,
    check=True,
)
PATH = _ASKED.stdout.splitlines()
MAIN = multiprocessing.current_process()
gc.freeze()
