"""What the server of tests/support/forks.py imports, and where a bare Python finds modules."""

import gc
import importlib
import multiprocessing
import subprocess
import sys
from contextlib import suppress

# Nothing of the plugin nor of tests: pytest rewrites their asserts as it imports them. Nothing that reads entry points.
for name in (
    "torch._dynamo",
    "stable_baselines3",
    "quarl_bench.cli",
    "quarl_bench.checking.answer",
    "quarl_bench.training.schemes",
    "pandas",
    "pytest",
    "hypothesis.strategies",
):
    with suppress(ImportError):
        importlib.import_module(name)

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
