"""Nets for designs, and reports as Vivado writes them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import inputs_of, make_net


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
