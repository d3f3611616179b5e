"""Recurrent cells: floats against torch's own modules, integers against a second reading of docs/quantizer.md."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import PolicyError, QuantizationError
from quarl_bench.policies.policy import IntegerPolicy, Visited, deployable
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.quantization.parameters import has_margin
from quarl_bench.quantization.ptq import count_levels
from quarl_bench.quantization.recurrent.cells import Cell, CellKind
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.sizes import choose, draw_examples
from tests.support.strategies import SEEDS, make_recurrent, wander

KINDS = list(CellKind)
MODULES = {CellKind.LSTM: torch.nn.LSTM, CellKind.GRU: torch.nn.GRU}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_torchs_cell(kind: CellKind) -> None:
    torch.manual_seed(3)
    module = MODULES[kind](5, 7)
    first, second = (
        Linear(*(getattr(module, f"{part}_{of}_l0").detach().numpy() for part in ("weight", "bias")))
        for of in ("ih", "hh")
    )
    net = Net((5,), (first, second), (Cell(kind, 0),))
    x = torch.randn(200, 3, 5) * 3
    with torch.no_grad():
        expected = module(x)[0].numpy()
    state = net.initial_state(3)
    for step, seen in enumerate(x.numpy()):
        outputs, state = net.step(seen, state)
        assert np.allclose(outputs, expected[step], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_net_with_a_state_has_no_forward_without_one(kind: CellKind) -> None:
    policy = make_recurrent(kind)
    x = np.zeros((1, 4), np.float32)
    with pytest.raises(PolicyError, match="recurrent"):
        policy.act(x)
    integers = deployable(policy.quantize(Scheme.parse("int8"), wander(policy, 50)))
    with pytest.raises(PolicyError, match="recurrent"):
        integers.act(x)
    with pytest.raises(PolicyError, match="a state of 3 arrays"):
        policy.act(x, (np.zeros((1, 8), np.float32),) * 3)


def test_layers_that_are_no_cells_are_refused() -> None:
    layers = make_recurrent(CellKind.LSTM).net.layers
    with pytest.raises(PolicyError, match="3 gates"):
        Net((4,), layers, (Cell(CellKind.GRU, 0),))
    with pytest.raises(PolicyError, match="two layers"):
        Net((4,), layers, (Cell(CellKind.LSTM, 2),))
    with pytest.raises(PolicyError, match="an activation"):
        Net((4,), (replace(layers[0], activation=Activation.RELU), *layers[1:]), (Cell(CellKind.LSTM, 0),))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme, levels", [("w8", 256), ("w4", 16), ("w2", 4)])
def test_weights_have_as_many_levels_as_the_bits_allow(kind: CellKind, scheme: str, levels: int) -> None:
    policy = make_recurrent(kind, width=16)
    rounded = policy.quantize(Scheme.parse(scheme))
    assert rounded.recurrent
    assert all(count_levels(layer.weight, per_channel=False) <= levels for layer in rounded.net.layers)
    visited = wander(policy, 50)
    assert (rounded.outputs(visited) != policy.outputs(visited)).any()


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_bits_are_further_away(kind: CellKind) -> None:
    """Over a sequence whose state is the integers' own, not that of the fp32 policy."""
    policy = make_recurrent(kind, width=16, before=6)
    visited = wander(policy, 200)
    errors = []
    for scheme in ("int8", "int5", "int2"):
        integers = deployable(policy.quantize(Scheme.parse(scheme), visited))
        state, other, gap = policy.initial_state(4), integers.initial_state(4), 0.0
        for begin in range(0, len(visited), 4):
            x = visited.observations[begin : begin + 4]
            expected, state = policy.net.step(x, state)
            found, other = integers.net.step(x, other)
            gap += float(np.abs(found - expected).mean())
        errors.append(gap / 200)
    assert errors == sorted(errors)
    assert errors[0] < 0.05 < errors[2]


@pytest.mark.parametrize("options", ["pow2", "uncal", "acc"])
def test_options_without_a_form_say_so(options: str) -> None:
    policy = make_recurrent(CellKind.GRU)
    with pytest.raises(QuantizationError, match=rf"int8{options}: a recurrent policy has no form in {options}"):
        policy.quantize(Scheme.parse(f"int8{options}"), wander(policy, 10))
    with pytest.raises(QuantizationError, match="Visited"):
        policy.quantize(Scheme.parse("int8"), np.zeros((3, 4), np.float32))
    integers = deployable(policy.quantize(Scheme.parse("int8"), wander(policy, 10)))
    with pytest.raises(QuantizationError, match="thresholds"):
        integers.net.with_requantization(Requantization.THRESHOLDS)


def step_slowly(policy: IntegerPolicy, q: list[int], state: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """One step of one row by Python's whole numbers and single float32 products, as docs/quantizer.md has it."""
    net, cell = policy.net, policy.net.cells[0]

    def scale(value: int, name: str) -> int:
        first, second, third = cell.scales[name]
        return int(np.rint(np.float32(value) * (first * second / third)))

    def clip(value: int, bits: int = 16) -> int:
        return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, value))

    def look(table: str, name: str, value: int) -> int:
        front = cell.tables[table].front
        return int(cell.tables[table].table[clip(scale(value, name) + front.zero_point, 10) + 512])

    def add(index: int, values: list[int], zero: int, source: np.float32) -> list[int]:
        layer, found = net.layers[index], []
        for row, bias in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True):
            total = bias + sum(weight * (value - zero) for weight, value in zip(row, values, strict=True))
            factor = source * layer.weight_scale[0] / layer.output.scale
            found.append(int(np.rint(np.float32(total) * factor)) + layer.output.zero_point)
        return found

    hidden, memory = state
    width, one = len(hidden), min(int(np.rint(1 / cell.sigmoid.behind.scale)), 32767)
    x = [clip(value) for value in add(0, q, net.input.zero_point, net.input.scale)]
    h = [clip(value) for value in add(1, hidden, cell.hidden.zero_point, cell.hidden.scale)]
    new_hidden, new_memory = [], []
    for unit in range(width):
        xs, hs = x[unit::width], h[unit::width]
        gate = [look("sigmoid", "gates", clip(a + b)) for a, b in zip(xs, hs, strict=True)]
        if cell.kind is CellKind.LSTM:
            new = look("candidate", "news", clip(xs[2] + hs[2]))
            value = clip(scale(gate[0] * new, "taken") + scale(gate[1] * memory[unit], "kept"))
            shown = gate[3] * look("squash", "squashed", value)
        else:
            new = look("candidate", "news", clip(xs[2] + scale(gate[0] * hs[2], "recalled")))
            value = clip(scale((one - gate[1]) * new, "taken") + scale(gate[1] * memory[unit], "kept"))
            shown = value
        new_memory.append(value)
        new_hidden.append(clip(scale(shown, "shown") + cell.hidden.zero_point, cell.hidden.format.bit_width))
    behind = add(2, new_hidden, cell.hidden.zero_point, cell.hidden.scale)
    return [clip(value, net.output.format.bit_width) for value in behind], [new_hidden, new_memory]


@draw_examples(40)
@given(SEEDS, st.sampled_from(KINDS), st.sampled_from(["int8", "int5", "int3"]))
def test_the_golden_model_is_the_formulas_of_the_page(seed: int, kind: CellKind, scheme: str) -> None:
    policy = make_recurrent(kind, inputs=3, width=4, seed=seed % 1000)
    integers = deployable(policy.quantize(Scheme.parse(scheme), wander(policy, 30, seed)))
    assert isinstance(integers, IntegerPolicy)
    rng, low = np.random.default_rng(seed), integers.net.input.format.minimum
    high = integers.net.input.format.maximum
    state = integers.initial_state(1)
    for _ in range(choose(6, 50)):
        q = rng.integers(low, high + 1, (1, 3))
        expected, behind = step_slowly(integers, q[0].tolist(), [part[0].tolist() for part in state])
        found, state = integers.net.run_step(q, state)
        assert found[0].tolist() == expected
        assert [part[0].tolist() for part in state] == behind


@pytest.mark.parametrize("kind", KINDS)
def test_tables_keep_the_margin_and_states_have_headroom(kind: CellKind) -> None:
    policy = make_recurrent(kind, width=16)
    visited = wander(policy, 100)
    integers = deployable(policy.quantize(Scheme.parse("int8"), visited))
    assert isinstance(integers, IntegerPolicy)
    (cell,) = integers.net.cells
    assert all(has_margin(table.activation, table.front, table.behind) for table in cell.tables.values())
    assert set(cell.tables) == {"sigmoid", "candidate"} | ({"squash"} if kind is CellKind.LSTM else set())
    reach = float(np.abs(visited.state[-1]).max())
    assert 1.9 * reach < cell.cell.scale * 32767 < 2.5 * max(reach, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_fp32_round_to_integers(kind: CellKind) -> None:
    policy = make_recurrent(kind)
    visited = wander(policy, 50)
    integers = deployable(policy.quantize(Scheme.parse("int8"), visited))
    gaps = np.abs(integers.outputs(visited) - policy.outputs(visited))
    assert gaps.max() < 0.1
    assert isinstance(visited, Visited)
    with pytest.raises(PolicyError, match="a state of"):
        integers.outputs(Visited(visited.observations, ()))
