"""Rows -> the lines of the terminal's section "quarl verdicts": one per claim, one per case that needs a look."""

from collections import Counter
from collections.abc import Iterator

from quarl_bench.judging.outcomes import QUANTIZABLE
from quarl_bench.judging.statistics import star_discoveries
from quarl_bench.spec import UNDECIDED
from quarl_bench.views.rows import Row

OF_PROJECTS = "does this policy keep its return in fewer bits?"
OF_PAPERS = "does this sentence of a paper hold for these policies?"
ANSWERS = {"supported": "yes", "refuted": "no"} | dict.fromkeys(UNDECIDED, "not decided")
FEW_REASONS = 4  # alike, that a reader takes in one by one
UNCOMPARED = {
    "no-baseline": "without stored numbers to compare with; --force-regen writes them",
    "mismatch": "not compared, because the stored numbers are of other policies or machines",
    "versions": (
        "not compared, because the stored numbers are of other versions of libraries; constraints.txt has theirs"
    ),
}
ORDER = ("refuted", *UNDECIDED, "supported")  # worst first


def list_lines(rows: list[Row], *, verbose: bool) -> Iterator[str]:
    """What was asked and answered, then one line per claim with its counts and worst case.

    Per-case lines when asked for, or when something is wrong.
    """
    stars = star_rows(rows)
    if rows:
        yield summarise(rows)
    for claim in dict.fromkeys(row.claim for row in rows):
        members = sorted((r for r in rows if r.claim == claim), key=_badness)
        counts = ", ".join(f"{n} {name}" for name in ORDER if (n := sum(r.verdict == name for r in members)))
        worst = members[0]
        yield f"{claim}: {_count(len(members), 'verdict')}: {counts}; worst {_state(worst)}"
        for row in members:
            if verbose or row.regression == "moved" or (row.verdict == "refuted" and not row.known):
                yield from _list_case(row, "*" if _identify(row) in stars else "")
    if verbose and stars:
        yield "* survives a false discovery rate of 5% over the verdicts of this run: may be quoted singly"


def summarise(found: list[Row]) -> str:
    """One sentence for who sees this for the first time: what was asked, how often it holds, where to read on.

    Replays are counted apart: they measure nothing.
    """
    rows = [row for row in found if not row.replay]
    replays = f"; {len(found) - len(rows)} replays apart" if len(rows) < len(found) else ""
    if not rows:
        return f"{len(found)} replays, which measure nothing"
    own = [row.claim == QUANTIZABLE for row in rows]
    asked = OF_PROJECTS if all(own) else OF_PAPERS if not any(own) else f"{OF_PROJECTS} {OF_PAPERS}"
    counts = Counter(ANSWERS[row.verdict] for row in rows)
    known = sum(bool(row.known) for row in rows if row.verdict == "refuted")
    told = {"no": f"no ({known} of them known before)" if known else "no"}
    answers = ", ".join(f"{counts[word]} {told.get(word, word)}" for word in dict.fromkeys(ANSWERS.values()))
    times = "once" if len(rows) == 1 else f"{len(rows)} times"
    return f"asked {times}: {asked} {answers}{replays}; -v lists each answer, --quarl-html=FILE makes a page of them"


def list_skips(reasons: list[str], *, verbose: bool) -> Iterator[str]:
    """One line per reason; those that begin alike are told by one example where they are many."""
    counts = Counter(reasons)
    for kind in sorted({name_kind(reason) for reason in counts}):
        alike = sorted(reason for reason in counts if name_kind(reason) == kind)
        if verbose or len(alike) <= FEW_REASONS:
            yield from (f"skipped {counts[reason]}: {reason}" for reason in alike)
        else:
            total = sum(counts[reason] for reason in alike)
            yield f"skipped {total} for {len(alike)} reasons like this (-v lists them): {alike[0]}"


def list_hints(rows: list[Row], unjudged: int = 0) -> Iterator[str]:
    """What no test failed on and a reader may want to know: cases without a verdict, numbers compared with nothing."""
    if unjudged:
        yield (
            f"{_count(unjudged, 'test')} of a claim passed without a verdict, which says nothing: "
            "call verdict.check there"
        )
    found = Counter(row.regression for row in rows)
    for state, words in UNCOMPARED.items():
        if found[state]:
            yield f"{_count(found[state], 'verdict')} {words}"


def name_kind(reason: str) -> str:
    """Its first two words, such as "no baseline"."""
    return " ".join(reason.split()[:2])


def star_rows(rows: list[Row]) -> set[tuple[str, str]]:
    """Node ids and ids of the cases whose verdict may be quoted singly (directional Benjamini-Hochberg)."""
    cases = [(row, row.p_values) for row in rows if row.p_values]
    if not cases:
        return set()
    supported, refuted = ([values[side] for _, values in cases] for side in (0, 1))
    signs = star_discoveries(supported, refuted)
    return {_identify(row) for (row, _), sign in zip(cases, signs, strict=True) if sign}


def _identify(row: Row) -> tuple[str, str]:
    return row.nodeid, row.id  # one test may judge several policies


def _list_case(row: Row, star: str) -> Iterator[str]:
    yield f"  {row.id}{star}: {row.line}"
    if row.kind == "case":
        paper = row.paper
        theirs = f"; paper {paper['reference']:g} -> {paper['value']:g}" if paper else ""
        yield f"    return {row.reference['mean']:.4g} -> {row.measured['mean']:.4g} ({row.source}){theirs}"
    if row.known:
        yield f"    known: {row.known}"
    if row.regression not in ("same", "none"):
        yield f"    regression: {row.regression}"
    if row.missing:
        yield f"    missing: {', '.join(row.missing)}"
    for caveat in row.caveats:
        yield f"    note: {caveat}"


def _badness(row: Row) -> tuple[int, float]:
    interval = row.interval
    return ORDER.index(row.verdict), interval[0] if interval else 0.0


def _state(row: Row) -> str:
    known = " (known)" if row.known else ""
    return f"{row.id}{known} {row.line}"


def _count(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
