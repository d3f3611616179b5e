"""However a compiler computes sums, in tiles, in vectors of its own or one by one, they are the same."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quarl_bench.backends.base import to_channel_last
from quarl_bench.backends.c.backend import INTEGER_KERNELS, X86, write_model
from quarl_bench.backends.export import run_integers
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet, require_integer
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.system.compiler import compile_library
from quarl_bench.system.processor import list_fast_instructions
from tests.support.sizes import choose, pick_kernels
from tests.support.strategies import inputs_of, make_net, normal

pytestmark = pytest.mark.needs("cc")
SPARED = {"avx512_vnni": "-mno-avx512vnni", "avx512f": "-mno-avx512f"}  # nothing changes where the processor has none
OTHERS = ["-march=x86-64", *(flag for name, flag in SPARED.items() if name in list_fast_instructions())]
PATHS = ["-DQUARL_SCALAR", "-O1", *(OTHERS if X86 else [])]
FLOAT_PATHS = choose(["-DQUARL_STRICT", "-DQUARL_SCALAR"], ["-DQUARL_STRICT", *PATHS])
WHOLE = {"perceptron": (64, 128, 256, 16), "narrow": (24, 128, 16), "images": (32, 64)}  # widths that tiles divide
# And that none does; rows of a whole page, and an odd number of columns.
RAGGED = {"perceptron": (100, 150, 4096, 37, 4), "narrow": (7, 101, 3), "images": (37, 20)}


def make_tiled(kind: str, widths: tuple[int, ...]) -> tuple[PolicyNet, Any]:
    """A policy of these widths, and states."""
    rng = np.random.default_rng(4)
    head = ActionHead(HeadKind.ARGMAX)
    if kind != "images":
        net = make_net(*widths)
        return PolicyNet(ObservationTransform(net.input_shape), net, head), inputs_of(net, 60)
    first, second = widths
    layers = (
        Conv2d(normal(rng, first, 4, 4, 4, spread=0.1), normal(rng, first), 2, Activation.RELU),
        Conv2d(normal(rng, second, first, 2, 2, spread=0.1), normal(rng, second), 1, Activation.RELU),
        Linear(normal(rng, 18, second * 5 * 4, spread=0.1), normal(rng, 18)),
    )
    shape = (4, 14, 12)
    states = rng.integers(0, 256, (60, *shape), dtype=np.uint8)
    return PolicyNet(ObservationTransform(shape, image=True), Net(shape, layers), head), states


def quantize(policy: PolicyNet, states: Any) -> IntegerPolicy:
    return require_integer(policy.quantize(Scheme.parse("int8"), states))


def run(files: dict[str, bytes], flags: tuple[str, ...], x: Any, outputs: int, folder: Path) -> Any:
    """Outputs of a policy's source, compiled with `flags` behind the usual ones."""
    folder.mkdir()
    library = ctypes.CDLL(str(compile_library(files, flags, folder)))
    x = np.ascontiguousarray(to_channel_last(x))
    y = np.empty((len(x), outputs), x.dtype)
    library.policy_run_batch(*(ctypes.c_void_p(array.ctypes.data) for array in (x, y)), ctypes.c_long(len(x)))
    return y


@pytest.mark.parametrize("kernel", pick_kernels(INTEGER_KERNELS))
@pytest.mark.parametrize("widths", [WHOLE, RAGGED], ids=["whole", "ragged"])
@pytest.mark.parametrize("kind", WHOLE)
def test_tiles_of_every_size_are_bit_exact(kind: str, widths: dict[str, Any], kernel: str) -> None:
    net = quantize(*make_tiled(kind, widths[kind])).net
    low, high = net.input.format.minimum, net.input.format.maximum
    q = np.random.default_rng(0).integers(low, high + 1, (200, *net.input_shape))
    q[0], q[1] = low, high
    np.testing.assert_array_equal(run_integers(net, q, "c", kernel), net.run(q))


@pytest.mark.parametrize("flag", PATHS)
@pytest.mark.parametrize("kind", WHOLE)
def test_every_path_gives_the_same_integers(kind: str, flag: str, tmp_path: Path) -> None:
    """Without vectors, without the dot product, barely optimized: what other processors and compilers make of it."""
    policy = quantize(*make_tiled(kind, RAGGED[kind]))
    net, files = policy.net, write_model(policy)
    q = np.random.default_rng(0).integers(-128, 128, (100, *net.input_shape))
    for number, sign in enumerate(("-DQUARL_U8", "-DQUARL_S8")):
        got = run(files, (flag, sign), q.astype(np.int8), net.outputs, tmp_path / str(number))
        np.testing.assert_array_equal(got, net.run(q))


@pytest.mark.parametrize("flag", FLOAT_PATHS)
@pytest.mark.parametrize("widths", [WHOLE, RAGGED], ids=["whole", "ragged"])
@pytest.mark.parametrize("kind", WHOLE)
def test_every_path_gives_close_floats(kind: str, widths: dict[str, Any], flag: str, tmp_path: Path) -> None:
    policy, states = make_tiled(kind, widths[kind])
    x, expected = policy.transform.apply(states).astype(np.float32), policy.outputs(states)
    got = run(write_model(policy), (flag,), x, policy.net.outputs, tmp_path / "a")
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.skipif(not X86, reason="the tiles are of an x86 processor's instructions")
@pytest.mark.parametrize(
    ("flags", "instruction"),
    [
        (("-DQUARL_U8", "-mavx2", "-mavx512vnni"), "vpdpbusd"),
        (("-DQUARL_S8", "-mavx2", "-mavx512vnni"), "vpmaddwd"),
        (("-DQUARL_U8", "-mavx2", "-mno-avx512f"), "vpmaddwd"),
        (("-DQUARL_U8", "-march=x86-64"), ""),
    ],
)
def test_tiles_are_compiled_where_the_instruction_is(flags: tuple[str, ...], instruction: str, tmp_path: Path) -> None:
    """Rows that are folded in registers give them away: what compilers vectorise by themselves adds up row by row."""
    policy = quantize(*make_tiled("perceptron", WHOLE["perceptron"]))
    code = compile_library(write_model(policy), (*flags, "-save-temps"), tmp_path)
    assembly = "".join(path.read_text() for path in code.parent.glob("*policy.s"))
    tiled = "vpunpckldq" in assembly and "#APP" in assembly
    assert tiled == bool(instruction)
    assert instruction in assembly
