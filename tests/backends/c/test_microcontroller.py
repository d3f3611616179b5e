"""The C policy on emulated microcontrollers: the same bytes as here, and it fits."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quarl_bench.backends.export import export_policy
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import Policy, PolicyNet, deployable
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.scheme import Scheme
from tests.support.images import make_image_policy
from tests.support.places import ROOT
from tests.support.strategies import inputs_of, make_net

MCU = ROOT / "hw" / "mcu"
pytestmark = pytest.mark.needs("make", "cc", "arm-none-eabi-gcc", "qemu-system-arm")
NET = make_net(24, 64, 64, 64, 4, activation=Activation.TANH)
LARGE = make_net(24, 256, 256, 4)


def export(folder: Path, net: Net, scheme: str = "int8") -> Path:
    policy = PolicyNet(ObservationTransform(net.input_shape), net, ActionHead(HeadKind.ARGMAX))
    return export_states(folder, policy, inputs_of(net, 100), scheme)


def export_states(folder: Path, policy: PolicyNet, states: np.ndarray[Any, Any], scheme: str = "int8") -> Path:
    quantized: Policy = deployable(policy.quantize(Scheme.parse(scheme), states))
    export_policy(quantized, folder, states, scheme=scheme, source_sha256="0" * 64, backend="c")
    return folder


def make(folder: Path, target: str, *settings: str) -> str:
    command = ["make", "-s", "-f", str(MCU / "Makefile"), f"ARTEFACT={folder}", *settings, target]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def run_here(folder: Path) -> dict[str, Any]:
    subprocess.run(["make", "-s", "harness"], cwd=folder, check=True)
    command = ["./harness", "golden.safetensors", "1"]
    found: dict[str, Any] = json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout)
    return found


def measure_size(folder: Path, *settings: str) -> tuple[int, int]:
    """Bytes of flash and of RAM, of the policy alone."""
    text, data, bss = map(int, make(folder, "size", *settings).splitlines()[-1].split()[:3])
    return text + data, data + bss


@pytest.mark.parametrize("net", [NET, LARGE], ids=["tanh", "large"])
@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m7"])
def test_outputs_are_those_of_this_machine(net: Net, cpu: str, tmp_path: Path) -> None:
    folder = export(tmp_path / "a", net)
    here, there = run_here(folder), json.loads(make(folder, "test", f"CPU={cpu}"))
    assert there["different"] == 0
    assert (there["pairs"], there["fnv1a"]) == (here["pairs"], here["fnv1a"])
    flash, ram = measure_size(folder, f"CPU={cpu}")
    weights = sum(layer.weight.size for layer in net.layers)
    print(f"{cpu}: {there['mean_instructions']:.0f} instructions, {flash} bytes of flash, {ram} of RAM")  # noqa: T201
    assert weights < flash < weights + 16_000
    assert ram < 6_000
    multiplications = sum(layer.weight.size for layer in net.layers)
    assert multiplications < there["mean_instructions"] < 10 * multiplications


def test_images_run_too(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 2, 9, 7), dtype=np.uint8)
    folder = export_states(tmp_path / "a", make_image_policy(), images)
    there = json.loads(make(folder, "test"))
    assert (there["different"], there["fnv1a"]) == (0, run_here(folder)["fnv1a"])


def test_floats_need_the_unit_and_are_close(tmp_path: Path) -> None:
    folder = export(tmp_path / "a", LARGE, "fp32")
    there = json.loads(make(folder, "test", "FLOAT_ABI=hard"))
    assert there["largest_difference"] < 1e-5
    print(f"fp32: {there['mean_instructions']:.0f} instructions")  # noqa: T201
    assert measure_size(folder, "FLOAT_ABI=hard")[0] > 3 * measure_size(export(tmp_path / "b", LARGE))[0]
