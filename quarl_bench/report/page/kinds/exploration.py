"""Learning curves of arms beside each other: how peaked the policy is, and what it scores (QuaRL, ICLR, Figure 1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from quarl_bench.report.page.plots import SERIES, fix_style, tidy
from quarl_bench.views.rows import Row

ARMS = ("fp32", "layernorm", "qat8", "qat6", "qat4", "qat2")
WEIGHT = 0.95  # of the exponential average, as in the paper, for every `STEPS`-th of a run
STEPS = 200


@dataclass(frozen=True)
class LearningView:
    """The arms of one cell, in one set of states; each maps timesteps, variance and return to a number per point."""

    title: str
    arms: dict[str, list[dict[str, float]]]


def view_learning(rows: Sequence[Row]) -> Iterator[LearningView]:
    """One view per cell and set of states for which claims about exploration brought curves."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        for cell, arms in (row.curves or {}).items():
            found.setdefault((str(cell), str(row.states)), {}).update(arms)
    for (cell, states), arms in sorted(found.items()):
        ordered = {name: arms[name] for name in (*ARMS, *sorted(arms.keys() - set(ARMS))) if name in arms}
        yield LearningView(f"{cell}: exploration in {states} states", ordered)


def draw_learning(view: LearningView) -> Figure:
    """Variance above, return below, over environment steps; means over training seeds, smoothed."""
    with fix_style():
        figure = Figure((6.4, 4.4), layout="constrained")
        panels = figure.subplots(2, 1, sharex=True)
        for index, (name, points) in enumerate(view.arms.items()):
            steps = [float(point["timesteps"]) for point in points]
            for axes, key in zip(panels, ("variance", "return"), strict=True):
                values = smooth([float(point[key]) for point in points])
                style = (0, (4, 2)) if name == "fp32" else "solid"
                axes.plot(steps, values, color=SERIES[index % len(SERIES)], linewidth=1.2, linestyle=style, label=name)
        for axes, label in zip(panels, ("variance of actions", "mean return"), strict=True):
            axes.set_ylabel(label)
            tidy(axes)
        panels[1].set_xlabel("environment steps")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False, fontsize=8)
        return figure


def smooth(values: Sequence[float]) -> list[float]:
    """Exponential average without the bias of its start; values (n,) stand at equal distances over a whole run."""
    weight = WEIGHT ** (STEPS / max(len(values), 1))
    total = norm = 0.0
    averages = []
    for value in values:
        total, norm = weight * total + (1 - weight) * value, weight * norm + (1 - weight)
        averages.append(total / norm)
    return averages
