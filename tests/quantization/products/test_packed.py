"""Products with packed weights are torch's own, but for the order in which they are summed."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, LayerNorm, Linear, Net
from quarl_bench.quantization.products.packed import LARGE, Product, packs_weights

SHAPE = (256, LARGE // 256)


def draw(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("rows", [1, 2, 4, 7, 33])
def test_the_product_is_torchs_own_up_to_rounding(rows):
    weight, bias, x = draw(0, *SHAPE), draw(1, SHAPE[0]), draw(2, rows, SHAPE[1])
    found = Product(weight, bias).multiply(x)
    exact = x.double() @ weight.double().T + bias.double()
    # In any order a sum of n products is off by at most n rounding errors of the sum of their sizes.
    bound = (x.abs().double() @ weight.abs().double().T + bias.abs().double()) * SHAPE[1] * 2.0**-24
    assert ((found.double() - exact).abs() <= bound).all()


def test_whole_numbers_are_exact():
    rng = np.random.default_rng(3)
    weight, x = (torch.from_numpy(rng.integers(-9, 10, shape).astype(np.float32)) for shape in (SHAPE, (5, SHAPE[1])))
    bias = torch.arange(SHAPE[0], dtype=torch.float32)
    expected = x.long() @ weight.long().T + bias.long()
    assert torch.equal(Product(weight, bias).multiply(x).long(), expected)


@pytest.mark.skipif(not packs_weights(), reason="torch does not pack weights here")
@pytest.mark.parametrize(
    "shape, dtype, packed",
    [(SHAPE, torch.float32, True), (SHAPE, torch.float64, False), ((8, 8), torch.float32, False)],
)
def test_large_weights_are_packed(shape, dtype, packed, monkeypatch):
    calls = []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *args: calls.append(args) or linear(*args))
    weight, x = torch.ones(shape, dtype=dtype), torch.ones(2, shape[1], dtype=dtype)
    assert (Product(weight, torch.zeros(shape[0], dtype=dtype)).multiply(x) == shape[1]).all()
    assert len(calls) == (0 if packed else 1)


def test_a_torch_that_packs_nothing_multiplies_as_it_did(monkeypatch):
    packs_weights.cache_clear()
    monkeypatch.setattr(torch, "ops", SimpleNamespace(mkldnn=SimpleNamespace()))
    try:
        assert not packs_weights()
        weight, bias, x = draw(0, *SHAPE), draw(1, SHAPE[0]), draw(2, 3, SHAPE[1])
        assert torch.equal(Product(weight, bias).multiply(x), torch.nn.functional.linear(x, weight, bias))
    finally:
        packs_weights.cache_clear()


def test_it_goes_to_another_process_without_what_is_packed():
    product, x = Product(draw(0, *SHAPE), draw(1, SHAPE[0])), draw(2, 3, SHAPE[1])
    expected = product.multiply(x)
    assert torch.equal(pickle.loads(pickle.dumps(product)).multiply(x), expected)


def test_a_net_multiplies_its_large_layers_so(monkeypatch):
    """A normalization stays behind the product, an activation behind that, and a convolution what it was."""
    norm = LayerNorm(np.full(256, 2, np.float32), np.ones(256, np.float32))
    layers = (
        Conv2d(draw(0, 16, 3, 3, 3).numpy(), draw(1, 16).numpy(), 1, Activation.RELU),
        Linear(draw(2, 256, 16 * 8 * 8).numpy(), draw(3, 256).numpy(), Activation.RELU, norm),
        Linear(draw(4, 5, 256).numpy(), draw(5, 5).numpy()),
    )
    net, x = Net((3, 10, 10), layers), draw(6, 4, 3, 10, 10).numpy()
    assert layers[1].weight.size >= LARGE
    found = net.forward(x)
    monkeypatch.setattr(
        Product, "multiply", lambda self, x: torch.nn.functional.linear(x.flatten(1), self.weight, self.bias)
    )
    np.testing.assert_allclose(found, net.forward(x), rtol=1e-4, atol=1e-4)
    assert np.array_equal(pickle.loads(pickle.dumps(net)).forward(x), Net((3, 10, 10), layers).forward(x))
