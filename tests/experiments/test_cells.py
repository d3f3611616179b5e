"""Which episodes a cell is measured on."""

import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.spec import Case
from tests.support.stores import make_policy


@pytest.mark.parametrize(("name", "episodes"), [("cartpole", 9), ("cartpolenovel", 9), ("lunarlander", 6), ("pong", 4)])
def test_what_our_own_dynamics_play_is_cheap(name, episodes):
    assert len(Protocol(1, 6, games=4, cheap=9).list_seeds(find_environment(name))) == episodes


def test_sampled_episodes_are_not_more_than_a_policy_plays_elsewhere(tmp_path, monkeypatch):
    """As Atari's argmax games of a nightly are, which have starts to meet."""
    monkeypatch.setattr("quarl_bench.experiments.cells.is_sampled", lambda *_, **__: True)
    save_policy(make_policy(), tmp_path / "baselines" / "policies" / "ppo-cartpole-seed0", {})
    store = Store(StorePaths(tmp_path / "cache", tmp_path / "baselines"))
    for episodes, cheap, sampled in ((4, 6, 4), (6, 4, 4)):
        cells = Cells(store, Protocol(1, episodes, cheap=cheap), tmp_path / "artefacts")
        measured = cells.measure(cells.find_policies(Case("ppo", "cartpole", "fp32")))
        assert len(measured.environment_seeds) == cheap
        assert measured.sampled.environment_seeds == measured.environment_seeds[:sampled]
