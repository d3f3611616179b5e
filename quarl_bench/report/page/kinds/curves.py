"""Learning curves: the mean return over training seeds, with its interval as a band."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from quarl_bench.judging.statistics import bound_mean
from quarl_bench.report.page.plots import SERIES, open_panel

Points = Sequence[tuple[float, float]]  # of one training: where it is, and the return it has there


@dataclass(frozen=True)
class LearningCurve:
    """The trainings of one arm, one for each seed, whose points belong together in their order."""

    name: str
    seeds: Sequence[Points]


def draw_curves(curves: Sequence[LearningCurve], along: str) -> Figure:
    """Mean return `along` steps or seconds, with its 90% interval over two seeds or more.

    Seeds are as long as the shortest of them; a point stands at the mean of their places.
    """
    with open_panel((along, "mean return"), columns=4) as (figure, axes):
        for index, curve in enumerate(curves):
            groups = [*zip(*curve.seeds, strict=False)]
            places = [statistics.fmean(place for place, _ in group) for group in groups]
            returns = [[value for _, value in group] for group in groups]
            color = SERIES[index % len(SERIES)]
            axes.plot(places, [*map(statistics.fmean, returns)], color=color, linewidth=1.2, label=curve.name)
            if len(curve.seeds) > 1:
                _, low, high = zip(*map(bound_mean, returns), strict=True)
                axes.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)
    return figure
