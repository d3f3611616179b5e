"""Where fewer bits pay and where they do not: on this machine, on a microcontroller, in a circuit."""

from collections.abc import Collection, Iterator, Sequence

from quarl_bench.backends.c.microcontroller import CORE
from quarl_bench.checking.costs import ArtefactCost
from quarl_bench.checking.targets import CYCLES, FLASH, INSTRUCTIONS, LUTS, PART, TargetCost
from quarl_bench.experiments.member import FP32

LITTLE = 0.1  # share of bytes or time that is next to nothing


def find_least(costs: Sequence[ArtefactCost], schemes: Collection[str]) -> ArtefactCost | None:
    """The fewest bytes of these schemes' artefacts."""
    return min((c for c in costs if c.scheme in schemes and c.bytes), key=lambda cost: cost.bytes, default=None)


def list_worth(costs: Sequence[ArtefactCost], targets: Sequence[TargetCost], scheme: str) -> Iterator[str]:
    """What `scheme` saves next to nothing of, where it is slower than fp32, and what it takes on other targets."""
    own, full = find_least(costs, {scheme}), find_least(costs, {FP32})
    if own and full and 0 < full.bytes - own.bytes < LITTLE * full.bytes:
        yield f"It saves next to nothing here: {1 - own.bytes / full.bytes:.1%} of the bytes."
    slower = [text for text in _list_slower(costs, scheme) if text]
    if slower:
        yield f"It is slower here than fp32: {'; '.join(slower)}."
    yield from _weigh_microcontroller(targets, scheme)
    yield from _weigh_circuit(targets, scheme)


def _list_slower(costs: Sequence[ArtefactCost], scheme: str) -> Iterator[str]:
    full = {cost.backend: cost for cost in costs if cost.scheme == FP32 and not cost.reason}
    for cost in costs:
        other = full.get(cost.backend)
        if cost.scheme != scheme or cost.reason or other is None:
            continue
        if cost.microseconds > (1 + LITTLE) * other.microseconds:
            if cost.own is not None and other.own is not None:
                yield f"{cost.backend} {cost.own:,.0f} against {other.own:,.0f} ns, its code alone"
            else:
                yield f"{cost.backend} {cost.median:.1f} against {other.median:.1f} us a call"


def _weigh_microcontroller(targets: Sequence[TargetCost], scheme: str) -> Iterator[str]:
    """Beside fp32, in the core's own unit for floats, and what takes less flash; what is missing is not compared."""
    pairs = [
        (unit, _find(targets, CORE, scheme, unit), _find(targets, CORE, FP32, unit)) for unit in (FLASH, INSTRUCTIONS)
    ]
    known = [(unit, own, full) for unit, own, full in pairs if own and full]
    if not known:
        return
    words = [
        f"{own.value:,.0f} {unit} against {full.value:,.0f}{' (emulated)' if unit == INSTRUCTIONS else ''}"
        for unit, own, full in known
    ]
    shares = [own.value / full.value for _, own, full in known]
    pays = min(shares) < 1 - LITTLE and max(shares) <= 1 + LITTLE
    half = min(shares) < 1 - LITTLE and not pays
    said = "it pays there" if pays else "it pays in one, not in the other" if half else "it does not pay there"
    yield f"On a Cortex-M4: {' and '.join(words)}; {said}."
    flash = _find(targets, CORE, scheme, FLASH)
    for name in dict.fromkeys(cost.scheme for cost in targets if cost.scheme not in (scheme, FP32)):
        less = _find(targets, CORE, name, FLASH)
        if flash and less and less.value < (1 - LITTLE) * flash.value:
            taken = _find(targets, CORE, name, INSTRUCTIONS)
            beside = f" and {taken.value:,.0f} {INSTRUCTIONS} (emulated)" if taken else ""
            yield f"There {name} takes {less.value:,.0f} {FLASH}{beside}."


def _weigh_circuit(targets: Sequence[TargetCost], scheme: str) -> Iterator[str]:
    """Designs of all integer schemes that were priced; fp32 has none."""
    names = dict.fromkeys((scheme, *(cost.scheme for cost in targets if cost.target == PART.name)))
    texts = []
    for name in names:
        luts, cycles = (_find(targets, PART.name, name, unit) for unit in (LUTS, CYCLES))
        if luts and cycles:
            texts.append(f"{name} {luts.value:,.0f} {LUTS} and {cycles.value:,.0f} {CYCLES}")
    if texts:
        yield f"In an FPGA ({PART.name}, estimated): {', '.join(texts)}; fp32 has no design."


def _find(targets: Sequence[TargetCost], target: str, scheme: str, unit: str) -> TargetCost | None:
    keys = ((cost.target, cost.scheme, cost.unit) for cost in targets)
    return next((cost for cost, key in zip(targets, keys, strict=True) if key == (target, scheme, unit)), None)
