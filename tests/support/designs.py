"""Nets for designs, a net in Verilator, and reports as Vivado writes them."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from quarl_bench.backends.fpga.explore.folding import Folding, FoldingPlan, choose_steps
from quarl_bench.backends.fpga.rtl.design import write_design
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.fpga.tools.simulation import Simulation
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet, require_integer
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import inputs_of, make_net, normal

FALLING = (
    Activation.SILU,
    Activation.GELU,
    Activation.GELU_TANH,
    Activation.HARDSWISH,
)  # before they rise
UNLIKE = np.float32([0.01, 1, 30, 1000])  # ranges of features that one scale does not hold


def quantize(net, scheme: str) -> IntegerNet:
    quantized = quantize_net(net, Scheme.parse(scheme), inputs_of(net, 200, seed=1, spread=2.0))
    assert isinstance(quantized, QuantizedNet)
    return IntegerNet.from_quantized(quantized)


def quantize_tanh_outputs() -> IntegerNet:
    """Its outputs are -115..115: the table of a Tanh that stays within +-0.9."""
    net = make_net(4, 8, 3, spread=3.0)
    integers = quantize(
        replace(net, layers=(net.layers[0], replace(net.layers[1], activation=Activation.TANH))), "int8"
    )
    first, last = integers.layers
    return replace(integers, layers=(first, replace(last, output=replace(last.output, scale=np.float32(0.0115)))))


def rewrite(scheme: str) -> IntegerPolicy:
    """Four features of unlike ranges and hidden ReLUs, so that `eq` and `cle` have something to do."""
    policy = PolicyNet(ObservationTransform((4,)), make_net(4, 8, 6, 2), ActionHead(HeadKind.ARGMAX))
    states = normal(np.random.default_rng(0), 300, 4, spread=2.0) * UNLIKE
    return require_integer(policy.quantize(Scheme.parse(scheme), states))


def make_bare(net: Net) -> Net:
    """`net` with nothing behind its last layer."""
    return replace(net, layers=(*net.layers[:-1], replace(net.layers[-1], activation=Activation.NONE)))


def make_falling(activation: Activation, *, at_end: bool = False) -> Net:
    """A small net whose hidden layers end in `activation`, and its last one too where that is wanted."""
    net = make_net(4, 8, 6, 2, activation=activation)
    return replace(net, layers=(*net.layers[:-1], replace(net.layers[-1], activation=activation))) if at_end else net


def simulate(net: IntegerNet, q: Integers) -> Integers:
    """Output integers of a design of `net`: its input four values a cycle, half of each layer's neurons a cycle."""
    stages = split(net)
    lanes = (min(4, stages[0].inputs), *(-(-stage.outputs // 2) for stage in stages))
    plan = FoldingPlan(stages, Folding(lanes, choose_steps(stages)))
    with tempfile.TemporaryDirectory() as scratch:
        design = write_design(plan, Path(scratch) / "design")
        return Simulation(design, Path(scratch) / "cache").run(q).outputs


TIMING = """\
------------------------------------------------------------------------------------------------
| Design Timing Summary
| ---------------------
------------------------------------------------------------------------------------------------

    WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns)      THS(ns)
    -------      -------  ---------------------  -------------------      -------      -------
      {slack}        0.000                      0                 8456        0.054        0.000

------------------------------------------------------------------------------------------------
| Clock Summary
| -------------
------------------------------------------------------------------------------------------------

Clock  Waveform(ns)       Period(ns)      Frequency(MHz)
-----  ------------       ----------      --------------
clk    {{0.000 5.000}}      10.000          100.000
"""


UTILIZATION = """\
+----------------------------+------+-------+------------+-----------+-------+
|          Site Type         | Used | Fixed | Prohibited | Available | Util% |
+----------------------------+------+-------+------------+-----------+-------+
| Slice LUTs*                | 6913 |     0 |          0 |     10400 | 66.47 |
|   LUT as Logic             | 6913 |     0 |          0 |     10400 | 66.47 |
| Slice Registers            | 6393 |     0 |          0 |     20800 | 30.74 |
| Block RAM Tile    | 13.5 |     0 |          0 |        25 | 54.00 |
| DSPs           |   17 |     0 |          0 |        45 | 37.78 |
"""


POWER = """\
+--------------------------+--------------+
| Total On-Chip Power (W)  | 0.331        |
| Dynamic (W)              | 0.258        |
| Confidence Level         | Low          |
+--------------------------+--------------+
"""


def write_reports(folder: Path, slack: str = "0.123", power: str = POWER) -> Path:
    (folder / "timing_summary.rpt").write_text(TIMING.format(slack=slack))
    (folder / "utilization.rpt").write_text(UTILIZATION)
    (folder / "power.rpt").write_text(power)
    return folder
