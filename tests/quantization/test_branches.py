"""Parts of an input that pass layers of their own: what is computed, stored and refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quarl_bench.errors import PolicyError, QuantizationError, QuarlError
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.observation import Normalization, Part, normalize_parts
from quarl_bench.policies.policy import QuantizedPolicy
from quarl_bench.policies.storage.fp32 import hash_policy, load_policy, save_policy
from quarl_bench.policies.storage.integers import hash_integers, load_integers, save_integers
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.branches import Branch
from quarl_bench.quantization.net import Conv2d, Net, refuse_branches
from quarl_bench.quantization.parameters import ActivationFormat, PartedFormat, QuantizedLayer
from quarl_bench.quantization.recurrent.cells import Cell, CellKind
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.images import PARTS, draw_parts, make_image_policy, make_parted_policy
from tests.support.layers import forward_layer

PIXELS = np.arange(256, dtype=np.uint8)


def run_by_hand(net: Net, x: torch.Tensor) -> torch.Tensor:
    """The parted policy, written out."""
    w = net.tensors
    relu, conv, linear = torch.relu, torch.nn.functional.conv2d, torch.nn.functional.linear
    speed, camera, plan, rest = x.split([part.width for part in PARTS], 1)
    camera = torch.tanh(conv(relu(conv(camera.reshape(-1, 2, 9, 7), *w[0], 2)), *w[1]))
    plan = linear(relu(conv(plan.reshape(-1, 1, 6, 6), *w[3])).flatten(1), *w[4])
    joined = torch.cat([speed, relu(linear(camera.flatten(1), *w[2])), plan, rest], 1)
    return linear(torch.tanh(linear(joined, *w[5])), *w[6])


def test_every_part_passes_its_own_layers_and_the_chain_reads_them_in_order() -> None:
    policy = make_parted_policy()
    seen = draw_parts(50)
    scaled = seen.copy()
    scaled[:, 3:165] /= np.float32(255)
    np.testing.assert_array_equal(policy.transform.apply(seen), scaled)
    wanted = run_by_hand(policy.net, torch.from_numpy(scaled)).numpy()
    np.testing.assert_allclose(policy.outputs(seen), wanted, rtol=1e-6, atol=1e-6)
    assert len(np.unique(policy.act(seen))) > 1


def test_pixels_are_divided_as_float32_divides_them() -> None:
    expected = PIXELS.astype(np.float32) / np.float32(255)
    vector = Normalization(np.ones(1), np.full(1, 4.0), 5.0)
    for parts, known in (((), {}), ((Part("v", (1,)),), {"v": vector})):
        found = normalize_parts((Part("image", (1, 16, 16), pixels=True), *parts), known)
        assert found is not None
        rows = np.append(PIXELS.astype(np.float32), [7.0] * len(parts))[None]
        np.testing.assert_array_equal(found.apply(rows)[0, :256], expected)
        assert (found.apply(rows)[0, 256:] == np.float32(6 / np.sqrt(4 + vector.epsilon))).all()


def test_many_images_are_normalized_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    transform, seen = make_parted_policy().transform, draw_parts(50)
    whole = transform.apply(seen)
    for block in (1, 169, 1000):
        monkeypatch.setattr("quarl_bench.policies.observation.BLOCK", block)
        np.testing.assert_array_equal(transform.apply(seen), whole)


def test_ones_and_zeros_and_raw_vectors_stay_what_they_are() -> None:
    parts = (Part("image", (1, 1, 1), pixels=True), Part("raw", (3,)), Part("bits", (2,), bounded=True))
    row = np.float32([[51, 1e-30, -123.456, 3e30, 0, 1]])
    found = normalize_parts(parts)
    assert found is not None
    np.testing.assert_array_equal(found.apply(row), np.float32([[0.2, *row[0, 1:]]]))
    statistics = {"raw": Normalization(np.zeros(3), np.ones(3))}
    mixed = normalize_parts(parts, statistics)
    assert mixed is not None
    np.testing.assert_array_equal(mixed.apply(row)[0, [0, 4, 5]], np.float32([0.2, 0, 1]))
    assert normalize_parts(parts[1:]) is None


@pytest.mark.parametrize(
    ("parts", "clip", "message"),
    [
        ((Part("a", (1,)), Part("b", (1,))), 10.0, "without 'b'.*normalize all vectors or none"),
        ((Part("a", (1,)), Part("b", (1, 1, 1), pixels=True)), 0.5, r"without 'those in \[0, 1\]'"),
    ],
)
def test_statistics_whose_clip_reaches_other_parts_are_refused(parts: Any, clip: float, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        normalize_parts(parts, {"a": Normalization(np.zeros(1), np.ones(1), clip)})


def test_folders_keep_branches_and_chains_have_none(tmp_path: Path) -> None:
    policy = make_parted_policy()
    stored = save_policy(policy, tmp_path / "parted", {})
    again = load_policy(tmp_path / "parted")
    assert again.policy.net.branches == policy.net.branches
    assert again.sha256 == stored.sha256 == hash_policy(policy)
    np.testing.assert_array_equal(again.policy.outputs(draw_parts(9)), policy.outputs(draw_parts(9)))
    save_policy(make_image_policy(), tmp_path / "chain", {})
    assert "branches" not in json.loads((tmp_path / "chain" / "manifest.json").read_text())["architecture"]


BROKEN: dict[str, tuple[Any, str]] = {
    "too short": ((Branch((3,)), Branch((2, 9, 7), 3)), "which they do not take apart"),
    "negative": ((Branch((-3, -57)),), "which they do not take apart"),
    "no layers": ((Branch((100,)), Branch((69,))), "branches without layers are one vector"),
    "no chain": ((Branch((167,)), Branch((1, 1, 1), 7), Branch((1,))), "none is behind them"),
    "no fit": ((Branch((3,)), Branch((2, 7, 9), 3), Branch((36,)), Branch((1, 2, 2))), "cannot follow the shape"),
    "ends in an image": ((Branch((3,)), Branch((2, 9, 7), 2), Branch((40,))), "a branch ends in a Linear layer"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_branches_that_do_not_fit_are_refused(name: str) -> None:
    branches, message = BROKEN[name]
    with pytest.raises(PolicyError, match=message):
        replace(make_parted_policy().net, branches=branches)


def test_a_cell_within_a_branch_is_refused() -> None:
    net = make_parted_policy().net
    with pytest.raises(PolicyError, match="gru at layer 1: a cell is two layers, and those of 7 do not hold it"):
        replace(net, cells=(Cell(CellKind.GRU, 1),))


def test_what_knows_chains_only_says_so() -> None:
    refuse_branches(make_image_policy().net, "quarl something")
    with pytest.raises(PolicyError, match=r"^quarl something: an image among .* has no form in it$"):
        refuse_branches(make_parted_policy().net, "quarl something")


# --- integers -------------------------------------------------------------------------------------------------------


def quantize(name: str, kind: HeadKind = HeadKind.ARGMAX) -> QuantizedPolicy:
    quantized = make_parted_policy(kind).quantize(Scheme.parse(name), draw_parts(300))
    assert isinstance(quantized, QuantizedPolicy)
    return quantized


def add_up_by_hand(layer: QuantizedLayer, source: ActivationFormat, q: Any) -> Any:
    """One layer in whole numbers of Python's own size, and the rule of rounding."""
    x = torch.from_numpy(q - source.zero_point).double()
    weight, bias = torch.from_numpy(layer.weight).double(), torch.from_numpy(layer.bias).double()
    if layer.kind is Conv2d:
        sums = torch.nn.functional.conv2d(x, weight, bias, layer.stride)
    else:
        sums = torch.nn.functional.linear(x.flatten(1), weight, bias)
    scale = source.scale * layer.weight_scale / layer.output.scale
    steps = np.rint(sums.numpy().astype(np.float32) * scale.reshape((-1,) + (1,) * (sums.ndim - 2)))
    found = np.clip(steps.astype(np.int64) + layer.output.zero_point, layer.lowest, layer.output.format.maximum)
    return found if layer.tabled is None else layer.table[found - layer.output.format.minimum]


@pytest.mark.parametrize("name", ["int8", "int8pc", "int4", "int8pow2", "int8acc", "int8uncal", "int6pct99w8765432"])
def test_the_golden_model_is_every_part_by_hand_and_joined_exactly(name: str) -> None:
    quantized = quantize(name)
    net = quantized.to_integer().net
    q = net.input.quantize(quantized.transform.apply(draw_parts(200, seed=1)))
    assert isinstance(net.input, PartedFormat)
    assert net.input.parts[0] == net.input.parts[3] == net.input.joined
    speed, camera, plan, rest = net.input.split(q)
    camera, plan = camera.reshape(-1, 2, 9, 7), plan.reshape(-1, 1, 6, 6)
    for index, formats in ((0, net.input.parts[1]), (1, net.layers[0].result), (2, net.layers[1].result)):
        camera = add_up_by_hand(net.layers[index], formats, camera)
    for index, formats in ((3, net.input.parts[2]), (4, net.layers[3].result)):
        plan = add_up_by_hand(net.layers[index], formats, plan)
    assert net.layers[2].output == net.layers[4].output == net.input.joined
    joined = np.concatenate([speed, camera, plan, rest], axis=1)
    inner = add_up_by_hand(net.layers[5], net.input.joined, joined)
    np.testing.assert_array_equal(net.trace(q)[5], inner)
    np.testing.assert_array_equal(net.run(q), net.trace(q)[-1])
    thresholds = replace(net, layers=net.layers[:6]).with_requantization(Requantization.THRESHOLDS)
    np.testing.assert_array_equal(thresholds.run(q), inner)


def test_every_part_has_its_own_steps() -> None:
    """A pixel of 1/255 is one step of its own format, though the vector's range is wide."""
    policy = make_parted_policy()
    net = quantize("int8").net
    assert isinstance(net.input, PartedFormat)
    assert net.input.parts[1].scale == pytest.approx(1 / 255, rel=1e-6)
    assert net.input.scale > 3 / 255
    seen = draw_parts(100, seed=2)
    q = net.input.quantize(policy.transform.apply(seen))
    np.testing.assert_array_equal(q[:, 3:129] + 128, seen[:, 3:129])
    off = np.abs(net.input.dequantize(q) - policy.transform.apply(seen))
    assert np.median(off[:, :3]) > np.median(off[:, 3:165]) * 3


def test_rounded_forwards_agree() -> None:
    """Float32 sums round where integer sums do not, so that steps may differ, and by few."""
    policy, seen = make_parted_policy(), draw_parts(200, seed=1)
    quantized = quantize("int8")
    integers = quantized.to_integer()
    step = float(integers.net.output.scale)
    assert np.abs(quantized.outputs(seen) - integers.outputs(seen)).max() <= 2 * step
    assert np.abs(policy.outputs(seen) - integers.outputs(seen)).max() < 0.1 * np.abs(policy.outputs(seen)).max()
    assert (policy.act(seen) == integers.act(seen)).mean() > 0.9
    rounded = policy.quantize(Scheme.parse("w8"))
    assert (policy.act(seen) == rounded.act(seen)).mean() > 0.95
    assert rounded.net.branches == policy.net.branches


def test_each_layer_alone_is_within_a_step_of_its_integers() -> None:
    quantized = quantize("int8")
    net = quantized.to_integer().net
    q = net.input.quantize(quantized.transform.apply(draw_parts(50)))
    behind = net.trace(q)
    camera = net.input.split(q)[1].reshape(-1, 2, 9, 7)
    for index, read in ((0, camera), (1, behind[0]), (2, behind[1]), (6, behind[5])):
        assert np.abs(forward_layer(quantized.net, index, read) - behind[index]).max() <= 1


@pytest.mark.parametrize("name", ["int8cle", "int8hba", "int8eq", "i8c8o8ptq"])
def test_schemes_that_know_chains_only_refuse_them(name: str) -> None:
    with pytest.raises(QuarlError) as caught:
        quantize(name)
    assert "\n" not in str(caught.value)


def test_a_branch_that_ends_in_a_table_has_no_integers() -> None:
    policy = make_parted_policy()
    layers = [*policy.net.layers]
    layers[2] = replace(layers[2], activation=Activation.TANH)
    policy = replace(policy, net=replace(policy.net, layers=tuple(layers)))
    with pytest.raises(QuantizationError, match="int8: layer 2 ends a branch in a table"):
        policy.quantize(Scheme.parse("int8"), draw_parts(50))


def test_folders_keep_integers_of_parts(tmp_path: Path) -> None:
    policy = quantize("int6").to_integer()
    stored = save_integers(policy, tmp_path / "made", {})
    again = load_integers(tmp_path / "made")
    assert again.sha256 == stored.sha256 == hash_integers(policy)
    assert (again.policy.net.input, again.policy.net.branches) == (policy.net.input, policy.net.branches)
    np.testing.assert_array_equal(again.policy.outputs(draw_parts(20)), policy.outputs(draw_parts(20)))


def change(entry: Any, *path: Any, value: Any) -> None:
    *path, last = path
    for key in path:
        entry = entry[key]
    entry[last] = value


CHANGED: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "width": (("input", "parts", 0, "width"), 4, "for other branches|ill-formed"),
    "no parts": (("input", "parts"), [], "for other branches|ill-formed"),
    "bits": (("input", "parts", 1, "bit_width"), 5, "every branch ends in the format of the input|ill-formed"),
    "a vector's scale": (("input", "parts", 0, "scale"), 0.5, "every branch ends in the format of the input"),
    "an end's scale": (("layers", 2, "output", "scale"), 0.5, "every branch ends in the format of the input"),
    "no branches": (("branches",), [], "has parts where branches take it apart"),
    "shape": (("branches", 1, "shape"), [9, 2, 7], "cannot follow the shape"),
    "a string": (("branches", 1, "layers"), "x", "ill-formed"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_integers_that_no_quantizer_writes_are_refused(name: str, tmp_path: Path) -> None:
    path, value, message = CHANGED[name]
    save_integers(quantize("int6").to_integer(), tmp_path / "made", {})
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    change(manifest["architecture"], *path, value=value)
    (tmp_path / "made" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(QuarlError, match=message) as caught:
        load_integers(tmp_path / "made")
    assert "\n" not in str(caught.value)
