"""Every way to execute an integer policy here: who computes, how large it is there, and what an inference costs."""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends import export
from quarl_bench.backends.base import CompiledCode, count_parameters, find_ports
from quarl_bench.backends.c.backend import measure_code
from quarl_bench.backends.c.microcontroller import count_instructions as count_on_microcontroller
from quarl_bench.backends.c.microcontroller import measure_flash
from quarl_bench.backends.deployed import DeployedNet, DeployedPolicy, time_calls
from quarl_bench.backends.fpga.explore.explorer import explore, fits
from quarl_bench.backends.fpga.explore.folding import FoldingPlan
from quarl_bench.backends.fpga.explore.part import PARTS
from quarl_bench.backends.fpga.rtl.design import Design, write_design
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.fpga.tools.simulation import Simulation, find_divergence
from quarl_bench.backends.registry import find_backend, list_timed
from quarl_bench.boards.emulated import COMPILER, count_instructions
from quarl_bench.errors import DeploymentError, SpecError
from quarl_bench.policies.policy import IntegerPolicy, Policy, States, Visited
from quarl_bench.policies.storage.integers import integer_tensors
from quarl_bench.prove.aware import AwareNet
from quarl_bench.prove.served import ARM, serve_on_arm, serve_on_microcontroller
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.scheme import Family, Scheme
from quarl_bench.spec import Source

CALLS = 300
PRODUCTS = 1024  # in one cycle of a design: of more, Verilator compiles for minutes
INSTRUCTIONS = 20  # calls over which an emulator's instructions are averaged


@dataclass(frozen=True)
class InferenceCost:
    """Of one inference. Sources never mix: microseconds are measured here, instructions emulated, cycles simulated."""

    value: float
    unit: str
    source: Source


@dataclass(frozen=True, eq=False)
class ProofSubject:
    """The policy to be proven. `scheme` is the one it was trained or quantized with, `states` are raw observations."""

    policy: IntegerPolicy
    scheme: str
    sha256: str
    states: States
    cache: Path

    @property
    def deployed_scheme(self) -> str:
        """The name of its arithmetic: int4 for qat4."""
        scheme = Scheme.parse(self.scheme)
        return f"int{scheme.bit_width}" if scheme.family is Family.AWARE else self.scheme


@dataclass(frozen=True, eq=False)
class Execution:
    """The policy in a backend. `locate` names the first layer and element that differ for an input (1, *shape)."""

    policy: Policy
    how: str
    bytes: int
    measure_cost: Callable[[], InferenceCost]
    locate: Callable[[Integers], str | None]


Open = Callable[[ProofSubject, ExitStack], Execution]


def open_aware(subject: ProofSubject, _: ExitStack) -> Execution:
    """The forward of quantization-aware training; SpecError for a policy that was not trained so."""
    scheme = Scheme.parse(subject.scheme)
    if scheme.family is not Family.AWARE:
        raise SpecError(f"qat: {scheme.name} is not of quantization-aware training (qat2 .. qat8)")
    policy = subject.policy
    net = AwareNet(policy.net, scheme)
    size = np.dtype(np.float32).itemsize * count_parameters(policy)
    aware = Policy(policy.transform, net, policy.head)
    return Execution(
        aware, "torch float32", size, partial(_time, subject, aware), lambda q: _compare(policy, q, net.trace(q))
    )


def open_golden(subject: ProofSubject, _: ExitStack) -> Execution:
    """The golden model itself, which all others are compared with."""
    size = sum(array.nbytes for array in integer_tensors(subject.policy).values())
    return Execution(subject.policy, "NumPy", size, partial(_time, subject, subject.policy), lambda _: None)


def open_backend(backend: str, subject: ProofSubject, stack: ExitStack) -> Execution:
    """An artefact in its runtime on this machine."""
    deployed, folder = _export(backend, subject, stack)
    runtime, kernel = deployed.artefact.runtime, deployed.net.runner.kernel
    size, compile_code = len(deployed.artefact.model), find_backend(backend).compile_code
    measure_cost = partial(_time, subject, deployed)
    if compile_code is not None:
        code = compile_code(folder, kernel)
        size, measure_cost = code.bytes, partial(_time_code, code)
    locate = partial(export.find_divergence, subject.policy.net, backend=backend)
    how = f"{runtime.name} {runtime.version}, {kernel}"
    return Execution(deployed, how, size, measure_cost, locate)


def open_arm(subject: ProofSubject, stack: ExitStack) -> Execution:
    """The C policy in an emulated 64-bit ARM process."""
    _, folder = _export("c", subject, stack)
    runner = stack.enter_context(serve_on_arm(folder, find_ports(subject.policy.net)))
    size = measure_code([COMPILER, "-O3", "-DQUARL_S8"], COMPILER.replace("gcc", "size"), folder)

    def measure_cost() -> InferenceCost:
        return InferenceCost(count_instructions(ARM, folder), "instructions", Source.EMULATED)

    return _wrap(subject, runner, size, measure_cost)


def open_microcontroller(subject: ProofSubject, stack: ExitStack) -> Execution:
    """The C policy on an emulated Cortex-M4."""
    _, folder = _export("c", subject, stack)
    runner = stack.enter_context(serve_on_microcontroller(folder, find_ports(subject.policy.net)))

    def measure_cost() -> InferenceCost:
        return InferenceCost(count_on_microcontroller(folder, INSTRUCTIONS), "instructions", Source.EMULATED)

    return _wrap(subject, runner, measure_flash(folder), measure_cost)


def open_design(subject: ProofSubject, stack: ExitStack) -> Execution:
    """The design in Verilator: the fastest folding of few products a cycle that a part holds."""
    plan, part = _choose_plan(subject)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quarl-prove-"))) / "design"
    design = write_design(plan, folder)
    runner = DesignRunner(design, subject)
    memory = sum(rom.width * rom.depth for unit in plan.units for rom in unit.roms)

    def measure_cost() -> InferenceCost:
        assert not isinstance(subject.states, Visited)  # noqa: S101 (no design has a state)
        q = subject.policy.net.input.quantize(subject.policy.transform.apply(subject.states[:1]))
        return InferenceCost(runner.simulation.run(q).latency[0], "cycles", Source.SIMULATED)

    net = DeployedNet(runner, subject.policy.net.input, subject.policy.net.output)
    policy = Policy(subject.policy.transform, net, subject.policy.head)
    how = f"Verilator, lanes {'-'.join(map(str, plan.folding.lanes))} for {part}"
    return Execution(policy, how, -(-memory // 8), measure_cost, lambda q: find_divergence(design, q, subject.cache))


class DesignRunner:
    """A simulated design as a runner."""

    kernel = "verilator"

    def __init__(self, design: Design, subject: ProofSubject) -> None:
        """Compile it; DeploymentError without Verilator."""
        self.simulation = Simulation(design, subject.cache)
        self.input, self.output = find_ports(subject.policy.net)

    def run(self, x: NDArray[Any]) -> NDArray[Any]:
        """Outputs of a batch, as the protocol says."""
        return self.simulation.run(x.astype(np.int64)).outputs.astype(self.output.dtype)


# What is no backend: the golden model, which the others are compared with, and training's forward; other hardware.
GOLDEN = "integer"
OURS: dict[str, Open] = {GOLDEN: open_golden, "qat": open_aware}
HARDWARE: dict[str, Open] = {
    "c-arm": open_arm,
    "c-cortex-m4": open_microcontroller,
    "rtl": open_design,
}


def list_executors() -> dict[str, Open]:
    """Every executor by name: ours, every backend that runs integers on this machine, and other hardware."""
    backends = {backend.name: partial(open_backend, backend.name) for backend in list_timed()}
    return OURS | backends | HARDWARE


def _export(backend: str, subject: ProofSubject, stack: ExitStack) -> tuple[DeployedPolicy, Path]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quarl-prove-"))) / "artefact"
    deployed = export.export_policy(
        subject.policy,
        folder,
        subject.states,
        scheme=subject.deployed_scheme,
        source_sha256=subject.sha256,
        backend=backend,
    )
    return deployed, folder


def _wrap(subject: ProofSubject, runner: Any, size: int, measure_cost: Callable[[], InferenceCost]) -> Execution:
    """What runs the C policy elsewhere, between this machine's ends of the policy."""
    golden = subject.policy
    net = DeployedNet(runner, golden.net.input, golden.net.output, export.find_initial_state(golden))
    policy = Policy(golden.transform, net, golden.head)
    return Execution(policy, runner.kernel, size, measure_cost, lambda q: _compare(golden, q, (net.run(q),)))


def _compare(policy: IntegerPolicy, q: Integers, got: Sequence[Integers]) -> str | None:
    """The first element in which `got`, integers behind the last layers, differs from the golden model's."""
    expected = policy.net.trace(q)[-len(got) :]
    first = len(policy.net.layers) - len(got)
    for index, (right, found) in enumerate(zip(expected, got, strict=True), first):
        if (right != found).any():
            place = tuple(int(i) for i in np.argwhere(right != found)[0])
            return f"layer {index}, element {place[1:]}: expected {right[place]}, got {found[place]}"
    return None


def _choose_plan(subject: ProofSubject) -> tuple[FoldingPlan, str]:
    candidates = explore(split(subject.policy.net), PARTS["xc7a15t"])
    small = [c for c in candidates if sum(unit.multipliers for unit in c.plan.units) <= PRODUCTS]
    for part in PARTS.values():
        for candidate in small:
            if fits(candidate.resources, part):
                return candidate.plan, part.name
    raise DeploymentError(f"rtl: no folding fits {', '.join(PARTS)}; use fewer bits or a narrower policy")


def _time_code(code: CompiledCode) -> InferenceCost:
    """Mean time of one inference in the code alone, as its own harness takes it."""
    return InferenceCost(code.time_call(CALLS), "ns", Source.MEASURED)


def _time(subject: ProofSubject, policy: Policy) -> InferenceCost:
    """Median time of one call from Python with one state, quantization and head included."""
    states = subject.states.observations if isinstance(subject.states, Visited) else subject.states
    times = time_calls(policy, states, CALLS)
    return InferenceCost(round(statistics.median(times), 1), "us", Source.MEASURED)
