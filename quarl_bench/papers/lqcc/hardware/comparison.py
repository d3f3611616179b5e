"""LQCC's sentences on hardware, judged for FINN's formulas and for our designs, each on its own.

FINN's side stores the thresholds of hidden layers and leaves the output's out, which its estimate would count with more
look-up tables than the paper reports for whole designs. Both sides are estimates, and neither is a win over the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quarl_bench.backends.fpga.explore.explorer import explore
from quarl_bench.backends.fpga.explore.finn import Dataflow, build_dataflow, fold
from quarl_bench.backends.fpga.explore.part import Part
from quarl_bench.backends.fpga.rtl.stage import Stage
from quarl_bench.papers.lqcc.hardware.architectures import Architecture


@dataclass(frozen=True)
class Fit:
    """The scarcest resource of a design and its share of the part; above 1 it does not fit."""

    resource: str
    share: float

    @property
    def fits(self) -> bool:
        """Whether the part holds it."""
        return self.share <= 1


def fold_finn(architecture: Architecture, *, output_thresholds: bool = True) -> Dataflow:
    """FINN's dataflow of an architecture, folded for the paper's target."""
    bits = architecture.output_bits if output_thresholds else 0
    dataflow = build_dataflow(architecture.widths, architecture.input_bits, architecture.core_bits, bits)
    return fold(dataflow, architecture.actions_per_second)


def fit_finn(architecture: Architecture, part: Part) -> Fit:
    """Whether FINN's formulas make it fit at its smallest: nothing folded, the output's thresholds left out."""
    unfolded = build_dataflow(architecture.widths, architecture.input_bits, architecture.core_bits, 0)
    shares = {"LUT": unfolded.luts / part.luts, "BRAM": unfolded.block_rams / part.block_rams}
    return _worst(shares)


def fit_ours(stages: Sequence[Stage], part: Part, in_lanes: int | None = None) -> Fit:
    """Whether the smallest of our foldings fits, by estimate."""
    candidates = explore(stages, part, in_lanes, spare=0.0)
    return Fit(*min((c.resources.bottleneck(part) for c in candidates), key=lambda bottleneck: bottleneck[1]))


def fit_memory(stages: Sequence[Stage], part: Part) -> Fit:
    """Whether weights and thresholds fit its block RAM, whatever the folding: a bound on designs that store them."""
    bits = sum(stage.weight.size * stage.weight_bits + stage.thresholds.size * stage.sum_bits for stage in stages)
    return Fit("memory", bits / (part.block_rams * 36 * 1024))


def _worst(shares: dict[str, float]) -> Fit:
    name = max(shares, key=lambda key: shares[key])
    return Fit(name, shares[name])
