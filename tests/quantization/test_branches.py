"""Parts of an input that pass layers of their own: what is computed, stored and refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quarl_bench.errors import PolicyError
from quarl_bench.policies.observation import Normalization, Part, normalize_parts
from quarl_bench.policies.storage.fp32 import hash_policy, load_policy, save_policy
from quarl_bench.quantization.branches import Branch
from quarl_bench.quantization.net import Linear, Net, refuse_branches
from quarl_bench.quantization.recurrent.cells import Cell, CellKind
from tests.support.images import PARTS, draw_parts, make_image_policy, make_parted_policy

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
    "no chain": ((Branch((167,)), Branch((1, 1, 1), 7), Branch((1,))), "none is behind them"),
    "no fit": ((Branch((3,)), Branch((2, 7, 9), 3), Branch((36,)), Branch((1, 2, 2))), "cannot follow the shape"),
    "ends in an image": ((Branch((3,)), Branch((2, 9, 7), 2), Branch((40,))), "a branch ends in a Linear layer"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_branches_that_do_not_fit_are_refused(name: str) -> None:
    branches, message = BROKEN[name]
    with pytest.raises(PolicyError, match=message):
        replace(make_parted_policy().net, branches=branches)


def test_a_net_with_both_a_state_and_branches_is_refused() -> None:
    net = make_parted_policy().net
    gates = tuple(Linear(np.ones((9, width), np.float32), np.ones(9, np.float32)) for width in (12, 3))
    with pytest.raises(PolicyError, match="a net with a state whose input is taken apart"):
        replace(net, layers=(*net.layers[:6], *gates), cells=(Cell(CellKind.GRU, 6),))


def test_what_knows_chains_only_says_so() -> None:
    refuse_branches(make_image_policy().net, "quarl something")
    with pytest.raises(PolicyError, match=r"^quarl something: an image among .* has no form in it$"):
        refuse_branches(make_parted_policy().net, "quarl something")
