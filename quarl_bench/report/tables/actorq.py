"""The tables of docs/actorq.md: stored runs of benches/peers, and the records of paired runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from quarl_bench.actorq.comparison import BASE, RunComparison, compare_runs, find_target
from quarl_bench.actorq.evaluator import find_time
from quarl_bench.actorq.record import RECORD, Record, read_record
from quarl_bench.judging.statistics import bound_ratio
from quarl_bench.judging.times.contest import Contest
from quarl_bench.report.peers import PeerRun
from quarl_bench.report.tables.markdown import write_row, write_table, write_verdict
from quarl_bench.views.rows import Row
from quarl_bench.views.table import format_number

SHIPPED, FORMS = ("fp32", "fp16", "int8"), ("plain", "zstd", "delta")
MADE, TAKEN, SENT = "to make", "to take", "sent"
LINK = 1e9  # bits a second
FEWEST = 100  # episodes of a return that is worth a look


def list_contenders_once(contests: Sequence[Contest]) -> list[list[str]]:
    """A row for each contender, a column with its median for each contest."""
    names = dict.fromkeys(name for contest in contests for name in contest.rounds)
    head = ["", *(f"{contest.name}, {contest.unit}" for contest in contests)]
    return [head, *([name, *(_show_median(contest, name) for contest in contests)] for name in names)]


def list_broadcasts(contests: Sequence[Contest]) -> list[list[str]]:
    """A row for each size and precision, a column for each form: its share of the fp32 bytes, its two costs in ms."""
    rows = [["fp32 bytes, hidden", "shipped", "plain", "zstd", "changes"]]
    for size, parts in _group_sizes(contests).items():
        whole = parts[SENT].find_median(f"{BASE} {FORMS[0]}")
        for shipped in SHIPPED:
            cells = [
                f"{parts[SENT].find_median(name) / whole:.2f}; "
                f"{parts[MADE].find_median(name):.1f} + {parts[TAKEN].find_median(name):.1f}"
                for name in (f"{shipped} {form}" for form in FORMS)
            ]
            rows.append([f"{_show_bytes(whole)}, {size}", shipped, *cells])
    return rows


def list_changes(run: PeerRun | None) -> list[str]:
    """A sentence on the largest policy: what changes save on a link, what they cost, and from which rate they pay."""
    if run is None:
        return []
    *_, parts = _group_sizes(run.contests).values()
    whole, changed, costs, rates = [], [], [], []
    for shipped in SHIPPED:
        plain, delta = f"{shipped} {FORMS[0]}", f"{shipped} {FORMS[-1]}"
        bits = [8 * parts[SENT].find_median(name) for name in (plain, delta)]
        cost = sum(parts[part].find_median(delta) - parts[part].find_median(plain) for part in (MADE, TAKEN))
        whole.append(f"{1e3 * bits[0] / LINK:.0f} ms in {shipped}")
        changed.append(f"{1e3 * bits[1] / LINK:.0f}")
        costs.append(f"{cost:.0f}")
        rate = f"{(bits[0] - bits[1]) / (cost / 1e3) / 1e9:.2g} Gbit/s" if cost > 0 else "any rate"
        rates.append(f"{rate} in {shipped}")
    size = _show_bytes(parts[SENT].find_median(f"{BASE} {FORMS[0]}"))
    link = f"At 1 Gbit/s the {size} take {_enumerate(whole)}. Changes take {_enumerate(changed)} ms"
    ends = f"but cost {_enumerate(costs)} ms of CPU time more at both ends"
    return [f"{link}, {ends}. To a single node they thus pay below {_enumerate(rates)}."]


def list_paired_runs(folder: Path) -> list[str]:
    """A table with a row for each task, its actors and their precision: rates beside fp32's, and returns by seed.

    Of runs whose policies played fewer than a hundred episodes no return is shown: they were made for their times.
    """
    rows = [["task", "actors", "steps/s, of fp32's", "ceiling", "return, fp32 actors", "these actors", "their copy"]]
    for task, found in _group_runs(folder).items():
        for precision, runs in found.items():
            if precision != BASE:
                limits = [_show_range(getattr(run, name) for run in runs) for name in ("speedup", "ceiling")]
                scores = [_list_returns(*of) for of in ((found.get(BASE, []), BASE), (runs, BASE), (runs, precision))]
                rows.append([task, precision, *limits, *scores])
    return write_table(rows)


def list_times(folder: Path) -> list[str]:
    """A table with a row for each task, its actors and their precision: how soon they reach 95% of fp32's best return.

    Seconds stand by seed; what they are of the twin's is the geometric mean over seeds, with its interval.
    """
    rows = [["task", "actors", "fp32 actors, s", "these, s", "of fp32's seconds", "of its steps", "load"]]
    for task, found in _group_runs(folder).items():
        bases = {run.settings["seed"]: run.record for run in found.get(BASE, []) if _plays_enough(run.record)}
        for precision, runs in found.items():
            pairs = [(bases[run.settings["seed"]], run.record) for run in runs if run.settings["seed"] in bases]
            if precision != BASE and pairs:
                seconds, steps = ([_find_times(pair, clock) for pair in pairs] for clock in ("elapsed", "steps"))
                load = max(record["load"] for pair in pairs for record in pair)
                taken = [", ".join(map(_show_seconds, side)) for side in zip(*seconds, strict=True)]
                rows.append([task, precision, *taken, _show_ratio(seconds), _show_ratio(steps), f"{load:.1f}"])
    return write_table(rows)


def list_verdicts(rows: Iterable[Row], prefix: str = "actorq-") -> list[str]:
    """A table of the stored verdicts on claims whose names begin so."""
    lines = [write_row(("claim", "algorithm", "actors", "threshold", "verdict")), "|---|---|---|---:|---|"]
    for row in rows:
        if row.claim.startswith(prefix):
            link = f"[{row.claim}](claims.md#{row.claim})"
            lines.append(write_row((link, row.algo.upper(), row.scheme, f"{row.threshold:g}", write_verdict(row))))
    return lines


def _group_runs(folder: Path) -> dict[str, dict[str, list[RunComparison]]]:
    """All recorded runs beside their twins, by task with its actors, and by precision."""
    groups: dict[str, dict[str, list[RunComparison]]] = {}
    for run in compare_runs([read_record(path.parent) for path in sorted(folder.glob(f"*/{RECORD}"))]):
        groups.setdefault(_name_task(run), {}).setdefault(run.settings["precision"], []).append(run)
    return groups


def _group_sizes(contests: Sequence[Contest]) -> dict[str, dict[str, Contest]]:
    """By size, in the order of the run, the contests of its three parts."""
    sizes: dict[str, dict[str, Contest]] = {}
    for contest in contests:
        size, _, part = contest.name.rpartition(", ")
        sizes.setdefault(size, {})[part] = contest
    return sizes


def _name_task(run: RunComparison) -> str:
    settings = run.settings
    widths = " x ".join(map(str, (len(settings["widths"]), settings["widths"][0])))
    actors = f"{settings['actors']} actor{'' if settings['actors'] == 1 else 's'}"
    return f"{settings['algo'].upper()} {settings['environment']}, {actors} of {widths}"


def _show_range(numbers: Iterable[float | None]) -> str:
    known = [number for number in numbers if number is not None]
    return f"{min(known):.2f} to {max(known):.2f}" if known else ""


def _list_returns(runs: Sequence[RunComparison], precision: str) -> str:
    """By seed, the mean return that the learner's policy has in a precision."""
    scores = [run.record["scores"][precision] for run in runs if precision in run.record["scores"]]
    return ", ".join(f"{score['mean']:.4g}" for score in scores if score["episodes"] >= FEWEST)


def _plays_enough(record: Record) -> bool:
    """Whether the run was made for what it learns, and not for its times alone."""
    return bool(record["scores"][BASE]["episodes"] >= FEWEST)


def _find_times(pair: tuple[Record, Record], clock: str) -> tuple[float | None, float | None]:
    """When, by `clock`, the twin and the run first kept a policy of 95% of the twin's best return; None if never."""
    target = find_target(pair[0])
    return find_time(pair[0]["curve"], target, clock), find_time(pair[1]["curve"], target, clock)


def _show_seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:,.0f}"


def _show_ratio(times: Sequence[tuple[float | None, float | None]]) -> str:
    """What the runs need of their twins' time; nothing where one never arrives, no interval where there is one pair."""
    if any(ours is None or not theirs for theirs, ours in times):
        return ""
    ratios = [ours / theirs for theirs, ours in times if ours is not None and theirs]
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    return "{:.2f} [{:.2f}, {:.2f}]".format(*bound_ratio(ratios))


def _show_median(contest: Contest, name: str) -> str:
    return format_number(contest.find_median(name)) if name in contest.rounds else ""


def _show_bytes(number: float) -> str:
    return f"{number / 1e3:.0f} kB" if number < 1e5 else f"{number / 1e6:.2g} MB"


def _enumerate(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
