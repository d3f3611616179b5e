"""Whether an integer controller acts as the net that was trained (LQCC, section 2.3), state by state.

Training normalizes observations in float32, multiplies whole numbers carried by float32, and takes torch's tanh. What
is deployed normalizes in float64, compares sums with stored thresholds, and looks the action up in a table. From equal
input integers both compute the same output integers; an observation may still round to another input integer where
the two normalizations lie on either side of a tie.

Training's forward is computed from the exported integers. That these are the live net's is counted when a policy is
published, and stands in its manifest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import SpecError
from quarl_bench.judging.retention import name_scope
from quarl_bench.policies.action_table import look_up, tabulate_actions
from quarl_bench.policies.policy import IntegerPolicy, Observations
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.learned import run_integer_layers
from quarl_bench.spec import Outcome, Verdict
from quarl_bench.training.multi_seed.running_statistics import RunningStatistics

LAST_BITS = 1e-6  # of the action range: what two libraries' tanh may differ by


@dataclass(frozen=True)
class Agreement:
    """Counts of states in which something differs between training's forward and the deployed one."""

    states: int
    inputs: int  # an input integer
    outputs: int  # an output integer, from equal input integers
    actions: int  # the action, by more than the last bits of a tanh
    tie: float  # largest distance from a tie, in input steps, of the inputs that differ

    def describe(self) -> str:
        """Differing actions and their layers in one line."""
        return (
            f"{self.outputs:,} of {self.states:,} states differ in an output integer from equal input integers; "
            f"{self.inputs:,} round to another input integer, none farther than {self.tie:.1g} steps from a tie; "
            f"{self.actions:,} actions differ"
        )


def compare_forwards(policy: IntegerPolicy, observations: Observations) -> Agreement:
    """Both ways from raw observations (n, width) to actions; SpecError where nothing was normalized or tanh'ed."""
    normalization, head, net = policy.transform.normalization, policy.head, policy.net
    if normalization is None or head.low is None or head.high is None:
        raise SpecError("a controller of LQCC normalizes its observations and ends in a tanh; this policy does not")
    raw = torch.from_numpy(observations.astype(np.float32))[None]
    trained = RunningStatistics.of(normalization).normalize(raw)
    deployed = policy.transform.apply(observations)
    steps = deployed * (np.float32(1) / net.input.scale)
    ours, theirs = net.input.quantize(deployed), net.input.quantize(trained[0].numpy())
    moved = ours != theirs
    same = _run_trained(net, torch.from_numpy(net.input.dequantize(ours))[None])
    integers = net.run(ours)
    actions = look_up(tabulate_actions(policy), integers, net.output.format.minimum)
    outputs = torch.from_numpy(net.output.dequantize(_run_trained(net, trained)))
    scale, middle = (torch.from_numpy(v) for v in ((head.high - head.low) / 2, (head.high + head.low) / 2))
    expected = (outputs.tanh() * scale + middle).numpy()
    far = np.abs(actions - expected) > LAST_BITS * (head.high - head.low)
    return Agreement(
        states=len(observations),
        inputs=int(moved.any(axis=1).sum()),
        outputs=int((integers != same).any(axis=1).sum()),
        actions=int(far.any(axis=1).sum()),
        tie=float(np.abs(steps - np.floor(steps) - 0.5)[moved].max(initial=0.0)),
    )


def judge_agreement(found: Sequence[Agreement], threshold: float, missing: Sequence[str] = ()) -> Verdict:
    """Judge "the action is the trained one in at least this share of states", of these policies and states.

    All of them were counted, so that there is no interval; about other policies and states it says nothing.
    """
    if not found:
        return Verdict(Outcome.PARTIAL, None, None, None, threshold, name_scope(0), 0, 0, 0, missing=tuple(missing))
    states, other = sum(one.states for one in found), sum(one.actions for one in found)
    share = 1 - other / states
    return Verdict(
        Outcome.SUPPORTED if share >= threshold else Outcome.REFUTED, share, None, None, threshold,
        "these policies and states", len(found), 0, 0, caveats=tuple(one.describe() for one in found),
    )  # fmt: skip


def _run_trained(net: IntegerNet, inputs: torch.Tensor) -> Integers:
    """Output integers of the forward that training used, from float inputs (1, n, width)."""
    step, parts = _scalar(net.input.scale), [_scalar(net.input.scale).reciprocal()]
    for layer in net.layers:
        product, step = step * _scalar(layer.weight_scale), _scalar(layer.output.scale)
        parts += [_stack(layer.weight), _stack(layer.bias), product / step]
    formats = [net.input.format, *(layer.output.format for layer in net.layers)]
    with torch.no_grad():
        return run_integer_layers(inputs, formats, *parts)[0].numpy().astype(np.int64)


def _scalar(value: NDArray[np.float32] | np.float32) -> torch.Tensor:
    return torch.from_numpy(np.asarray(value, dtype=np.float32)).view(1, 1, 1)


def _stack(values: NDArray[np.integer]) -> torch.Tensor:  # type: ignore[type-arg]
    return torch.from_numpy(values.astype(np.float32))[None]
