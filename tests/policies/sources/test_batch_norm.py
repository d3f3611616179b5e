"""Batch normalization becomes a part of its neighbours: the outputs are torch's."""

import numpy as np
import pytest
import torch
from torch import nn

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.batch_norm import RENORM, BatchNorm
from quarl_bench.policies.sources.torch_layers import read_net

CHAINS = {
    "behind": ((6,), lambda: [nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2)]),
    "before": ((6,), lambda: [nn.BatchNorm1d(6), nn.Linear(6, 5), nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 2)]),
    "plain": ((6,), lambda: [nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 2), nn.BatchNorm1d(2)]),
    "images": (
        (2, 8, 8),
        lambda: [
            *(nn.BatchNorm2d(2), nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm2d(3)),
            *(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)),
        ],
    ),
}


def settle(modules: list[nn.Module], shape: tuple[int, ...]) -> nn.Sequential:
    """The modules at play, with statistics of some training."""
    torch.manual_seed(0)
    chain = nn.Sequential(*modules)
    for module in modules:
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.affine:
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    for _ in range(3):
        chain(2 * torch.randn(32, *shape) + 1)
    return chain.eval()


@pytest.mark.parametrize("name", CHAINS)
def test_outputs_are_those_of_torch(name: str) -> None:
    shape, make = CHAINS[name]
    chain = settle(make(), shape)
    x = np.random.default_rng(1).normal(size=(200, *shape)).astype(np.float32)
    with torch.no_grad():
        expected = chain(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(read_net(shape, chain).forward(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mean", "variance"), [([], []), ([0.0], [-1.0]), ([float("nan")], [1.0])])
def test_statistics_that_are_none_are_refused(mean: list[float], variance: list[float]) -> None:
    numbers = {"ra_mean": np.array(mean), "ra_var": np.array(variance)}
    with pytest.raises(PolicyError, match="is empty, or its mean or variance is none"):
        BatchNorm.of(numbers, RENORM, 1e-3)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([nn.Linear(4, 2), nn.ReLU(), nn.BatchNorm1d(2)], "behind the last activation has no portable form"),
        ([nn.Linear(4, 2), nn.BatchNorm1d(2, track_running_stats=False)], "it has no running statistics"),
        ([nn.Linear(4, 2), nn.ReLU(), nn.BatchNorm1d(3), nn.Linear(2, 2)], "of 3 features stands before 2 inputs"),
        ([nn.Linear(4, 2), nn.BatchNorm1d(3)], "of 3 features follows 2 outputs"),
        ([nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)], "follows a batch normalization that follows no affine layer"),
    ],
)
def test_what_has_no_neighbour_is_refused(modules: list[nn.Module], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        read_net((4,), modules)
