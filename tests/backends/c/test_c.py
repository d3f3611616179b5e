"""The C policy: no heap, no library, no floats behind its input, and the same numbers wherever it is compiled."""

import ctypes
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.backends.c.backend import FLOAT_KERNELS, INTEGER_KERNELS, CRunner, write_model
from quarl_bench.backends.deployed import load_artefact, verify
from quarl_bench.backends.export import export_policy, find_divergence, run_integers
from quarl_bench.backends.registry import find_backend
from quarl_bench.errors import DeploymentError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.masks import add_masks
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, Policy, PolicyNet, require_integer
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.quantization.parameters import ActivationFormat
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.system.compiler import compile_library
from tests.support.choices import draw_masks
from tests.support.images import make_image_policy
from tests.support.layers import draw_integers, make_layer
from tests.support.sizes import choose, draw_examples, pick_kernels
from tests.support.strategies import convolutions, inputs_of, make_net, make_policy, normal, perceptrons

pytestmark = pytest.mark.needs("cc")
plain = pytest.mark.usefixtures("plain_c")
STATES = normal(np.random.default_rng(0), 300, 4, spread=2.0)
SHA256 = "0" * 64


def quantize(policy: PolicyNet, scheme: str = "int8", states: Any = STATES) -> IntegerPolicy:
    return require_integer(policy.quantize(Scheme.parse(scheme), states))


def as_policy(net: IntegerNet) -> IntegerPolicy:
    image = len(net.input_shape) == 3
    return IntegerPolicy(ObservationTransform(net.input_shape, image=image), net, ActionHead(HeadKind.ARGMAX))


def export(policy: Any, folder: Path, scheme: str = "int8", states: Any = STATES) -> Path:
    export_policy(policy, folder, states, scheme=scheme, source_sha256=SHA256, backend="c")
    return folder


def load(policy: IntegerPolicy, tmp_path: Path) -> ctypes.CDLL:
    tmp_path.mkdir(exist_ok=True)
    return ctypes.CDLL(str(compile_library(write_model(policy), (), tmp_path)))


# --- numbers ---------------------------------------------------------------------------------------------------------


@given(
    net=st.one_of(perceptrons(), convolutions()),
    scheme=st.sampled_from(["int8", "int8pow2", "int8sympc", "int5", "int2wide"]),
    kernel=st.sampled_from(sorted(INTEGER_KERNELS)),
    rule=st.sampled_from([Requantization.FP32_RNE, Requantization.THRESHOLDS]),
)
@draw_examples(25)
def test_any_net_is_bit_exact(net: Net, scheme: str, kernel: str, rule: Requantization) -> None:
    image = len(net.input_shape) == 3
    inputs = np.abs(inputs_of(net, 40)) if image else inputs_of(net, 40)
    portable = PolicyNet(ObservationTransform(net.input_shape, image=image), net, ActionHead(HeadKind.ARGMAX))
    states = np.clip(inputs * 80, 0, 255).astype(np.uint8) if image else inputs
    integer = quantize(portable, scheme, states).net.with_requantization(rule)
    low, high = integer.input.format.minimum, integer.input.format.maximum
    q = np.random.default_rng(0).integers(low, high + 1, (200, *net.input_shape))
    got = run_integers(integer, q, "c", kernel)
    assert (got == integer.run(q)).all(), find_divergence(integer, q, "c", kernel)


@pytest.mark.parametrize("kernel", pick_kernels(INTEGER_KERNELS))
def test_unsigned_and_narrow_activations(kernel: str) -> None:
    rng = np.random.default_rng(5)
    for bits, signed, narrow in ((8, False, False), (4, False, False), (3, True, True), (8, True, True)):
        integers = IntegerFormat(bits, signed, narrow)
        source = ActivationFormat(integers, np.float32(0.05), integers.minimum + 2)
        target = ActivationFormat(integers, np.float32(0.3), integers.maximum - 1)
        weight, bias = rng.integers(-128, 128, (20, 31)), rng.integers(-2000, 2000, 20)
        net = make_layer(weight, bias, rng.uniform(0.01, 0.05, 20), target, source=source)
        q = rng.integers(integers.minimum, integers.maximum + 1, (300, 31))
        np.testing.assert_array_equal(run_integers(net, q, "c", kernel), net.run(q))


@pytest.mark.parametrize("kernel", INTEGER_KERNELS)
def test_any_scale_rounds_as_float32_does(kernel: str) -> None:
    """Accumulators on, beside and between ties, over every magnitude of scale and of accumulator."""
    rng = np.random.default_rng(6)
    outputs = choose(2048, 8192)
    for round_ in range(3):
        source, target = np.float32(2.0**-5), np.float32(2.0**-3)
        wanted = np.exp2(rng.uniform(-40, 10, outputs)).astype(np.float32)
        if round_ == 0:
            wanted = np.exp2(np.rint(np.log2(wanted))).astype(np.float32)
        elif round_ == 1:  # few bits: products with many exact ties
            wanted = (rng.integers(1, 64, outputs) * np.exp2(rng.integers(-30, 2, outputs))).astype(np.float32)
        weight_scale = (wanted * target / source).astype(np.float32)
        scale = (source * weight_scale) / target
        ties = rng.integers(-140, 140, outputs) + 0.5
        near = np.rint(ties / scale.astype(np.float64)) + rng.choice([-1, 0, 0, 0, 1], outputs)
        anywhere = np.sign(ties) * np.exp2(rng.uniform(0, 31, outputs))
        bias = np.where(np.abs(near) < 2**30, near, anywhere)
        bias = np.clip(np.rint(bias), -(1 << 30), 1 << 30).astype(np.int64)
        output = ActivationFormat(IntegerFormat(8), target, int(rng.integers(-128, 128)))
        net = make_layer(
            np.zeros((outputs, 1)), bias, weight_scale, output, source=ActivationFormat(IntegerFormat(8), source, 0)
        )
        q = draw_integers(rng, 1, net)
        np.testing.assert_array_equal(run_integers(net, q, "c", kernel), net.run(q))


@pytest.mark.parametrize("kernel", FLOAT_KERNELS)
def test_float_policies_are_close(kernel: str, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 2, 9, 7), dtype=np.uint8)
    for name, policy, states in (("a", make_policy(), STATES), ("b", make_image_policy(), images)):
        deployed = load_artefact(export(policy, tmp_path / name, "fp32", states), kernel)
        verify(deployed)
        expected = policy.outputs(states)
        np.testing.assert_allclose(deployed.outputs(states), expected, atol=1e-5 * max(1, np.abs(expected).max()))


def test_large_weights_are_a_file_and_the_same_numbers(tmp_path: Path) -> None:
    net = make_net(24, 600, 200, 4)
    portable = PolicyNet(ObservationTransform((24,)), net, ActionHead(HeadKind.ARGMAX))
    policy = quantize(portable, "int8", inputs_of(net, 200))
    files = write_model(policy)
    assert len(files["weights.bin"]) >= 600 * 200
    assert len(files["policy.c"]) < 300_000
    q = draw_integers(np.random.default_rng(0), 500, policy.net)
    for kernel in INTEGER_KERNELS:
        np.testing.assert_array_equal(run_integers(policy.net, q, "c", kernel), policy.net.run(q))
    assert "weights.bin" not in write_model(quantize(make_policy()))


@plain
def test_a_layer_with_a_large_bias_builds() -> None:
    """Which then lies in the file, for both signs of the kernels' inputs."""
    net = make_net(6, 8_200, 2)
    policy = quantize(
        PolicyNet(ObservationTransform((6,)), net, ActionHead(HeadKind.ARGMAX)), "int8", inputs_of(net, 50)
    )
    q = draw_integers(np.random.default_rng(0), 3, policy.net)
    for kernel in INTEGER_KERNELS:
        np.testing.assert_array_equal(run_integers(policy.net, q, "c", kernel), policy.net.run(q))


def test_sums_beyond_32_bits_are_refused() -> None:
    layer = make_layer(
        np.full((1, 70_000), 127), np.zeros(1), np.float32([1e-6]), ActivationFormat(IntegerFormat(8), np.float32(1), 0)
    )
    with pytest.raises(DeploymentError, match=r"c: layer 0 sums up to \d+, beyond 32 bits"):
        write_model(as_policy(layer))


# --- both ends -------------------------------------------------------------------------------------------------------


@plain
@pytest.mark.parametrize("normalized", [False, True])
def test_observations_become_the_golden_inputs(normalized: bool, tmp_path: Path) -> None:
    policy = quantize(make_policy(normalized=normalized))
    library = load(policy, tmp_path)
    rng = np.random.default_rng(1)
    wild = rng.choice([np.inf, -np.inf, 1e30, -1e30, 0.0, 1e-30, -0.0, 3.0], (200, 4))
    scale = np.float32(policy.net.input.scale)
    ties = (rng.integers(-140, 140, (2000, 4)) + 0.5) * scale
    for observations in (STATES, wild.astype(np.float32), ties.astype(np.float32)):
        expected = policy.net.input.quantize(policy.transform.apply(observations))
        got = np.empty(expected.shape, np.int8)
        for row, out in zip(np.ascontiguousarray(observations), got, strict=True):
            assert library.policy_observe(row.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p)) == 0
        np.testing.assert_array_equal(got, expected)
    broken, out = np.float32([0, np.nan, 0, 0]), np.empty(4, np.int8)
    assert library.policy_observe(broken.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p)) == -1


@plain
def test_pixels_become_the_golden_inputs(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 2, 9, 7), dtype=np.uint8)
    policy = quantize(make_image_policy(), "int8", images)
    library = load(policy, tmp_path)
    pixels = np.ascontiguousarray(np.moveaxis(images[0], 0, -1))
    got = np.empty(pixels.shape, np.int8)
    assert library.policy_observe(pixels.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p)) == 0
    expected = policy.net.input.quantize(policy.transform.apply(images[:1]))[0]
    np.testing.assert_array_equal(got, np.moveaxis(expected, 0, -1))


def make_place(policy: Policy) -> Any:
    """Where C writes an action of two numbers."""
    return np.empty(2, np.int32 if policy.head.discrete else np.float32)


@plain
@pytest.mark.parametrize("kind", HeadKind)
def test_one_call_is_the_whole_policy(kind: HeadKind, tmp_path: Path) -> None:
    policy = quantize(make_policy(kind, normalized=True))
    library = load(policy, tmp_path)
    for row, expected in zip(STATES[:100], policy.act(STATES[:100]), strict=True):
        if kind is HeadKind.ARGMAX:
            assert library.policy_act(row.ctypes.data_as(ctypes.c_void_p)) == expected
            continue
        action = make_place(policy)
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (row, action))
        assert library.policy_act(*pointers) == 0
        np.testing.assert_array_equal(action, expected)
    broken = np.float32([0, np.nan, 0, 0])
    action = np.empty(2, np.float32)
    assert library.policy_act(*(array.ctypes.data_as(ctypes.c_void_p) for array in (broken, action))) == -1


@plain
@pytest.mark.parametrize("integers", [True, False], ids=["integers", "floats"])
def test_statistics_of_any_size_stand_in_the_file_that_uses_them(integers: bool, tmp_path: Path) -> None:
    """Large arrays of weights lie in a binary file, which observe.c does without."""
    rng, size = np.random.default_rng(0), 5000
    layer = Linear(rng.normal(size=(2, size)).astype(np.float32) / 50, np.zeros(2, np.float32))
    statistics = Normalization(rng.normal(size=size), rng.uniform(0.5, 2, size), 10.0, 1e-8)
    policy = PolicyNet(
        ObservationTransform((size,), normalization=statistics), Net((size,), (layer,)), ActionHead(HeadKind.ARGMAX)
    )
    states = rng.normal(size=(20, size)).astype(np.float32)
    played: Any = quantize(policy, states=states) if integers else policy
    library = ctypes.CDLL(str(compile_library(write_model(played), (), tmp_path)))
    found = [library.policy_act(row.ctypes.data_as(ctypes.c_void_p)) for row in states]
    assert found == played.act(states).tolist()


@pytest.mark.parametrize("kernel", FLOAT_KERNELS)
@pytest.mark.parametrize("kind", [*HeadKind, "limited", "image"])
def test_one_call_is_the_whole_policy_in_floats_too(kind: str, kernel: str, tmp_path: Path) -> None:
    """Also where the compiler may assume that there is no NaN."""
    if kind == "image":
        policy, states = make_image_policy(), np.random.default_rng(0).integers(0, 256, (40, 2, 9, 7), dtype=np.uint8)
        rows = np.ascontiguousarray(np.moveaxis(states, 1, -1))
    else:
        policy = make_policy(HeadKind.TANH if kind == "limited" else HeadKind(kind), normalized=True)
        if kind == "limited":
            policy = replace(policy, head=replace(policy.head, mean_limit=0.3))
        states = rows = STATES[:100]
    files = write_model(policy)
    library = ctypes.CDLL(str(compile_library(files, FLOAT_KERNELS[kernel], tmp_path)))
    for row, expected in zip(rows, policy.act(states), strict=True):
        action = make_place(policy)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (row, action)]
        code = library.policy_act(*pointers[: 1 if policy.head.single else 2])
        if policy.head.single:
            assert code == expected
        else:
            assert code == 0
            np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-6)
    if kind != "image":
        broken = np.float32([0, np.nan, 0, 0])
        assert library.policy_act(*(array.ctypes.data_as(ctypes.c_void_p) for array in (broken, np.empty(2)))) == -1


@plain
@pytest.mark.parametrize("kind", HeadKind)
def test_actions_are_those_of_the_head(kind: HeadKind, tmp_path: Path) -> None:
    policy = quantize(make_policy(kind))
    library = load(policy, tmp_path)
    outputs = np.random.default_rng(2).integers(-128, 128, (500, policy.net.outputs)).astype(np.int8)
    expected = policy.head.act(policy.net.output.dequantize(outputs.astype(np.int64)))
    for row, action in zip(outputs, expected, strict=True):
        pointer = row.ctypes.data_as(ctypes.c_void_p)
        if kind is HeadKind.ARGMAX:
            assert library.policy_argmax(pointer) == action
            continue
        got = make_place(policy)
        choose = library.policy_choose if policy.head.discrete else library.policy_action
        choose(pointer, got.ctypes.data_as(ctypes.c_void_p))
        np.testing.assert_array_equal(got, action)


@plain
@pytest.mark.parametrize("kind", [HeadKind.ARGMAX, HeadKind.PARTS, HeadKind.BITS])
@pytest.mark.parametrize("scheme", ["int8", "int4acc", None], ids=["integers", "wide", "floats"])
def test_a_mask_is_obeyed_and_no_mask_allows_everything(kind: HeadKind, scheme: str | None, tmp_path: Path) -> None:
    free = make_policy(kind)
    policy = replace(free, head=replace(free.head, masked=True))
    played: Any = quantize(policy, scheme) if scheme else policy
    library = ctypes.CDLL(str(compile_library(write_model(played), (), tmp_path)))
    sizes = policy.head.list_choices(policy.net.outputs)
    masks = draw_masks(np.random.default_rng(3), 200, sizes)
    for masked in (True, False):
        expected = played.act(add_masks(STATES[:200], masks) if masked else STATES[:200]).reshape(200, -1)
        for row, mask, action in zip(STATES[:200], masks, expected, strict=True):
            got = np.full(len(sizes), -1, np.int32)
            arrays = (row, mask.astype(np.uint8), got)
            pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
            assert library.policy_act(pointers[0], pointers[1] if masked else None, pointers[2]) == 0
            np.testing.assert_array_equal(got, action)


# --- what the program is made of ------------------------------------------------------------------------------------


def compile_object(files: dict[str, bytes], folder: Path, *flags: str, compiler: str = "cc") -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *flags, "-c", "policy.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "policy.o"


def list_undefined(path: Path, nm: str = "nm") -> set[str]:
    out = subprocess.run([nm, "-u", str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines()} - {"_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}


@pytest.mark.parametrize("flags", [("-O2",), ("-O3", "-DQUARL_S8"), ("-Os",)])
@pytest.mark.parametrize("images", [False, True])
def test_the_policy_needs_no_library(images: bool, flags: tuple[str, ...], tmp_path: Path) -> None:
    states = np.random.default_rng(0).integers(0, 256, (40, 2, 9, 7), dtype=np.uint8) if images else STATES
    policy = quantize(make_image_policy() if images else make_policy(HeadKind.TANH), "int8", states)
    # Compilers may call memcpy and memset in any program, freestanding ones included.
    assert list_undefined(compile_object(write_model(policy), tmp_path / "a", *flags)) <= {"memcpy", "memset"}


@pytest.mark.needs("arm-none-eabi-gcc")
def test_a_processor_without_floats_computes_none(tmp_path: Path) -> None:
    files = write_model(quantize(make_policy(HeadKind.TANH, normalized=True)))
    flags = ("-O2", "-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft")
    built = compile_object(files, tmp_path / "a", *flags, compiler="arm-none-eabi-gcc")
    floats = {name for name in list_undefined(built, "arm-none-eabi-nm") if name.startswith(("__aeabi_f", "__aeabi_d"))}
    assert floats == set()
    # The same question finds the floats of the formula, so that it can fail.
    other = compile_object(files, tmp_path / "b", *flags, "-DQUARL_FLOAT", compiler="arm-none-eabi-gcc")
    assert any(name.startswith("__aeabi_f") for name in list_undefined(other, "arm-none-eabi-nm"))


def test_fast_math_is_refused_where_it_would_break_rounding(tmp_path: Path) -> None:
    files = write_model(quantize(make_policy()))
    with pytest.raises(DeploymentError, match=r"c: .* refuses .*no -ffast-math.*; name another compiler"):
        compile_library(files, ("-DQUARL_FLOAT", "-ffast-math"), tmp_path)


@pytest.mark.needs("make")
@pytest.mark.parametrize("scheme", ["int8", "fp32"])
def test_make_test_runs_the_golden_pairs(scheme: str, tmp_path: Path) -> None:
    policy = quantize(make_policy()) if scheme == "int8" else make_policy()
    folder = export(policy, tmp_path / "a", scheme)
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    done = subprocess.run(
        ["make", "-s", "test"], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == (4 if scheme == "int8" else 2)
    assert all(line["pairs"] >= 256 and line["mean_ns"] > 0 for line in lines)
    if scheme == "int8":
        assert {(line["different"], line["fnv1a"]) for line in lines} == {(0, lines[0]["fnv1a"])}
    golden = bytearray((folder / "golden.safetensors").read_bytes())
    outputs = json.loads(golden[8 : 8 + int.from_bytes(golden[:8], "little")])["outputs"]["data_offsets"][0]
    golden[8 + int.from_bytes(golden[:8], "little") + outputs + 5] ^= 0x40
    (folder / "golden.safetensors").write_bytes(golden)
    failed = subprocess.run(
        ["make", "-s", "test"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert failed.returncode != 0
    if scheme == "int8":
        first = json.loads(failed.stdout.splitlines()[0])
        assert (first["different"], first["first"]) == (1, {"pair": 2, "output": 1})


@plain
def test_a_missing_compiler_and_damage_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = export(quantize(make_policy()), tmp_path / "a")
    with pytest.raises(DeploymentError, match="c: unknown kernel 'xnnpack'; known are "):
        load_artefact(folder, "xnnpack")
    files = write_model(quantize(make_policy()))
    with pytest.raises(DeploymentError, match=r"refuses policy\.c.*; export again"):
        CRunner(files | {"policy.c": b"int main("}, "u8xs8")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(DeploymentError, match="c: no C compiler") as caught:
        load_artefact(folder)
    assert "\n" not in str(caught.value)
    (folder / "kernels.h").write_text("")
    with pytest.raises(DeploymentError, match=r"kernels\.h: its sha256 is not the manifest's"):
        load_artefact(folder)


@plain
def test_other_sign_in_the_manifest_is_refused(tmp_path: Path) -> None:
    artefact = load_artefact(export(quantize(make_policy()), tmp_path / "a")).artefact
    assert artefact.input is not None
    moved = replace(artefact, input=replace(artefact.input, zero_point=artefact.input.zero_point + 1))
    from quarl_bench.backends.deployed import start

    with pytest.raises(DeploymentError, match="the model's input is int8 of scale"):
        start(moved, find_backend("c").kernels[0])


@pytest.mark.parametrize("kernel", FLOAT_KERNELS)
def test_loading_a_policy_leaves_subnormal_numbers_to_the_process(kernel: str) -> None:
    CRunner(write_model(make_policy()), kernel)
    smallest = np.array([1e-45], dtype=np.float32)
    assert (smallest * np.float32(2) > 0).all()
