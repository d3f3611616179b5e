"""A design in Verilator: compiled once, then fed with observations and compared with the golden model.

Cycles are simulated. Latency counts from the clock edge that takes the first beat of an observation to the one that can
take the action, the interval from one observation's first beat to the next one's, without stalls.
"""

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from quarl_bench.backends.fpga.explore.folding import FoldingPlan
from quarl_bench.backends.fpga.rtl.design import Design
from quarl_bench.backends.fpga.rtl.table import TANH_TOP, WORD_BITS
from quarl_bench.backends.fpga.rtl.top import TOP
from quarl_bench.backends.fpga.rtl.wrapper import AXIS_TOP, StreamShape, axis_streams
from quarl_bench.backends.fpga.tools.library import find_hardware
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.affine import Integers
from quarl_bench.system.programs import Program

TIMEOUT = 1800.0  # seconds for a build or a run
VERILATOR = Program("verilator", "verilator", "5.006")
KINDS: dict[str, dict[str, int]] = {TOP: {}, AXIS_TOP: {"AXIS": 1}, TANH_TOP: {"TANH": 1}}  # the testbench's macros
WARNINGS = ("-Wall", *(f"-Wno-{name}" for name in ("DECLFILENAME", "VARHIDDEN", "WIDTH", "UNUSEDSIGNAL")))


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """What a simulation gave. Cycles are from reset.

    `outputs` (n, outputs) are output integers, or behind a table the bits of float32 actions.
    """

    outputs: Integers
    started: Integers  # cycle that took the first beat of each observation
    shown: Integers  # cycle in which each action, or its first beat, could first be taken
    taken: Integers  # cycle in which it was, to its last beat

    @property
    def latency(self) -> tuple[int, int]:
        """Fewest and most cycles from observation to action."""
        cycles = self.shown - self.started
        return int(cycles.min()), int(cycles.max())

    @property
    def whole(self) -> tuple[int, int]:
        """The same to the last beat of the action, where nothing stalls it."""
        cycles = self.taken - self.started
        return int(cycles.min()), int(cycles.max())

    @property
    def interval(self) -> int | None:
        """Most cycles between two observations; None for a single one."""
        return int(np.diff(self.started).max()) if len(self.started) > 1 else None


class Simulation:
    """A design, compiled. The build is kept in `cache` under the hash of its sources."""

    def __init__(self, design: Design, cache: Path, *, top: str = TOP, trace: bool = False) -> None:
        """Compile `design`, or find it compiled; DeploymentError when Verilator is missing or refuses it.

        `top`: the module, `policy`, `policy_axis` or, of a design with a table, `policy_tanh`. `trace`: for `trace`.
        """
        plan = design.plan
        self._design, self._plan, self._top = design, plan, top
        self._ports = find_streams(design, top)
        taken, given = self._ports
        macros = {"IN_BEATS": taken.beats, "IN_WORDS": taken.words, "OUT_BEATS": given.beats, "OUT_WORDS": given.words}
        options = ["+define+QUARL_TRACE"] if trace else []
        self._binary = build(design, cache, top, "testbench.cpp", macros | KINDS[top], options)

    def run(self, q: Integers, *, gap: float = 0.0, stall: float = 0.0, seed: int = 0) -> SimulatedRun:
        """Feed input integers (n, inputs), offering none in a share `gap` of cycles and taking no output in `stall`."""
        records, _ = self._execute(q, gap, stall, seed)
        return SimulatedRun(
            self._unpack(np.ascontiguousarray(records["words"])),
            *(records["times"][:, column].astype(np.int64) for column in range(3)),
        )

    def trace(self, q: Integers) -> tuple[Integers, ...]:
        """Codes, or sums, (n, neurons) behind each layer, from a build with `trace`."""
        _, text = self._execute(q, 0.0, 0.0, 0)
        links = []
        for unit in self._plan.units:
            beats = [int(word, 16) for word in re.findall(rf"^{unit.name} ([0-9a-f]+)$", text, re.MULTILINE)]
            mask, bits = (1 << unit.stage.out_bits) - 1, unit.stage.out_bits
            fields = [[beat >> (lane * bits) & mask for lane in range(unit.lanes)] for beat in beats]
            values = np.array(fields, dtype=np.int64).reshape(len(q), -1)[:, : unit.stage.outputs]
            links.append(extend_sign(values, bits) if unit.stage.wide else values)
        return tuple(links)

    def _unpack(self, words: NDArray[np.uint32]) -> Integers:
        if self._top == TANH_TOP:
            return words[:, :, 0].astype(np.int64)
        return unpack_outputs(words, self._plan, self._ports[1])

    def _execute(self, q: Integers, gap: float, stall: float, seed: int) -> tuple[NDArray[np.void], str]:
        words = pack_inputs(q, self._plan, self._ports[0])
        given = self._ports[1]
        record = np.dtype([("times", "<u8", (3,)), ("words", "<u4", (given.beats, given.words))])
        with tempfile.TemporaryDirectory() as scratch:
            source, target = Path(scratch) / "inputs", Path(scratch) / "outputs"
            source.write_bytes(words.tobytes())
            rates = [str(round(256 * rate)) for rate in (gap, stall)]
            command = [str(self._binary), str(source), str(target), str(len(q)), *rates, str(seed)]
            # The memories are read from the working folder.
            text = _call(command, self._design.folder, "the simulation failed")
            return np.fromfile(target, dtype=record), text


def check(simulation: Simulation, design: Design, q: Integers, expected: Integers, cache: Path) -> SimulatedRun:
    """Run without stalls and compare; DeploymentError with the first diverging layer and neuron."""
    run = simulation.run(q)
    wrong = (run.outputs != expected).any(1)
    if wrong.any():
        first = int(wrong.argmax())
        where = find_divergence(design, q[first : first + 1], cache)
        raise DeploymentError(
            f"fpga: {int(wrong.sum())} of {len(q)} actions differ from the golden model; observation {first}: {where}"
        )
    return run


def find_divergence(design: Design, q: Integers, cache: Path) -> str:
    """Where the design first leaves the golden model: layer, neuron and values."""
    got = Simulation(design, cache, trace=True).trace(q)
    codes = q
    for stage, counts in zip(design.plan.stages, got, strict=True):
        codes = stage.run(codes)
        if (codes != counts).any():
            row, neuron = (int(i) for i in np.argwhere(codes != counts)[0])
            expected, found = codes[row, neuron] + stage.lowest, counts[row, neuron] + stage.lowest
            return f"{stage.name}, neuron {neuron}: expected {expected}, got {found}"
    return "all layers agree, so what stands behind them does not"


def find_streams(design: Design, top: str) -> tuple[StreamShape, StreamShape]:
    """What a module of `design` takes and gives for one observation."""
    plan, outputs = design.plan, design.plan.stages[-1].outputs
    if top == AXIS_TOP:
        return axis_streams(plan, design.axis_bits)
    given = StreamShape(outputs, WORD_BITS) if top == TANH_TOP else StreamShape(1, outputs * plan.out_bits)
    return StreamShape(plan.in_beats, plan.in_lanes * plan.in_bits), given


def pack_inputs(q: Integers, plan: FoldingPlan, port: StreamShape) -> NDArray[np.uint32]:
    """Beats (n, beats, words of 32 bits) of `port` for input integers (n, inputs)."""
    stage = plan.stages[0]
    if q.ndim != 2 or q.shape[1] != stage.inputs or q.min() < stage.low or q.max() > stage.high:
        raise DeploymentError(
            f"fpga: inputs of shape {q.shape} for (n, {stage.inputs}) integers in [{stage.low}, {stage.high}]"
        )
    padded = np.pad(q, ((0, 0), (0, plan.in_beats * plan.in_lanes - q.shape[1])))
    bits = ((padded[..., None] >> np.arange(plan.in_bits)) & 1).reshape(len(q), plan.in_beats, -1).astype(np.uint8)
    if plan.in_beats == 1:  # one string, cut into the port's beats
        bits = np.pad(bits[:, 0], ((0, 0), (0, port.beats * port.width - bits.shape[2])))
        bits = bits.reshape(len(q), port.beats, port.width)
    filled = np.pad(bits, ((0, 0), (0, 0), (0, 32 * port.words - bits.shape[2])))
    return np.packbits(filled, axis=-1, bitorder="little").view("<u4")


def unpack_outputs(words: NDArray[np.uint32], plan: FoldingPlan, port: StreamShape) -> Integers:
    """Output integers (n, outputs) from beats (n, beats, words of 32 bits) of `port`."""
    last, bits = plan.stages[-1], plan.out_bits
    string = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")[:, :, : port.width]
    raw = string.reshape(len(words), -1)[:, : last.outputs * bits].reshape(len(words), last.outputs, bits)
    values = raw.astype(np.int64) @ (np.int64(1) << np.arange(bits))
    return extend_sign(values, bits) if plan.out_signed else values


def extend_sign(values: Integers, bits: int) -> Integers:
    """What fields of `bits` bits say in two's complement."""
    return np.where(values >> (bits - 1) == 1, values - (1 << bits), values)


def build(
    design: Design, cache: Path, top: str, testbench: str, macros: dict[str, int], options: Sequence[str] = ()
) -> Path:
    """The binary of a module of `design` in one of hw/fpga/sim's testbenches, compiled or found in `cache`."""
    source = find_hardware() / "sim" / testbench
    files = [*sorted(design.folder.glob("**/*.v")), source]
    content = hashlib.sha256(repr((top, macros, options, [file.name for file in files])).encode())
    for file in files:
        content.update(file.read_bytes())
    folder = cache / "verilator" / content.hexdigest()[:32]
    binary = folder / f"V{top}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"), tempfile.TemporaryDirectory(dir=folder) as scratch:
        if binary.exists():
            return binary
        flags = " ".join(["-O1", *(f"-D{name}={value}" for name, value in macros.items())])
        command = [
            *(require_verilator(), "--cc", "--exe", "--build", "-O3", *WARNINGS, *options, "--top-module", top),
            *("-CFLAGS", flags, "-LDFLAGS", "-lutil", "--Mdir", scratch, "-Irtl"),
            *dict.fromkeys((f"{TOP}.v", f"{top}.v")),
            str(source),
        ]
        _call(command, design.folder, "verilator refuses the design")
        (Path(scratch) / binary.name).replace(binary)
    return binary


def require_verilator() -> str:
    """The program's path; DeploymentError with the remedy when it is not installed, or too old."""
    return VERILATOR.find("fpga: to simulate")


def _call(command: list[str], folder: Path, failure: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeploymentError(f"fpga: {failure} ({error}); run it again, or in {folder}") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        reason = next((line for line in lines if "rror" in line), lines[-1] if lines else f"code {done.returncode}")
        raise DeploymentError(f"fpga: {failure} ({reason.strip()}); see {folder}")
    return done.stdout
