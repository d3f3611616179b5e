"""A policy to check."""

import pytest

from quarl_bench.checking.subject import open_subject
from tests.support.places import POLICIES


@pytest.fixture
def subject():
    if not POLICIES.is_dir():
        pytest.skip(f"no policies in {POLICIES}")
    return open_subject(str(POLICIES / "ppo-cartpole-seed0"))
