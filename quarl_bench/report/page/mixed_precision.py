"""Table 5 and Figure 5 on the page: what mixed precision gains over sizes, and learning curves in two precisions."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from quarl_bench.judging.claim import JudgedCase, JudgedClaim
from quarl_bench.judging.statistics import average_tasks
from quarl_bench.judging.step_times import PAPER_CAVEATS, describe_step_time, mean_speedup, read_size
from quarl_bench.report.page.plots import INK, MARKERS, SERIES, open_panel
from quarl_bench.report.rows import state_verdict
from quarl_bench.spec import Outcome, Source, Verdict
from quarl_bench.training.recipes import FP32
from quarl_bench.training.sb3.step_times import LEAN, StepTimes
from quarl_bench.views.rows import Row


def build_step_time_row(
    judged: JudgedCase | JudgedClaim,
    times: StepTimes,
    verdict: Verdict,
    environments: Sequence[str],
    precision: str,
    notes: Sequence[str],
) -> Row:
    """Everything about one item of Table 5 on one device, in built-in types. Gains stand in it only if not void."""
    cell = judged.case if isinstance(judged, JudgedCase) else judged.cases[0]
    values = judged.claim.values
    paper = {name: values[cell.algo, name] for name in environments if (cell.algo, name) in values}
    minutes = [f"paper, {name}: {row['fp32']:g} -> {row['mixed']:g} min" for name, row in paper.items()]
    single = paper.get(environments[0]) if len(environments) == 1 else None
    refuted = verdict.outcome is Outcome.REFUTED
    return {
        "kind": "timing",
        "id": judged.id,
        "claim": judged.claim.id,
        "rule": judged.claim.judgement.name,
        "algo": cell.algo,
        "env": cell.environment if isinstance(judged, JudgedCase) else "",
        "scheme": precision,
        "origin": "",
        "board": cell.board,
        "measured": {name: statistics.median(times.steps[f"{read_size(name)}-{precision}"]) for name in environments},
        "reference": {
            name: {kind: statistics.median(times.steps[f"{read_size(name)}-{kind}"]) for kind in (FP32, LEAN)}
            for name in environments
        },
        "gains": {} if times.faults else {name: _list_gains(times, name, precision) for name in environments},
        "device": {
            "name": times.device,
            "machine": times.machine,
            "cores": times.cores,
            "divisor": times.divisor,
        },
        "versions": times.versions,
        "faults": list(times.faults),
        "paper": None if single is None else {"reference": single["fp32"], "value": single["mixed"], "unit": "min"},
        "paper_gains": {name: row["fp32"] / row["mixed"] for name, row in paper.items()},
        "source": str(Source.MEASURED),
        "sentence": judged.claim.says,
        "locus": judged.claim.where,
        "known": "; ".join(notes) if refuted else "",
        **state_verdict(verdict),
        "caveats": [*([] if refuted else notes), *minutes, *PAPER_CAVEATS],
        "line": describe_step_time(verdict),
    }


def _list_gains(times: StepTimes, environment: str, precision: str) -> dict[str, list[float]]:
    """Estimate and limits over each fp32 contender."""
    size = read_size(environment)
    return {kind: list(mean_speedup(times.list_gains(size, precision, kind))) for kind in (FP32, LEAN)}


@dataclass(frozen=True)
class StepTimeView:
    """Gains on one machine in one precision: by fp32 contender, by policy, estimate and limits; and the paper's."""

    title: str
    policies: tuple[str, ...]
    gains: dict[str, dict[str, list[float]]]
    paper: dict[str, float]


@dataclass(frozen=True)
class ConvergenceView:
    """Learning curves of one cell: by precision, one per training seed."""

    title: str
    arms: dict[str, list[list[dict[str, Any]]]]


def view_step_times(rows: Sequence[Row]) -> Iterator[StepTimeView]:
    """One view per machine and precision for which rows brought gains."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        for name in row.get("gains") or {}:
            found.setdefault((str(row["device"]["machine"]), str(row["scheme"])), {})[str(name)] = row
    for (machine, precision), cells in sorted(found.items()):
        names = tuple(sorted(cells))
        gains = {kind: {name: cells[name]["gains"][name][kind] for name in names} for kind in (FP32, LEAN)}
        paper = {name: float(cells[name]["paper_gains"][name]) for name in names if name in cells[name]["paper_gains"]}
        yield StepTimeView(f"{precision} on {machine}", names, gains, paper)


def draw_step_times(view: StepTimeView) -> Figure:
    """How many times as fast a step is, with 90% limits; the paper's printed minutes as rings."""
    with open_panel(("", "times as fast"), columns=3) as (figure, axes):
        axes.axhline(1.0, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
        for index, (kind, gains) in enumerate(view.gains.items()):
            places = [position + 0.08 * (index - 0.5) for position in range(len(view.policies))]
            middle, low, high = ([float(gains[name][side]) for name in view.policies] for side in range(3))
            label = {FP32: "over stable-baselines3's fp32", LEAN: "over a good fp32"}[kind]
            axes.plot(places, middle, color=SERIES[index], marker=MARKERS[index], linewidth=1.2, label=label)
            axes.vlines(places, low, high, color=SERIES[index], linewidth=1.0)
        shown = [name for name in view.policies if name in view.paper]
        rings = [view.paper[name] for name in shown]
        places = [float(view.policies.index(name)) for name in shown]
        axes.plot(places, rings, color=INK, marker="o", markerfacecolor="none", linestyle="", label="paper")
        axes.set_xticks(range(len(view.policies)), [f"Policy {read_size(name).upper()}" for name in view.policies])
    return figure


def view_convergence(rows: Sequence[Row]) -> Iterator[ConvergenceView]:
    """One view per cell for which claims about precisions of training brought curves."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        for cell, arms in (row.get("runs") or {}).items():
            found.setdefault(str(cell), {}).update(arms)
    for cell, arms in sorted(found.items()):
        yield ConvergenceView(f"convergence: {cell}", arms)


def draw_convergence(view: ConvergenceView) -> Figure:
    """Mean return over training seeds, with its 90% interval as a band."""
    with open_panel(("environment steps", "mean return"), columns=4) as (figure, axes):
        for index, (name, curves) in enumerate(view.arms.items()):
            groups = [[float(p["mean"]) for p in points] for points in zip(*curves, strict=False)]
            steps = [float(point["timesteps"]) for point in curves[0]][: len(groups)]
            axes.plot(steps, list(map(statistics.fmean, groups)), color=SERIES[index], linewidth=1.2, label=name)
            if len(curves) > 1:
                _, low, high = zip(*map(average_tasks, groups), strict=True)
                axes.fill_between(steps, low, high, color=SERIES[index], alpha=0.15, linewidth=0)
    return figure
