"""This run beside the last one: which verdicts changed, and which numbers moved by how many standard errors."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from quarl_bench.judging.statistics import ERROR

if TYPE_CHECKING:
    from quarl_bench.views.rows import Row

NOTEWORTHY = 1.0  # standard errors
QUANTILE = NormalDist().inv_cdf(1.0 - ERROR)  # half an interval's width, in standard errors


@dataclass(frozen=True)
class Change:
    """One row then and now. `errors` is how far its estimate moved, in standard errors of the last run's.

    A standard error is half the width of the row's interval over the normal quantile of its one-sided error: a scale,
    since not every interval is a normal one. None where a run has no interval; infinite where it has no width.
    """

    nodeid: str
    id: str
    before: str  # verdict
    after: str
    estimate_before: float | None
    estimate_after: float | None
    errors: float | None

    @property
    def changed(self) -> bool:
        """Whether the verdict is another one."""
        return self.before != self.after


@dataclass(frozen=True)
class ResultsComparison:
    """Rows of both runs, and the ids of rows that only one of them has."""

    changes: tuple[Change, ...]
    appeared: tuple[str, ...]
    vanished: tuple[str, ...]

    @property
    def changed(self) -> tuple[Change, ...]:
        """Those whose verdict is another one."""
        return tuple(change for change in self.changes if change.changed)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Changed verdicts and noteworthy moves, in built-in types."""
        return [asdict(change) | {"errors": _limit(change.errors)} for change in self.changes if _is_noteworthy(change)]


def compare_rows(before: "Sequence[Row]", after: "Sequence[Row]") -> ResultsComparison:
    """Pair the rows of two runs by test and id; changed verdicts first, then by how far they moved."""
    old, new = ({(row.nodeid, row.id): row for row in rows} for rows in (before, after))
    changes = sorted((_compare(old[key], new[key]) for key in old.keys() & new.keys()), key=_rank)
    appeared, vanished = ([key[1] for key in sorted(keys)] for keys in (new.keys() - old, old.keys() - new))
    return ResultsComparison(tuple(changes), tuple(appeared), tuple(vanished))


def list_conditions(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """What a results file says of its run that the other says differently: numbers may have moved because of it."""
    for key in ("settings", "machine"):
        old, new = (dict(results.get(key) or {}) for results in (before, after))
        told = [name for name in new if name in old]  # an older version's file does not say all
        differing = [f"{name} {old[name]} -> {new[name]}" for name in told if old[name] != new[name]]
        if differing:
            yield f"note: {key} of the last run were others: {', '.join(differing)}"


def list_changes(found: ResultsComparison, *, verbose: bool) -> Iterator[str]:
    """Lines for the terminal: every changed verdict, noteworthy moves, and what only one run has."""
    moved = [change for change in found.changes if not change.changed and _is_noteworthy(change)]
    same = len(found.changes) - len(found.changed) - len(moved)
    yield f"{len(found.changed)} verdicts changed; {len(moved)} numbers moved by more than a standard error, {same} not"
    for change in (*found.changed, *moved):
        verdicts = f"{change.before} -> {change.after}" if change.changed else change.after
        yield f"  {change.id}: {verdicts}; {_describe_move(change)}"
    for word, names in (("new", found.appeared), ("not judged in this run", found.vanished)):
        if names:
            yield f"{word}: {len(names)}{': ' + ', '.join(names) if verbose else ' (-v lists them)'}"


def _compare(before: "Row", after: "Row") -> Change:
    then, now, interval = before.estimate, after.estimate, before.interval
    errors = None
    if then is not None and now is not None and interval:
        error = (interval[1] - interval[0]) / 2.0 / QUANTILE
        errors = 0.0 if now == then else (now - then) / error if error else math.copysign(math.inf, now - then)
    verdicts = before.verdict, after.verdict
    return Change(after.nodeid, after.id, *verdicts, then, now, errors)


def _is_noteworthy(change: Change) -> bool:
    return change.changed or (change.errors is not None and abs(change.errors) > NOTEWORTHY)


def _rank(change: Change) -> tuple[bool, float, str, str]:
    return not change.changed, -abs(change.errors or 0.0), change.nodeid, change.id


def _limit(errors: float | None) -> float | None:
    """None in place of infinity, which JSON does not know."""
    return None if errors is None or math.isinf(errors) else errors


def _describe_move(change: Change) -> str:
    estimates = change.estimate_before, change.estimate_after
    then, now = ("none" if estimate is None else f"{estimate:.4g}" for estimate in estimates)
    if change.errors is None:
        return f"{then} -> {now}"
    return f"{then} -> {now}, {change.errors:+.1f} standard errors"
