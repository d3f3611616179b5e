"""Runs of pytest inside a test: in its process, where each takes a third of a second, or in one of their own."""

import importlib
import os
import time
from contextlib import suppress

import pytest

from tests.support.forks import run_python

# A run in this process forgets the modules that it was the first to import, and neither those written in C nor
# flatbuffers bear to be imported twice, nor do classes that are asked for by name. These bring all of them.
for name in (
    "torch._dynamo",
    "stable_baselines3",
    "quarl_bench.checking.answer",
    "quarl_bench.report.page.html",
    "quarl_bench.papers.quarl.claims",
    "quarl_bench.papers.actorq.judgements",
    "quarl_bench.papers.lqcc.selected_claims",
    "quarl_bench.plugin.recorder",
    "quarl_bench.plugin.regression",
    "pandas",
    "ai_edge_litert.interpreter",
    "ai_edge_litert.schema_py_generated",
):
    with suppress(ImportError):
        importlib.import_module(name)

ARGUMENTS = ("-p", "no:cacheprovider", "-p", "no:randomly")
# An editable install names the package itself among the plugins to rewrite, which the process has long imported.
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


def run_inside(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """For runs that leave no trace in a process."""
    return pytester.runpytest_inprocess(*ARGUMENTS, *arguments, *QUIET)


def run_apart(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """For runs that are interrupted, or that a process does once."""
    begun = time.monotonic()
    path = os.pathsep.join(filter(None, [str(pytester.path), os.environ.get("PYTHONPATH")]))
    base = f"--basetemp={pytester.path.parent / (pytester.path.name + '-apart')}"
    done = run_python(
        "-m", "pytest", *ARGUMENTS, base, *arguments, cwd=pytester.path, env=os.environ | {"PYTHONPATH": path}
    )
    lines = (done.stdout.splitlines(), done.stderr.splitlines())
    return pytest.RunResult(done.returncode, *lines, time.monotonic() - begun)
