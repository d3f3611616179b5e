"""What a policy costs where no operating system runs: a Cortex-M4 by compiler and emulator, an FPGA by formula."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quarl_bench.backends.base import count_parameters
from quarl_bench.backends.c.microcontroller import CORE, FLOATS, count_instructions, measure_flash
from quarl_bench.backends.fpga.explore.explorer import explore, fits
from quarl_bench.backends.fpga.explore.part import PARTS
from quarl_bench.backends.fpga.rtl.stage import split
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
    """Flash and instructions on a Cortex-M4, and LUTs and cycles of the fastest design that fits a small FPGA."""
    for target, estimate in ((CORE, _compile), (PART.name, _fold)):
        for scheme in schemes:
            try:
                yield from estimate(subject, scheme)
            except QuarlError as error:
                yield TargetCost(target, scheme, reason=str(error))


def _compile(subject: Subject, scheme: str) -> Iterator[TargetCost]:
    policy = subject.quantize(scheme)
    assert isinstance(policy, IntegerPolicy | PolicyNet)  # noqa: S101  (for the type checker: a scheme gives these)
    settings = () if isinstance(policy, IntegerPolicy) else (FLOATS,)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "artefact"
        subject.export(scheme, "c", folder)
        yield TargetCost(CORE, scheme, FLASH, measure_flash(folder, *settings), str(Source.MEASURED))
        if count_parameters(policy) <= EMULATED_PARAMETERS:
            count = count_instructions(folder, CALLS, *settings)
            yield TargetCost(CORE, scheme, INSTRUCTIONS, count, str(Source.EMULATED))


def _fold(subject: Subject, scheme: str) -> Iterator[TargetCost]:
    """Integers alone have a design; of others nothing is said."""
    policy = subject.quantize(scheme)
    if not isinstance(policy, IntegerPolicy):
        return
    found = next((one for one in explore(split(policy.net), PART) if fits(one.resources, PART)), None)
    if found is None:
        yield TargetCost(PART.name, scheme, reason=f"{PART.name}: no design of {scheme} fits its {PART.luts:,} LUTs")
        return
    yield TargetCost(PART.name, scheme, LUTS, found.resources.luts, str(Source.ESTIMATED))
    yield TargetCost(PART.name, scheme, CYCLES, found.cycles, str(Source.ESTIMATED))
