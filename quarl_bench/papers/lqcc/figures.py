"""LQCC's figures as data: for each task a panel of series beside the band of fp32, from anybody's runs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from quarl_bench.judging.claim import Claim
from quarl_bench.papers.lqcc.arms import Curves
from quarl_bench.papers.lqcc.judgements.tasks import SCOPES
from quarl_bench.papers.lqcc.noise_robustness import NoiseCurve
from quarl_bench.papers.lqcc.parity import Returns, Summary
from quarl_bench.papers.lqcc.runs.tasks import Tasks
from quarl_bench.papers.lqcc.selection import BITS, WIDTHS, Configuration, Finder, Selection
from quarl_bench.views.panel import MeanPoint, Panel

AUTHORS, OURS, PRINTED = "the authors' runs", "our runs", "as printed"
PRINTED_POLICIES = 10  # of a cell of Table 6


def mean_point(x: float, returns: Returns) -> MeanPoint:
    """The SD is that of a sample; 0 for a single policy."""
    return _summary_point(x, Summary.of(returns))


def show_scopes(figure: str, source: str, tasks: Tasks) -> list[Panel]:
    """Figures 1 and 6: return against bits, a series per scope; tasks of which no quantized policy is there are out."""
    panels = []
    for task, (reference, find) in tasks.items():
        series = {scope: _sweep(find, ((b, Configuration.of_scope(scope, b)) for b in BITS)) for scope in SCOPES}
        panels += _panel(figure, source, task, "bits", series, reference)
    return panels


def show_steps(source: str, tasks: Tasks, chosen: Mapping[str, Configuration]) -> list[Panel]:
    """Figures 4 and 5: return against hidden width at the chosen core, and against input bits at the chosen width."""
    panels = []
    for task, end in chosen.items():
        reference, find = tasks[task]
        widths = _sweep(find, ((width, Configuration(end.core, width)) for width in WIDTHS))
        inputs = _sweep(find, ((bits, replace(end, input=bits)) for bits in BITS))
        narrow = {f"core of {end.core} bits": widths} | _mark(widths, end.width)
        fewer = {replace(end, input=8).scheme: inputs} | _mark(inputs, end.input)
        panels += _panel("Figure 4", source, task, "hidden width", narrow, reference)
        panels += _panel("Figure 5", source, task, "input bits", fewer, reference)
    return panels


def show_selection(source: str, selection: Selection) -> list[Panel]:
    """What a selection tried, a panel per step, and what each step chose; the band's half is the rule's SD."""
    mean = selection.reference.mean
    band = MeanPoint(0.0, mean, mean - selection.decisions[0].band[0])
    steps = dict.fromkeys(decision.step for decision in selection.decisions)
    panels = []
    for number, step in enumerate(steps, 1):
        tried = [decision for decision in selection.decisions if decision.step == step]
        matching = [decision for decision in tried if decision.matches]
        series = {"tried": tried, "chosen": matching[:1]}
        shown = {
            name: tuple(_summary_point(d.value, d.found) for d in group) for name, group in series.items() if group
        }
        panels.append(Panel("Selection", source, f"step {number}", step.title, shown, band))
    return panels


def show_learning(task: str, arms: Mapping[str, Curves], figure: str = "Figure 2") -> list[Panel]:
    """Return against environment steps, a series per arm, over its training seeds."""
    series = {}
    for arm, curves in arms.items():
        points = zip(*curves, strict=False)
        series[arm] = tuple(
            mean_point(float(group[0]["timesteps"]), np.array([point["mean"] for point in group])) for group in points
        )
    return _panel(figure, OURS, task, "environment steps", series)


def show_noise(task: str, arms: Mapping[str, NoiseCurve]) -> list[Panel]:
    """Figure 3: return against the SD of noise on the normalized observation."""
    series = {
        arm: tuple(
            mean_point(sigma, np.mean(point.returns, axis=1))
            for sigma, point in zip(curve.sigmas, curve.points, strict=True)
        )
        for arm, curve in arms.items()
    }
    return _panel("Figure 3", OURS, task, "SD of noise", series)


def show_normalization(source: str, tasks: Mapping[str, tuple[Summary, Summary]]) -> list[Panel]:
    """Table 6: fp32 on raw (0) and on normalized (1) observations."""
    panels = []
    for task, pair in tasks.items():
        places = tuple(MeanPoint(float(x), found.mean, found.sd) for x, found in enumerate(pair))
        panels += _panel("Table 6", source, task, "0 raw, 1 normalized", {"fp32": places})
    return panels


def read_normalization(claim: Claim) -> dict[str, tuple[Summary, Summary]]:
    """Table 6 as numbers.toml has it: raw and normalized, ten policies each."""
    found = {}
    for (_, task), row in claim.values.items():
        raw, normalized = (Summary(row[n], row[f"{n}_sd"], PRINTED_POLICIES) for n in ("raw", "normalized"))
        found[task] = raw, normalized
    return found


def _summary_point(x: float, found: Summary) -> MeanPoint:
    return MeanPoint(x, found.mean, found.sd if found.policies > 1 else 0.0)


def _sweep(find: Finder, values: Iterable[tuple[int, Configuration]]) -> tuple[MeanPoint, ...]:
    found = ((x, find(configuration)) for x, configuration in values)
    return tuple(mean_point(x, returns) for x, returns in found if returns is not None)


def _mark(places: Iterable[MeanPoint], value: int) -> dict[str, tuple[MeanPoint, ...]]:
    """A series of its own for what was selected; nothing where it was not run."""
    return {"selected": tuple(found for found in places if found.x == value)}


def _panel(
    figure: str,
    source: str,
    task: str,
    axis: str,
    series: Mapping[str, tuple[MeanPoint, ...]],
    reference: Returns | None = None,
) -> list[Panel]:
    """The panel, unless it has nothing to show."""
    shown = {name: places for name, places in series.items() if places}
    if not shown:
        return []
    band = None if reference is None or not reference.size else mean_point(0.0, reference)
    return [Panel(figure, source, task, axis, shown, band)]
