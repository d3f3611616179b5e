"""Which episodes a cell is measured on."""

import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.spec import Case
from tests.support.stores import make_policy


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


@pytest.mark.parametrize(("seeds", "episodes"), [((0,), 9), ((0, 1), 4)])
@pytest.mark.parametrize("scheme", ["fp32", "w8"])
def test_a_policy_that_is_alone_plays_more(seeds, episodes, scheme, tmp_path):
    for seed in seeds:
        save_policy(make_policy(), tmp_path / "baselines" / "policies" / f"ppo-cartpole-seed{seed}", {})
    store = Store(StorePaths(tmp_path / "cache", tmp_path / "baselines"))
    cells = Cells(store, Protocol(1, 4, lone=9), tmp_path / "artefacts")
    measured = cells.measure(cells.quantize(cells.find_policies(Case("ppo", "cartpole", "fp32")), scheme))
    assert [len(returns) for returns in measured.returns] == [episodes] * len(seeds)


@pytest.mark.parametrize(
    ("environment", "alone", "episodes"),
    [("hopperv4", True, 300), ("hopperv4", False, 100), ("pong", True, 114), ("quadx1", True, 100)],
)
def test_more_episodes_are_not_played_where_they_are_dear(environment, alone, episodes):
    protocol = Protocol(3, 100, games=114, lone=300)
    assert len(protocol.list_seeds(find_environment(environment), alone=alone)) == episodes
