"""Table 5 and Figure 5 on the page: what mixed precision gains over sizes, and learning curves in two precisions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from quarl_bench.judging.times.step_times import read_size
from quarl_bench.report.page.kinds.curves import LearningCurve, draw_curves
from quarl_bench.report.page.plots import INK, MARKERS, SERIES, open_panel
from quarl_bench.training.recipes import FP32
from quarl_bench.training.sb3.step_times import LEAN
from quarl_bench.views.rows import Row


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
        for name in row.gains or {}:
            found.setdefault((str((row.device or {})["machine"]), row.scheme), {})[str(name)] = row
    for (machine, precision), cells in sorted(found.items()):
        names = tuple(sorted(cells))
        gains = {kind: {name: (cells[name].gains or {})[name][kind] for name in names} for kind in (FP32, LEAN)}
        printed = {name: (cells[name].paper_gains or {}).get(name) for name in names}
        paper = {name: float(gain) for name, gain in printed.items() if gain is not None}
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
        for cell, arms in (row.runs or {}).items():
            found.setdefault(str(cell), {}).update(arms)
    for cell, arms in sorted(found.items()):
        yield ConvergenceView(f"convergence: {cell}", arms)


def draw_convergence(view: ConvergenceView) -> Figure:
    """Mean return over training seeds, with its 90% interval as a band."""
    curves = [
        LearningCurve(name, [[(float(p["timesteps"]), float(p["mean"])) for p in points] for points in seeds])
        for name, seeds in view.arms.items()
    ]
    return draw_curves(curves, "environment steps")
