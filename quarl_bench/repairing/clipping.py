"""Clipped ranges: every activation's range is shrunk as far as serves the decisions, layer by layer.

A smaller range has finer steps and cuts off what is rare. How far is best differs from layer to layer, and squared
error does not say it: what counts is how much worse the chosen actions are by fp32's own outputs.
"""

from dataclasses import dataclass, replace
from typing import Self

from quarl_bench.policies.policy import IntegerPolicy, Observations, PolicyNet, QuantizedPolicy
from quarl_bench.quantization.calibration.formats import Range
from quarl_bench.quantization.calibration.ranges import Ranges, observe_activations
from quarl_bench.quantization.net import Outputs
from quarl_bench.quantization.ptq import quantize_to_ranges
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.bias import correct_biases
from quarl_bench.repairing.candidate import compare_decisions, spread

SHARES = 0.85, 0.7, 0.55, 0.4, 0.28, 0.2  # of a range that are tried
STATES, IMAGES = 1_000, 200  # in which decisions are compared


@dataclass(frozen=True, eq=False)
class Clipping:
    """A policy in the form that is rounded, what its activations cover, and states in which decisions are compared.

    `states` (n, ...) are raw observations, `outputs` (n, outputs) the form's there.
    """

    form: PolicyNet
    scheme: Scheme
    ranges: Ranges
    states: Observations
    outputs: Outputs

    @classmethod
    def prepare(cls, policy: PolicyNet, scheme: Scheme, calibration: Observations) -> Self:
        """That of fp32's `policy` under `scheme`, from raw calibration states (n, ...) in visiting order."""
        form = policy.rewrite(scheme, calibration)
        ranges = observe_activations(form.net, scheme, form.transform.apply(calibration))
        states = spread(calibration, IMAGES if form.transform.image else STATES)
        return cls(form, scheme, ranges, states, form.outputs(states))

    def search(self) -> IntegerPolicy:
        """The integers of the ranges that decide best, with corrected biases.

        From the input on, each range takes the share of least regret, of these the one of most agreement; it stays
        whole where no share is better.
        """
        ranges = self.ranges
        best = self.round(ranges)
        loss = self._measure(best)
        for point in range(1 + len(self.form.net.layers) - self.scheme.wide_outputs):  # wide outputs have no range
            whole = ranges
            for share in SHARES:
                tried = shrink(whole, point, share)
                policy = self.round(tried)
                if (found := self._measure(policy)) < loss:
                    ranges, best, loss = tried, policy, found
        return best

    def round(self, ranges: Ranges) -> IntegerPolicy:
        """The integers that cover `ranges`, with corrected biases."""
        net = quantize_to_ranges(self.form.net, self.scheme, ranges)
        rounded = QuantizedPolicy(self.form.transform, net, self.form.head).to_integer()
        return correct_biases(self.form, rounded, self.states)

    def _measure(self, policy: IntegerPolicy) -> tuple[float, float]:
        agreement, regret = compare_decisions(self.form, policy, self.states, self.outputs)
        return regret, -agreement


def shrink(ranges: Ranges, point: int, share: float) -> Ranges:
    """`ranges` with a share of one: of the input's (point 0), or of a layer's output (1 is the first layer's)."""
    if point == 0:
        return replace(ranges, input=_scale(ranges.input, share))
    outputs = list(ranges.outputs)
    outputs[point - 1] = _scale(outputs[point - 1], share)
    return replace(ranges, outputs=tuple(outputs))


def _scale(span: Range, share: float) -> Range:
    return Range(span.low * share, span.high * share)
