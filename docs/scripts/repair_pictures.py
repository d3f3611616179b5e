"""The three pictures of docs/repair.md: why plain int8 fails. `python docs/scripts/repair_pictures.py [POLICY]`.

Drawn from a committed policy and the states that calibrate it; what they show is computed each time, nothing is stored.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from quarl_bench.checking.subject import Subject, open_subject
from quarl_bench.policies.policy import PolicyNet, require_integer
from quarl_bench.quantization.equalization import equalize_layers
from quarl_bench.quantization.net import Net
from quarl_bench.report.page.plots import INK, SERIES, open_panel, render_svg_file
from quarl_bench.system.atomic import write_file

DOCS = Path(__file__).parents[1]
POLICY = DOCS.parent / "baselines" / "policies" / "dqn-cartpole-seed0"


def main(arguments: list[str]) -> None:
    """Draw them for the policy that is named, or for the usual one."""
    subject = open_subject(Path(arguments[0]) if arguments else POLICY)
    drawn = {
        "repair-inputs": ("Ranges of the features, and one int8 step", draw_inputs(subject)),
        "repair-neurons": ("Ranges of the neurons' weights", draw_neurons(subject.stored.policy.net)),
        "repair-ties": ("Gaps between the two best Q-values, and one int8 step", draw_ties(subject)),
    }
    for name, (title, (figure, words)) in drawn.items():
        write_file(DOCS / "pictures" / f"{name}.svg", render_svg_file(figure, name, title, words))


def draw_inputs(subject: Subject) -> tuple[Figure, str]:
    """The largest magnitude of every feature over the calibration states, and the one step that all share."""
    policy = subject.stored.policy
    ranges = np.abs(policy.transform.apply(subject.observations)).max(axis=0)
    step = float(require_integer(subject.quantize("int8")).net.input.scale)
    with open_panel(("feature of the observation", "largest magnitude"), 2) as (figure, axes):
        axes.bar(np.arange(len(ranges)), ranges, color=SERIES[0], label="feature")
        axes.axhline(step, color=INK, linestyle="--", label="one int8 step")
        axes.set_xticks(np.arange(len(ranges)))
        use_logarithm(axes.yaxis)
    return figure, f"Magnitudes from {ranges.min():.3g} to {ranges.max():.3g}; one step is {step:.3g} for all."


def draw_neurons(net: Net) -> tuple[Figure, str]:
    """The range of each neuron's weights in the widest layer, before and after cross-layer equalization, sorted."""
    index = int(np.argmax([layer.weight.size for layer in net.layers]))
    before, after = (
        np.sort(np.abs(form.layers[index].weight.reshape(len(form.layers[index].bias), -1)).max(axis=1))[::-1]
        for form in (net, equalize_layers(net))
    )
    with open_panel((f"neurons of layer {index + 1}, sorted", "largest weight / the layer's"), 3) as (
        figure,
        axes,
    ):
        for values, label, color in ((before, "as trained", SERIES[0]), (after, "equalized (cle)", SERIES[1])):
            axes.plot(np.arange(len(values)), values / values.max(), label=label, color=color)
        axes.axhline(1 / 127, color=INK, linestyle="--", label="one int8 step")
        use_logarithm(axes.yaxis)
    steps = [float(np.median(values / values.max())) * 127 for values in (before, after)]
    return figure, f"The median neuron's largest weight is {steps[0]:.1f} steps as trained, {steps[1]:.1f} equalized."


def draw_ties(subject: Subject) -> tuple[Figure, str]:
    """How far fp32's two best outputs lie apart in the calibration states, and the step of the plain int8 output."""
    policy: PolicyNet = subject.stored.policy
    best = np.sort(policy.outputs(subject.observations), axis=1)
    gaps = np.sort(best[:, -1] - best[:, -2])
    step = float(require_integer(subject.quantize("int8")).net.output.scale)
    below = float((gaps < step).mean())
    with open_panel(("gap between the two best Q-values", "share of states with a smaller gap"), 2) as (figure, axes):
        axes.plot(gaps, np.linspace(0, 1, len(gaps)), color=SERIES[0], label="fp32")
        axes.axvline(step, color=INK, linestyle="--", label="one int8 step of the output")
        use_logarithm(axes.xaxis)
        axes.set_xlim(gaps[len(gaps) // 200], gaps[-1])
        axes.set_ylim(0, 1)
    return figure, f"In {below:.0%} of the states the gap is smaller than one step, {step:.3g}."


def use_logarithm(axis: Axis) -> None:
    """A logarithmic axis with plain numbers at powers of ten."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


if __name__ == "__main__":
    main(sys.argv[1:])
