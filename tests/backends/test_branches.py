"""Observations with images among vectors as artefacts: the integers of the golden model, near ties too."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quarl_bench.backends.artefact import read_artefact
from quarl_bench.backends.base import find_ports
from quarl_bench.backends.c.backend import FLOAT_KERNELS, INTEGER_KERNELS
from quarl_bench.backends.deployed import load_artefact, verify
from quarl_bench.backends.export import export_policy, run_integers
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.registry import find_backend
from quarl_bench.errors import DeploymentError
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.policy import IntegerPolicy, require_integer
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.parameters import PartedFormat
from quarl_bench.quantization.requantize import Requantization, effective_scale
from quarl_bench.quantization.scheme import Scheme
from tests.support.images import draw_parts, make_parted_policy
from tests.support.sizes import choose, pick_kernels

COUNT = choose(500, 100_000)
EXACT = [
    pytest.param("dump", "numpy"),
    *(pytest.param("c", kernel, marks=pytest.mark.needs("cc")) for kernel in pick_kernels(INTEGER_KERNELS)),
    pytest.param("onnx", "cpu", marks=pytest.mark.needs("onnx")),
]
every_exact = pytest.mark.parametrize(("backend", "kernel"), EXACT)


def quantize(scheme: str, kind: HeadKind = HeadKind.ARGMAX) -> IntegerPolicy:
    return require_integer(make_parted_policy(kind).quantize(Scheme.parse(scheme), draw_parts(300)))


def draw_all(net: IntegerNet, count: int) -> Integers:
    """Integers of what is seen, and in every second row of the whole range."""
    policy, rng = make_parted_policy(), np.random.default_rng(1)
    q = net.input.quantize(policy.transform.apply(draw_parts(count, seed=1)))
    low, high = net.input.format.minimum, net.input.format.maximum
    q[1::2] = rng.integers(low, high + 1, q[1::2].shape)
    return q


def move_to_ties(net: IntegerNet, q: Integers) -> IntegerNet:
    """`net` whose branches' last biases lay the first row's sums next to ties of what is joined."""
    behind = net.trace(q[:1])
    layers = list(net.layers)
    for end in (2, 4):
        layer = net.layers[end]
        scale = effective_scale(np.asarray(net.sources[end].scale), layer.weight_scale, np.asarray(layer.output.scale))
        sums = net.accumulate(end, behind[end - 1])[0]
        ties = np.rint((np.floor(sums * scale) + 0.5) / scale).astype(np.int64)
        layers[end] = replace(layer, bias=(layer.bias + ties - sums).astype(np.int32))
    return replace(net, layers=tuple(layers))


@every_exact
@pytest.mark.parametrize("scheme", choose(["int4"], ["int8", "int8pc", "int4", "int8acc", "int8pow2"]))
def test_it_is_the_golden_model_bit_for_bit(scheme: str, backend: str, kernel: str) -> None:
    net = quantize(scheme).net
    q = draw_all(net, COUNT)
    for one in (net, move_to_ties(net, q)):
        expected, found = one.run(q), run_integers(one, q, backend, kernel)
        assert (found != expected).sum() == 0
        assert len(np.unique(expected)) > (8 if scheme == "int4" else 20)


def test_ties_tell_rules_apart() -> None:
    """So that a backend of another rule could not pass."""
    net = quantize("int8pow2").net  # whose ties are exact
    q = draw_all(net, 100)
    tied = move_to_ties(net, q)
    other = tied.with_requantization(Requantization.HALF_AWAY)
    differ = sum(int((tied.trace(q)[end] != other.trace(q)[end]).sum()) for end in (2, 4))
    assert differ > 0


@pytest.mark.needs("cc")
def test_thresholds_in_c() -> None:
    net = quantize("int8").net
    q = draw_all(net, 200)
    found = run_integers(net.with_requantization(Requantization.THRESHOLDS), q, "c")
    np.testing.assert_array_equal(found, net.run(q))


@pytest.mark.parametrize(
    ("backend", "kernel"),
    [
        *(pytest.param("c", kernel, marks=pytest.mark.needs("cc")) for kernel in FLOAT_KERNELS),
        pytest.param("onnx", "cpu", marks=pytest.mark.needs("onnx")),
    ],
)
def test_float_files_agree(backend: str, kernel: str) -> None:
    policy, found = make_parted_policy(), find_backend(backend)
    x = policy.transform.apply(draw_parts(200))
    got = found.start(found.make_files(policy), kernel).run(x)
    np.testing.assert_allclose(got, policy.net.forward(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", [
    "dump", pytest.param("c", marks=pytest.mark.needs("cc")), pytest.param("onnx", marks=pytest.mark.needs("onnx"))
])  # fmt: skip
@pytest.mark.parametrize("kind", [HeadKind.ARGMAX, HeadKind.CLIP])
def test_artefacts_act_as_their_policies(backend: str, kind: HeadKind, tmp_path: Path) -> None:
    policy, seen = quantize("int8", kind), draw_parts(100, seed=5)
    export_policy(policy, tmp_path / "a", draw_parts(50), scheme="int8", source_sha256="0" * 64, backend=backend)
    deployed = load_artefact(tmp_path / "a")
    assert verify(deployed) == 55
    np.testing.assert_array_equal(deployed.act(seen), policy.act(seen))
    np.testing.assert_array_equal(deployed.outputs(seen), policy.outputs(seen))
    found = read_artefact(tmp_path / "a").input
    assert isinstance(found, PartedFormat)
    assert found.widths == (3, 126, 36, 4)
    for text in (tmp_path / "a").glob("policy.h"):
        assert "values 3 to 128" in text.read_text()


@pytest.mark.needs("cc")
@pytest.mark.parametrize("scheme", ["int8", "fp32"])
def test_the_way_from_a_raw_observation_in_c(scheme: str, tmp_path: Path) -> None:
    """`policy_act` of the artefact, which quantizes every part in its own steps, compiled and run."""
    policy = quantize("int8") if scheme == "int8" else make_parted_policy()
    seen = draw_parts(300, seed=6)
    export_policy(policy, tmp_path / "a", seen[:20], scheme=scheme, source_sha256="0" * 64, backend="c")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "observe.h"\nint main(void)\n{\n    float x[POLICY_OBSERVATIONS];\n'
        '    while (fread(x, sizeof x, 1, stdin) == 1)\n        printf("%d\\n", policy_act(x));\n    return 0;\n}\n'
    )
    folder = tmp_path / "a"
    sources = [tmp_path / "main.c", *(folder / name for name in ("policy.c", "observe.c")), *folder.glob("*.S")]
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wa,-I{folder}", f"-I{folder}", "-o", tmp_path / "run"]
    subprocess.run([*command, *sources, "-lm"], check=True)
    done = subprocess.run([tmp_path / "run"], input=seen.tobytes(), capture_output=True, check=True)
    np.testing.assert_array_equal([int(line) for line in done.stdout.split()], policy.act(seen))


@pytest.mark.parametrize("backend", ["litert", "litert-dynamic"])
@pytest.mark.parametrize("scheme", ["fp32", "int8"])
def test_backends_without_a_form_say_so(backend: str, scheme: str) -> None:
    policy: Any = make_parted_policy() if scheme == "fp32" else quantize(scheme)
    with pytest.raises(DeploymentError, match=f"^{backend}: an image among .*; use c, onnx or dump$") as caught:
        find_backend(backend).make_files(policy)
    assert "\n" not in str(caught.value)
    with pytest.raises(DeploymentError, match=r"^fpga: an image among the observation's parts"):
        split(quantize("int8").net)


def test_the_dump_says_what_branches_are() -> None:
    description = json.loads(find_backend("dump").make_files(quantize("int8"))["model.json"])
    assert [entry["layers"] for entry in description["architecture"]["branches"]] == [0, 3, 2, 0]
    assert [entry["width"] for entry in description["architecture"]["input"]["parts"]] == [3, 126, 36, 4]
    assert "side by side" in description["layout"]["branches"]


def test_ports_are_those_of_the_flat_observation() -> None:
    first, last = find_ports(quantize("int8").net)
    assert (first.shape, last.shape) == ((169,), (3,))
