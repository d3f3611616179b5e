"""A stacked plot of where actors' time goes, a bar per run."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from quarl_bench.report.page.plots import INK, SERIES, fix_style, tidy

SHADES = (1.0, 0.45)  # of a series colour; there are more stages than colours


def draw_breakdown(bars: Sequence[tuple[str, Mapping[str, float]]], what: str = "microseconds per step") -> Figure:
    """One bar per (name, value by stage), stages stacked in order; those that are nothing everywhere are left out."""
    stages = [stage for stage in bars[0][1] if any(parts[stage] > 0 for _, parts in bars)]
    with fix_style():
        figure = Figure(figsize=(1.8 + 0.9 * len(bars), 3.4), layout="constrained")
        axes = figure.subplots()
        bottoms = [0.0] * len(bars)
        for index, stage in enumerate(stages):
            values = [parts[stage] for _, parts in bars]
            color, shade = SERIES[index % len(SERIES)], SHADES[index // len(SERIES) % len(SHADES)]
            axes.bar(range(len(bars)), values, 0.6, bottoms, color=color, alpha=shade, label=stage)
            bottoms = [bottom + value for bottom, value in zip(bottoms, values, strict=True)]
        axes.set_xticks(range(len(bars)), [name for name, _ in bars], rotation=20 if len(bars) > 3 else 0)
        axes.set_ylabel(what, color=INK)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
        tidy(axes)
    return figure
