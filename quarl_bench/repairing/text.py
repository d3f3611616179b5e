"""A repair in words: the lines of the terminal, the JSON of programs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quarl_bench.checking.text import COLUMNS, describe_line, format_line
from quarl_bench.repairing.bits import count_bytes
from quarl_bench.views.text import format_table

if TYPE_CHECKING:
    from quarl_bench.repairing.plan import Repair
    from quarl_bench.repairing.workbench import Attempt

TRIED = ("form", "same action", "regret", "validation return", "episodes")
SHOWN = 12  # attempts of a table; the JSON has all
RUNGS = {
    "rewrites": "the same fp32 function in another form, nothing trained",
    "bias": "biases corrected by what rounding adds on average",
    "clip": "each layer's range shrunk as far as serves the decisions, and corrected biases",
    "adaround": "every weight rounded up or down, whichever serves its layer's sums",
    "bits": "fewer bits in layers that do with them, rounded as above",
    "distilled": "minutes of imitating fp32 in the states that it visits itself, without rewards",
}


def describe_repair(found: "Repair") -> dict[str, Any]:
    """All that `quarl repair --json` prints, but for what is written."""
    return describe_answer(found) | {
        "kind": "repair",
        "environment": found.environment,
        "scheme": found.chosen.candidate.scheme.name,
        "steps": list(found.chosen.candidate.steps),
        "attempts": [_describe_attempt(attempt) for attempt in found.found.attempts],
        "not_tried": {remedy.option: remedy.reason for remedy in found.remedies if remedy.reason},
        "unfit": found.found.unfit,
        "notes": list(found.notes),
    }


def describe_answer(found: "Repair") -> dict[str, Any]:
    """What was asked, what was chosen, and the test."""
    return {
        "asked": found.plain.scheme.name,
        "chosen": found.chosen.candidate.name,
        "parameter_bytes": count_bytes(found.chosen.candidate.policy),
        "forms": len(found.found.attempts),
        "test_number": found.number,
        "episodes": len(found.test.reference.environment_seeds),
        "reference_return": found.test.reference.mean,
        "plain": describe_line(found.plain),
        "test": describe_line(found.test),
    }


def print_repair(found: "Repair") -> str:
    """What was tried, what has no use here, and the test."""
    tests = [COLUMNS, format_line(found.plain)]
    tests += [(found.chosen.candidate.name, *format_line(found.test)[1:])] if found.changed else []
    told = [f"  {remedy.option}: {remedy.reason}" for remedy in found.remedies if remedy.reason]
    told += [f"  {len(found.found.unfit)} forms: {next(iter(found.found.unfit.values()))}"] if found.found.unfit else []
    episodes, reference = len(found.test.reference.environment_seeds), found.test.reference.mean
    name, packed = found.chosen.candidate.name, count_bytes(found.chosen.candidate.policy)
    choice = f"{name} returns most there, or as much" if found.changed else f"no other form returns more than {name}"
    rest = len(found.found.attempts) - SHOWN
    lines = [
        f"{found.environment}: {len(found.found.attempts)} forms of one policy",
        *map(_tell_rung, _group(found.found.attempts)),
        "decisions in states that calibrated nothing, and validation episodes of what decides best:",
        *format_table([TRIED, *map(_format_attempt, found.found.attempts[:SHOWN])]),
        *([f"and {rest} more (--json)"] if rest > 0 else []),
        *(["not tried:", *told] if told else []),
        *found.notes,
        f"weights and biases of {name}, packed at their bits: {packed:,} bytes (estimated; a backend may pack less)",
        f"{choice}. The one test, on {episodes} episodes that chose nothing, against fp32's {reference:.4g}:",
        *format_table(tests),
        _tell_next(found.number + 1),
    ]
    return "\n".join(lines)


def _tell_next(number: int) -> str:
    return (
        f"going on after it needs fresh seeds (--test {number}); of {number} tests at 95%, one or more miss in up to "
        f"{5 * number}% of repairs"
    )


def _describe_attempt(attempt: "Attempt") -> dict[str, Any]:
    return {
        "form": attempt.candidate.name,
        "scheme": attempt.candidate.scheme.name,
        "steps": list(attempt.candidate.steps),
        "rung": attempt.rung,
        "agreement": attempt.agreement,
        "regret": attempt.regret,
        "seconds": attempt.seconds,
        "validation_return": attempt.validation,
        "validation_episodes": len(attempt.returns),
    }


def _group(attempts: Sequence["Attempt"]) -> list[tuple[str, list["Attempt"]]]:
    return [(rung, [a for a in attempts if a.rung == rung]) for rung in RUNGS if any(a.rung == rung for a in attempts)]


def _tell_rung(group: tuple[str, list["Attempt"]]) -> str:
    rung, attempts = group
    seconds = sum(attempt.seconds for attempt in attempts)
    return f"  {rung}: {len(attempts)} in {seconds:.0f} s ({RUNGS[rung]})"


def _format_attempt(attempt: "Attempt") -> tuple[str, ...]:
    played = "" if attempt.validation is None else f"{attempt.validation:.4g}"
    episodes = str(len(attempt.returns)) if attempt.returns else ""
    return attempt.candidate.name, f"{attempt.agreement:.2%}", f"{attempt.regret:.3g}", played, episodes
