"""The tables of docs/speed.md: what stored runs of `python -m benches.peers` found, and on which machine."""

from collections.abc import Callable, Sequence
from itertools import chain

from quarl_bench.judging.times.contest import Contest, Pair
from quarl_bench.report.peers import PeerRun
from quarl_bench.report.tables.markdown import write_table
from quarl_bench.views.table import format_number

Layout = Callable[[Sequence[Contest]], list[list[str]]]
OURS = "quarl"  # with which the names of our contenders begin
FLOOR = ("simulator", "network")  # parts of an evaluated step that nobody can do without


def list_comparison(name: str, run: PeerRun | None, layout: Layout | None = None) -> list[str]:
    """Lines of Markdown: where the numbers of `name` are from, then its table, by default as docs/speed.md has it."""
    if run is None:
        return [f"No run is stored yet: `python -m benches.peers {name}`."]
    lines = [f"`{run.command}`: {run.describe()}."]
    if run.absent:
        lines.append(f"Left out, because not installed: {', '.join(dict.fromkeys(run.absent.values()))}.")
    rows = (layout or LAYOUTS.get(name, list_contenders))(run.contests)
    return [*lines, "", *write_table(rows)]


def list_contenders(contests: Sequence[Contest]) -> list[list[str]]:
    """A row for each contender of each contest: its median with its range, and how many times as good ours were."""
    rows = [["", "contender", "median (range)", "ours beside it"]]
    for contest in contests:
        title = f"{contest.name}, {contest.unit}{f' ({contest.note})' if contest.note else ''}"
        for contender, numbers in contest.rounds.items():
            held = [f"{pair.ours} {contest.find_ratio(pair)}" for pair in contest.pairs if pair.theirs == contender]
            middle, least, most = map(format_number, (contest.find_median(contender), min(numbers), max(numbers)))
            rows.append([title, contender, f"{middle} ({least} to {most})", ", ".join(held)])
            title = ""
    return rows


def list_ratios(contests: Sequence[Contest]) -> list[list[str]]:
    """A row for each contest that has pairs, a column for each pair."""
    held = [contest for contest in contests if contest.pairs]
    names = [*dict.fromkeys(_name(pair) for contest in held for pair in contest.pairs)]
    rows = [["", *names]]
    for contest in held:
        ratios = {_name(pair): str(contest.find_ratio(pair)) for pair in contest.pairs}
        title = f"{contest.name}{f' ({contest.note})' if contest.note else ''}"
        rows.append([title, *(ratios.get(name, "") for name in names)])
    return rows


def list_pairs(contests: Sequence[Contest]) -> list[list[str]]:
    """The same with a row for each pair, and a column for each contest."""
    return [list(row) for row in zip(*list_ratios(contests), strict=True)]


def list_medians(contests: Sequence[Contest]) -> list[list[str]]:
    """A row for each contest, a column with the medians of each contender."""
    names = [*dict.fromkeys(chain.from_iterable(contest.rounds for contest in contests))]
    rows = [["", *names]]
    for contest in contests:
        medians = [format_number(contest.find_median(name)) if name in contest.rounds else "" for name in names]
        rows.append([f"{contest.name}, {contest.unit}", *medians])
    return rows


def list_floors(evaluation: PeerRun | None, parts: PeerRun | None) -> list[str]:
    """A table: how many times as fast as each rival is what the floors of `parts` leave; other runs tell nothing."""
    if evaluation is None or parts is None or evaluation.machine != parts.machine:
        return ["Two runs on one machine are wanted: `python -m benches.peers evaluation` and `parts`."]
    contests = {contest.name: contest for contest in evaluation.contests}
    told = []
    for part in parts.contests:
        rates = contests[part.name].rounds
        floor = sum(map(part.find_median, FLOOR))  # microseconds a step
        told.append(
            {"": part.name}
            | {
                f"against {rival}": f"{1e6 / floor / contests[part.name].find_median(rival):.2f}x"
                for rival in rates
                if not rival.startswith(OURS)
            }
        )
    head = [*dict.fromkeys(chain.from_iterable(told))]
    return write_table([head, *([row.get(name, "") for name in head] for row in told)])


LAYOUTS: dict[str, Layout] = {
    "evaluation": list_ratios,
    "deployment": list_pairs,
    "broadcast": list_medians,
    "parts": list_medians,
    "fpga": list_medians,
    "repair": list_medians,
    "staleness": list_medians,
    "decisions": list_medians,
}


def _name(pair: Pair) -> str:
    return f"{pair.ours} against {pair.theirs}"
