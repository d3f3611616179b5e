"""Runs of pytest inside a test: in its process, where each takes a third of a second, or in one of their own."""

from contextlib import suppress

import pytest
import stable_baselines3  # noqa: F401

import quarl_bench.check  # noqa: F401

with suppress(ImportError):
    import ai_edge_litert.schema_py_generated  # noqa: F401

# All three are here for what they import: a run in this process forgets the modules that it was the first to import,
# and neither those written in C nor flatbuffers bear a second time.
ARGUMENTS = ("-p", "no:cacheprovider", "-p", "no:randomly")


def run_inside(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """For runs that leave no trace in a process."""
    return pytester.runpytest_inprocess(*ARGUMENTS, *arguments)


def run_apart(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """For runs that are interrupted, or that a process does once."""
    return pytester.runpytest_subprocess(*ARGUMENTS, *arguments)
