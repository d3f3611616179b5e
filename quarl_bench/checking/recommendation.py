"""What to ship: the scheme of fewest bits that is known to do, and what it saves."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from quarl_bench.checking.worth import LITTLE, find_least, list_worth
from quarl_bench.experiments.member import FP32
from quarl_bench.spec import Outcome

if TYPE_CHECKING:
    from quarl_bench.checking.answer import Answer, SchemeResult
    from quarl_bench.quantization.scheme import Scheme

INT8 = "int8"
WEIGHTS = "w8"
PER_CHANNEL = "int8pc"
REMEDIES = {
    Outcome.INCONCLUSIVE: "not decided; more episodes may",
    Outcome.UNDECIDABLE: "undecidable; what would decide is listed",
}
DYNAMIC = "w8symnarrowpc"  # whose weights a .tflite file holds in bytes, beside float activations


def choose_schemes(lines: "Sequence[SchemeResult]", asked: str) -> tuple[str, ...]:
    """What is worth pricing and exporting: the scheme that was asked for, and the fewest bits that are known to do."""
    best = find_fewest(lines)
    return tuple(dict.fromkeys((asked, *(() if best is None else (best.scheme.name,)))))


def find_fewest(lines: "Sequence[SchemeResult]") -> "SchemeResult | None":
    """The integer scheme of fewest bits that holds, else the weight-only or half-precision one; or None."""
    kept = [line for line in lines if holds(line, lines)]
    return min(kept, key=lambda line: (not line.scheme.integer, line.scheme.widest), default=None)


def holds(line: "SchemeResult", lines: "Sequence[SchemeResult]") -> bool:
    """Whether it is known to do: supported, and of its kind all wider schemes as well.

    One of many that does well where more bits do not is likely to owe it to chance.
    """
    kind, bits = _name_kind(line.scheme), line.scheme.widest
    wider = [one for one in lines if _name_kind(one.scheme) == kind and one.scheme.widest > bits]
    return all(one.verdict.outcome is Outcome.SUPPORTED for one in (line, *wider))


def _name_kind(scheme: "Scheme") -> str:
    """Its name without bits: `intpc` of int8pc."""
    return "".join(letter for letter in scheme.name if not letter.isdigit())


def recommend(check: "Answer") -> str:
    """What to ship, in a sentence, and what might change it in others; nothing where the verdicts prove nothing."""
    if check.doubt:
        return f"{check.doubt}."
    kept = find_fewest(check.lines)
    if kept is None:
        found = f"Keep fp32: no scheme is known to keep {check.share}."
    elif kept.scheme.integer:
        found = _recommend_integers(check, kept)
    else:
        found = f"Ship {kept.scheme.name}: it keeps {check.share}; no integer scheme is known to."
        found += _recommend_floats(check, kept)
    return " ".join((found, *_list_remarks(check, kept)))


def _recommend_integers(check: "Answer", kept: "SchemeResult") -> str:
    """The smallest of the integer schemes that do, beside fp32: runtimes store fewer bits than eight in bytes."""
    known = {line.scheme.name: line.scheme for line in check.lines if holds(line, check.lines) and line.scheme.integer}
    least, own, full = (find_least(check.costs, names) for names in (known, {kept.scheme.name}, {FP32}))
    smaller = least is not None and own is not None and least.bytes < own.bytes
    scheme, cost = (known[least.scheme], least) if least and smaller else (kept.scheme, own)
    size = f", in {cost.bytes:,} bytes as {cost.backend}" if cost else ""
    found = f"Ship {scheme.name}: weights and activations in {scheme.widest} bits keep {check.share}{size}."
    if smaller and own:
        found += f" {kept.scheme.name} does too, but takes {own.bytes:,} here: in fewer bits only circuits compute."
    if cost and full and full.bytes <= cost.bytes:
        found += f" fp32 takes no more, {full.bytes:,} as {full.backend}: integers are for where floats are slow."
    return " ".join((found, *list_worth(check.costs, check.targets, scheme.name)))


def _recommend_floats(check: "Answer", kept: "SchemeResult") -> str:
    """What weights that are rounded and stored as floats do not save."""
    own, full = (find_least(check.costs, {name}) for name in (kept.scheme.name, FP32))
    if own is None or full is None or own.bytes < (1 - LITTLE) * full.bytes:
        return ""
    saved = f"{1 - own.bytes / full.bytes:.1%} of the bytes" if own.bytes < full.bytes else "nothing"
    return (
        f" Stored here it saves {saved} ({own.bytes:,} bytes, fp32 {full.bytes:,}), because it is stored as floats: "
        f"`quarl deploy --scheme {DYNAMIC} --backend litert-dynamic` keeps weights in bytes."
    )


def _list_remarks(check: "Answer", kept: "SchemeResult | None") -> Iterator[str]:
    """What is open, what is not to be trusted, and what to try."""
    outcomes = {line.scheme.name: line.verdict.outcome for line in check.lines}
    for open_, remedy in REMEDIES.items():
        names = [name for name, outcome in outcomes.items() if outcome is open_]
        if names:
            yield f"{', '.join(names)}: {remedy}."
    for line in check.lines:
        if line.verdict.outcome is Outcome.SUPPORTED and not holds(line, check.lines):
            yield f"{line.scheme.name} may owe it to chance: more bits are not known to do."
    if (kept is not None and kept.scheme.integer) or outcomes.get(INT8) is not Outcome.REFUTED:
        return
    yield "`quarl repair` looks for a form that keeps it in 8 bits."
    touchy, tried = check.most_sensitive_layer, outcomes.keys() | check.refused.keys()
    if outcomes.get(WEIGHTS) is Outcome.SUPPORTED:
        yield f"Its weights do with 8 bits ({WEIGHTS}), its activations do not: train with them, as qat8."
    elif touchy is not None and PER_CHANNEL not in tried:
        yield f"One scale per tensor is what {touchy.name} suffers from: try --scheme {PER_CHANNEL}."
