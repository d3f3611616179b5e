"""What a policy costs where no operating system runs: a Cortex-M4 by compiler and emulator, an FPGA by formula."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from quarl_bench.backends.base import count_parameters
from quarl_bench.backends.c.microcontroller import (
    CORE,
    FLOATS,
    count_instructions,
    describe_microcontroller,
    measure_flash,
)
from quarl_bench.backends.fpga.explore.explorer import find_fastest
from quarl_bench.backends.fpga.explore.part import PARTS
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.tool_results import run_once
from quarl_bench.checking.subject import Subject
from quarl_bench.errors import QuarlError
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
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
    subject.calibration  # noqa: B018  (visited once, not by every thread)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor() as pool:
        try:
            compiled = [(s, pool.submit(_compile, subject, s, Path(scratch, s)).result) for s in schemes]
            folded = [c for s in schemes for c in _name_failure(PART.name, s, partial(_fold, subject, s))]
            for scheme, running in compiled:
                yield from _name_failure(CORE, scheme, running)
            yield from folded
        finally:
            pool.shutdown(cancel_futures=True)


def _name_failure(target: str, scheme: str, costs: Callable[[], list[TargetCost]]) -> list[TargetCost]:
    try:
        return costs()
    except QuarlError as error:
        return [TargetCost(target, scheme, reason=str(error))]


def _compile(subject: Subject, scheme: str, folder: Path) -> list[TargetCost]:
    """Neither number depends on time: a store keeps them for the next check."""
    subject.export(scheme, "c", folder)
    policy = subject.quantize(scheme)
    assert isinstance(policy, IntegerPolicy | PolicyNet)  # noqa: S101  (for the type checker: a scheme gives these)
    settings = () if isinstance(policy, IntegerPolicy) else (FLOATS,)
    calls = CALLS if count_parameters(policy) <= EMULATED_PARAMETERS else 0
    count, tools = partial(_count, calls, settings), describe_microcontroller()
    if subject.store is None:
        found = count(folder)
    else:
        salt = f"{tools} {calls} {settings}"
        found = run_once(folder, subject.store.places.cache, "microcontroller", salt, count)
    costs = [TargetCost(CORE, scheme, FLASH, found["flash"], str(Source.MEASURED))]
    if calls:
        costs.append(TargetCost(CORE, scheme, INSTRUCTIONS, found["instructions"], str(Source.EMULATED)))
    return costs


def _count(calls: int, settings: tuple[str, ...], artefact: Path) -> dict[str, float]:
    flash = measure_flash(artefact, *settings)
    return {"flash": flash} | ({"instructions": count_instructions(artefact, calls, *settings)} if calls else {})


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
