"""A C artefact compiled for a Cortex-M4: what it takes there, and what an inference costs, by an emulator's count."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from safetensors.numpy import load_file, save_file

from quarl_bench.backends.files import GOLDEN
from quarl_bench.backends.fpga.tools.library import find_hardware
from quarl_bench.errors import BoardError
from quarl_bench.system.programs import Program

CORE = "cortex-m4"
PROGRAMS = (
    Program("make", "make"),
    Program("arm-none-eabi-gcc", "gcc-arm-none-eabi"),
    Program("qemu-system-arm", "qemu-system-arm"),
)
SECONDS = 600.0  # for a compiler
FLOATS = "FLOAT_ABI=hard"  # the core's own unit; integer policies need none


def describe_microcontroller() -> str:
    """What decides the counts beside an artefact: the tools' versions and our files; BoardError when one is missing."""
    versions = [program.describe(CORE, BoardError) for program in PROGRAMS]
    return "\n".join([CORE, *versions, *(file.read_text() for file in sorted(find_hardware("mcu").iterdir()))])


def make_for_microcontroller(artefact: Path, target: str, *settings: str) -> str:
    """What a target of hw/mcu's Makefile prints; BoardError when a tool is missing or refuses."""
    for program in PROGRAMS:
        program.find(CORE, BoardError)
    makefile = find_hardware("mcu") / "Makefile"
    command = ["make", "-s", "-f", str(makefile), f"ARTEFACT={artefact}", f"CPU={CORE}", *settings, target]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise BoardError(f"{CORE}: make {target} took longer than {SECONDS:.0f} s; prove a smaller policy") from error
    if done.returncode:
        complaint = [line for line in done.stderr.splitlines() if "rror" in line or "region" in line] or ["no word"]
        raise BoardError(f"{CORE}: make {target} failed: {complaint[0].strip()}; export again")
    return done.stdout


def measure_flash(artefact: Path, *settings: str) -> int:
    """Bytes of code and constants of the policy alone; BoardError without the compiler."""
    text, data = map(int, make_for_microcontroller(artefact, "size", *settings).splitlines()[-1].split()[:2])
    return text + data


def count_instructions(artefact: Path, calls: int, *settings: str) -> float:
    """Instructions of one inference, the mean of `calls` on one golden pair; BoardError without the emulator.

    An emulator counts instructions, not cycles: loads and multiplications that wait are not in them.
    """
    with tempfile.TemporaryDirectory(prefix="quarl-mcu-") as scratch:
        folder = Path(scratch) / "policy"
        shutil.copytree(artefact, folder)
        pairs = load_file(folder / GOLDEN)
        save_file({name: values[:1] for name, values in pairs.items()}, folder / GOLDEN)
        report = json.loads(make_for_microcontroller(folder, "test", f"CALLS={calls}", *settings))
    return float(report["mean_instructions"])
