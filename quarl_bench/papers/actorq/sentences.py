"""ActorQ's sentences, held against the records of runs that differ in the actors' precision alone.

Runs are paired by seed and options. Times are those of the machine that the records name, under the load that they
name; a ratio of CPU seconds is disturbed less than one of wall clock.
"""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quarl_bench.actorq.breakdown import QUANTIZED, find_ceiling
from quarl_bench.actorq.comparison import BASE, find_target, list_shared_settings
from quarl_bench.actorq.evaluator import find_time
from quarl_bench.actorq.record import RECORD, Record, read_acting, read_costs, read_record
from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import MissingBaseline, StoreError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.claim import JudgedClaim
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.retention import conclude, judge_retention, name_scope
from quarl_bench.spec import Measurement, Outcome, Verdict, name_seeds

if TYPE_CHECKING:
    from quarl_bench.papers.actorq.judgements import Regime

Pair = tuple[Record, Record]  # the run in the precision that is compared with, and the one that is judged
FEWEST = 3  # pairs that a plan asks for
REGIME = "a regime in which the actors decide: --calibrate shows whether they do"
VARIABLE = "QUARL_ACTORQ_RUNS"  # names the folder of the records


def read_records(folder: Path) -> list[Record]:
    """All records below a folder: files of its own, and of runs' folders."""
    return [read_record(path) for path in sorted({*folder.glob("*.json"), *folder.rglob(RECORD)})]


def pair_records(
    records: Sequence[Record], algo: str, environment: str, precision: str, base: str = BASE
) -> list[Pair]:
    """Runs in `precision`, each with its twin in `base`; StoreError where a run is there twice."""
    named: dict[str, dict[tuple[str, ...], Record]] = {precision: {}, base: {}}
    for record in records:
        settings = record["settings"]
        of = named.get(settings["precision"])
        if of is None or (settings["algo"], settings["environment"]) != (algo, environment):
            continue
        if of.setdefault(list_shared_settings(record), record) is not record:
            what = f"{algo} {environment} {settings['precision']}, seed {settings['seed']}"
            raise StoreError(f"two records of one run ({what}); keep one of them")
    return [(named[base][name], record) for name, record in named[precision].items() if name in named[base]]


def judge_time(pairs: Sequence[Pair], threshold: float, clock: str = "elapsed") -> Verdict:
    """Whether the judged runs reach 95% of their twins' best return within `threshold` of the twins' seconds."""
    times = [[find_time(run["curve"], find_target(pair[0]), clock) for run in pair] for pair in pairs]
    missed = sum(ours is None for _, ours in times)
    ratios = [ours / theirs for theirs, ours in times if ours is not None and theirs]
    verdict = _limit(judge_ratio(ratios, pairs, threshold), pairs, threshold, clock)
    if not missed:
        return verdict
    # A run that never arrives has no ratio; without it, the others would only flatter.
    outcome = Outcome.INCONCLUSIVE if verdict.outcome is Outcome.SUPPORTED else verdict.outcome
    caveats = (f"{missed} of {len(pairs)} runs never reach the target", *verdict.caveats)
    return replace(verdict, outcome=outcome, caveats=caveats, needed=verdict.needed or "longer runs")


def judge_rate(pairs: Sequence[Pair], threshold: float, clock: str = "elapsed") -> Verdict:
    """Whether an environment step of the judged runs, end to end, takes at most `threshold` of the twins' seconds."""
    costs = [[run[clock] / run["steps"] for run in pair] for pair in pairs]
    return _limit(judge_ratio([ours / theirs for theirs, ours in costs], pairs, threshold), pairs, threshold, clock)


def judge_stages(pairs: Sequence[Pair], stages: Sequence[str], threshold: float) -> Verdict:
    """Whether an actor's CPU time in `stages`, per step, is within `threshold` of the twin's."""
    times = [[sum(read_acting(run).per_step("cpu")[stage] for stage in stages) for run in pair] for pair in pairs]
    return judge_ratio([ours / theirs for theirs, ours in times], pairs, threshold)


def judge_ratio(ratios: Sequence[float], pairs: Sequence[Pair], threshold: float) -> Verdict:
    """A verdict on the typical ratio: Student's t over seeds, of logarithms."""
    estimate = float(np.exp(np.mean(np.log(ratios)))) if ratios else None
    interval: tuple[float, float] | None = None
    if len(ratios) > 1:
        interval = stats.bound_ratio(ratios)[1:]
    outcome = conclude(interval, -math.inf, threshold)
    return Verdict(
        outcome=outcome,
        estimate=estimate,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        threshold=threshold,
        scope=name_scope(len(ratios)),
        policies=len(ratios),
        episodes=0,
        distinct_episodes=0,
        needed=f"more seeds than {max(len(ratios), FEWEST - 1)}" if outcome.open else "",
        caveats=_name_conditions(pairs),
    )


def judge_return(pairs: Sequence[Pair], margin: float) -> Verdict:
    """Whether the learner's best policies keep 1 - margin of their twins' returns on the same test episodes."""
    reference, candidate = (_measure([pair[side] for pair in pairs]) for side in (0, 1))
    cap = find_environment(pairs[0][0]["settings"]["environment"]).cap
    return judge_retention(reference, candidate, margin=margin, cap=cap)


def find_floor(record: Record, clock: str) -> float:
    """The share of an fp32 run's time, by `clock`, that is left when its actors infer and load in none (Amdahl).

    0 where their threads' clocks count as much as the whole run's.
    """
    if clock == "elapsed":
        return 1 / read_costs(record).ceiling
    step = read_acting(record).per_step("cpu")
    return max(0.0, float(1 - sum(step[stage] for stage in QUANTIZED) * 1e-6 * record["steps"] / record["cpu"]))


def collect_pairs(item: JudgedClaim, regime: "Regime | None") -> Evidence:
    """The pairs of an item's runs in $QUARL_ACTORQ_RUNS; MissingBaseline, with the command, where there are none."""
    (cell,) = item.cases
    folder = os.environ.get(VARIABLE)
    records = [] if not folder else read_records(Path(folder))
    chosen = [record for record in records if regime is None or regime.holds(record)]
    pairs = pair_records(chosen, cell.algo, cell.environment, cell.scheme)
    if not pairs:
        options = "" if regime is None else regime.options
        raise MissingBaseline(
            f"no paired runs of {cell.algo} {cell.environment} in {folder or VARIABLE}: make them with "
            f"`quarl actorq {cell.algo} {cell.environment} --precision fp32,{cell.scheme} --seeds 0..2{options}`"
        )
    return Evidence(own=pairs)


def _limit(verdict: Verdict, pairs: Sequence[Pair], threshold: float, clock: str) -> Verdict:
    """Undecidable where no precision of the actors could have met the threshold; the ceiling is said in any case."""
    floor = min(find_floor(base, clock) for base, _ in pairs)
    could = f"at best {floor:.2f} could come out here, a ceiling of {find_ceiling(1 - floor):.2f}x (Amdahl)"
    verdict = replace(verdict, caveats=(could, *verdict.caveats))
    if verdict.outcome is Outcome.SUPPORTED or floor <= threshold:
        return verdict
    return replace(verdict, outcome=Outcome.UNDECIDABLE, needed=REGIME)


def _name_conditions(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """How many actors, of which size, on how many cores, beside which load."""
    runs = [run for pair in pairs for run in pair]
    actors = {run["settings"]["actors"] for run in runs}
    sizes = {"x".join(map(str, run["settings"]["widths"])) for run in runs}
    cores = {run["machine"]["cores"] for run in runs if "machine" in run}
    loads = [run["load"] for run in runs]
    gpus = {run["gpu"] for run in runs if run.get("gpu")}
    return (
        f"actors: {_join(actors)}, of {_join(sizes)}" + (f", on {_join(cores)} cores" if cores else ""),
        *([f"learner on {_join(gpus)}"] if gpus else []),
        f"under a load of {min(loads):.1f} to {max(loads):.1f}",
    )


def _join(values: Iterable[Any]) -> str:
    return " or ".join(map(str, sorted(values)))


def _measure(records: Sequence[Record]) -> Measurement:
    scores: list[dict[str, Any]] = [record["scores"]["fp32"] for record in records]
    first, count = scores[0]["first_environment_seed"], scores[0]["episodes"]
    seeds = tuple(range(first, first + count))
    return Measurement(
        policies=tuple(f"seed{record['settings']['seed']}" for record in records),
        environment_seeds=seeds,
        episodes=name_seeds(seeds),
        returns=tuple(tuple(score["returns"]) for score in scores),
        lengths=tuple((0,) * count for _ in scores),  # not recorded, and not judged
    )
