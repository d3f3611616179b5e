"""Hypothesis without a clock or a database, so that every machine runs the same examples; fixtures of several files."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.places import POLICIES
from tests.support.sizes import draw_examples

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: small nets on many threads mostly wait

if shutil.which("ccache"):  # most of a build of Verilator's is its own library, the same for every design
    os.environ.setdefault("OBJCACHE", "ccache")


settings.register_profile(
    "quarl",
    draw_examples(100),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quarl")


@pytest.fixture
def baseline() -> Callable[[str], Any]:
    """Loads a committed policy by name; the test is skipped where it is not there."""
    from quarl_bench.policies.storage.fp32 import load_policy

    def load(name: str) -> Any:
        if not (POLICIES / name).is_dir():
            pytest.skip(f"no baseline {name} in {POLICIES}")
        return load_policy(POLICIES / name)

    return load
