"""A repair in words: the lines of the terminal, the JSON of programs."""

from typing import TYPE_CHECKING, Any

from quarl_bench.checking.text import COLUMNS, describe_line, format_line
from quarl_bench.views.text import format_table

if TYPE_CHECKING:
    from quarl_bench.repairing.search import Attempt, Repair

TRIED = ("scheme", "same action", "regret", "validation return")


def describe_repair(found: "Repair") -> dict[str, Any]:
    """All that `quarl repair --json` prints, but for what is written."""
    return {
        "kind": "repair",
        "environment": found.environment,
        "asked": found.plain.scheme.name,
        "chosen": found.chosen.scheme.name,
        "attempts": [
            {
                "scheme": attempt.scheme.name,
                "agreement": attempt.agreement,
                "regret": attempt.regret,
                "validation_return": attempt.validation,
            }
            for attempt in found.attempts
        ],
        "not_tried": {remedy.option: remedy.reason for remedy in found.remedies if remedy.reason},
        "reference_return": found.chosen.reference.mean,
        "plain": describe_line(found.plain),
        "test": describe_line(found.chosen),
    }


def print_repair(found: "Repair") -> str:
    """What was tried, what has no use here, and the test."""
    played = next(attempt.episodes for attempt in found.attempts if attempt.episodes)
    tests = [COLUMNS, format_line(found.plain)]
    tests += [format_line(found.chosen)] if found.changed else []
    told = [f"  {remedy.option}: {remedy.reason}" for remedy in found.remedies if remedy.reason]
    episodes, reference = len(found.chosen.reference.environment_seeds), found.chosen.reference.mean
    chosen = found.chosen.scheme.name
    choice = f"{chosen} returns most there" if found.changed else f"no other form returns more there than {chosen}"
    lines = [
        f"{found.environment}: {len(found.attempts)} forms of one policy, the same fp32 function, nothing trained",
        f"decisions in states that calibrated nothing, and {played} validation episodes of what decides best:",
        *format_table([TRIED, *map(_format_attempt, found.attempts)]),
        *(["not tried:", *told] if told else []),
        f"{choice}. The one test, on {episodes} episodes that chose nothing, against fp32's {reference:.4g}:",
        *format_table(tests),
    ]
    return "\n".join(lines)


def _format_attempt(attempt: "Attempt") -> tuple[str, ...]:
    played = "" if attempt.validation is None else f"{attempt.validation:.4g}"
    return attempt.scheme.name, f"{attempt.agreement:.2%}", f"{attempt.regret:.3g}", played
