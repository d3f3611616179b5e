"""Fixtures for the tests of other projects: the policy that is about to be shipped, in fewer bits."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from quarl_bench.checking.subject import Subject
    from quarl_bench.experiments.store import Store
    from quarl_bench.plugin.settings import Settings
    from quarl_bench.spec import Verdict


@pytest.fixture
def assert_quantizable(
    policy_store: "Store", quarl_settings: "Settings", _pass_on_notes: None
) -> "Callable[..., Verdict]":
    """`quarl_bench.testing.assert_quantizable` under this run's options: episodes, cache, baselines."""
    from quarl_bench.testing import assert_quantizable as ask

    beside = _name_baselines(quarl_settings)
    return partial(ask, episodes=quarl_settings.played.cheap, store=policy_store, **beside)


@pytest.fixture
def quarl_subject(policy_store: "Store", quarl_settings: "Settings", _pass_on_notes: None) -> "Callable[..., Subject]":
    """Call it with a policy and its environment: quantize, play or export them (`quarl_bench.checking.subject`)."""
    from quarl_bench.checking.subject import open_subject

    return partial(open_subject, store=policy_store, **_name_baselines(quarl_settings))


def _name_baselines(settings: "Settings") -> dict[str, Any]:
    return {} if settings.baselines is None else {"baselines": settings.baselines / "policies"}
