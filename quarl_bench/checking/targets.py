"""What a policy costs where no operating system runs: a Cortex-M4 by compiler and emulator, an FPGA by formula."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from quarl_bench.backends.base import count_parameters
from quarl_bench.backends.c.microcontroller import CORE, FLOATS, count_instructions, measure_flash
from quarl_bench.backends.fpga.explore.explorer import find_fastest
from quarl_bench.backends.fpga.explore.part import PARTS
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.checking.subject import Subject
from quarl_bench.errors import QuarlError
from quarl_bench.policies.policy import IntegerPolicy, Policy, PolicyNet
from quarl_bench.spec import Source

CALLS = 5
EMULATED_PARAMETERS = 200_000  # above, an emulated inference takes seconds
PART = PARTS["xc7a15t"]
FLASH, INSTRUCTIONS, LUTS, CYCLES = "bytes of flash", "instructions", "LUT", "cycles"


@dataclass(frozen=True)
class TargetCost:
    """One number of a scheme on a target, or why there is none. Sources never mix: each number says its own."""

    target: str
    scheme: str
    unit: str = ""
    value: float = 0.0
    source: str = ""
    reason: str = ""


def estimate_targets(subject: Subject, schemes: Sequence[str]) -> Iterator[TargetCost]:
    """Flash and instructions on a Cortex-M4, and LUTs and cycles of the fastest design that fits a small FPGA.

    Compilers and emulators, whose counts do not depend on time, run beside each other and beside the FPGA's formulas.
    """
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor() as pool:
        compiled = [(scheme, _start(pool, subject, scheme, Path(scratch, scheme))) for scheme in schemes]
        folded = [
            cost for scheme in schemes for cost in _name_failure(PART.name, scheme, partial(_fold, subject, scheme))
        ]
        for scheme, running in compiled:
            yield from _name_failure(CORE, scheme, running)
        yield from folded


def _name_failure(target: str, scheme: str, costs: Callable[[], list[TargetCost]]) -> list[TargetCost]:
    try:
        return costs()
    except QuarlError as error:
        return [TargetCost(target, scheme, reason=str(error))]


def _start(pool: ThreadPoolExecutor, subject: Subject, scheme: str, folder: Path) -> Callable[[], list[TargetCost]]:
    """Export the source here and have it compiled there; what the call returns or raises is what that found."""
    try:
        subject.export(scheme, "c", folder)
    except QuarlError as error:
        return partial(_raise, error)
    return pool.submit(_compile, subject.quantize(scheme), scheme, folder).result


def _raise(error: QuarlError) -> list[TargetCost]:
    raise error


def _compile(policy: Policy, scheme: str, folder: Path) -> list[TargetCost]:
    assert isinstance(policy, IntegerPolicy | PolicyNet)  # noqa: S101  (for the type checker: a scheme gives these)
    settings = () if isinstance(policy, IntegerPolicy) else (FLOATS,)
    costs = [TargetCost(CORE, scheme, FLASH, measure_flash(folder, *settings), str(Source.MEASURED))]
    if count_parameters(policy) <= EMULATED_PARAMETERS:
        count = count_instructions(folder, CALLS, *settings)
        costs.append(TargetCost(CORE, scheme, INSTRUCTIONS, count, str(Source.EMULATED)))
    return costs


def _fold(subject: Subject, scheme: str) -> list[TargetCost]:
    """Integers alone have a design; of others nothing is said."""
    policy = subject.quantize(scheme)
    if not isinstance(policy, IntegerPolicy):
        return []
    found = find_fastest(split(policy.net), PART)
    if found is None:
        return [TargetCost(PART.name, scheme, reason=f"{PART.name}: no design of {scheme} fits its {PART.luts:,} LUTs")]
    return [
        TargetCost(PART.name, scheme, LUTS, found.resources.luts, str(Source.ESTIMATED)),
        TargetCost(PART.name, scheme, CYCLES, found.cycles, str(Source.ESTIMATED)),
    ]
