"""Vivado's reports as one row: what hw/fpga/vivado/build.tcl wrote, on a machine that has Vivado.

Timing is the vendor's static analysis after routing and power its estimator's figure, so both count as estimated.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from quarl_bench.backends.fpga.explore.part import Resources
from quarl_bench.errors import DeploymentError

REPORTS = ("timing_summary.rpt", "utilization.rpt", "power.rpt")
NUMBER = r"(-?[0-9]+(?:\.[0-9]+)?)"


@dataclass(frozen=True)
class Implementation:
    """A routed design. `slack` (ns) is that of the worst path at the constrained clock, negative when it fails."""

    resources: Resources
    megahertz: float
    slack: float
    watts: float

    @property
    def meets_timing(self) -> bool:
        """Whether every path is fast enough."""
        return self.slack >= 0

    def latency(self, cycles: int) -> float:
        """Seconds from observation to action, of so many simulated cycles."""
        return cycles / self.megahertz / 1e6

    def actions_per_second(self, interval: int) -> float:
        """One action an interval, in simulated cycles, never more than one a cycle."""
        return self.megahertz * 1e6 / interval

    def joules_per_action(self, interval: int) -> float:
        """At full rate, as LQCC's Table 3 counts."""
        return self.watts / self.actions_per_second(interval)


def read_reports(folder: Path) -> Implementation:
    """The reports in `folder`; DeploymentError names what is missing."""
    timing, utilization, power = (_read(folder / name) for name in REPORTS)
    luts = round(_find(utilization, rf"\|\s*Slice LUTs\*?\s*\|\s*{NUMBER}", folder / REPORTS[1], "Slice LUTs"))
    resources = Resources(
        luts_raw=luts,
        luts=luts,
        ffs=round(_find(utilization, rf"\|\s*Slice Registers\s*\|\s*{NUMBER}", folder / REPORTS[1], "Slice Registers")),
        block_rams=_find(utilization, rf"\|\s*Block RAM Tile\s*\|\s*{NUMBER}", folder / REPORTS[1], "Block RAM Tile"),
        dsps=round(_find(utilization, rf"\|\s*DSPs\s*\|\s*{NUMBER}", folder / REPORTS[1], "DSPs")),
    )
    where = folder / REPORTS[0]
    slack = _find(timing, rf"WNS\(ns\)[^\n]*\n[- ]+\n\s*{NUMBER}", where, "WNS(ns); was the clock constrained?")
    clock = rf"Waveform\(ns\)\s+Period\(ns\)\s+Frequency\(MHz\)[^\n]*\n[- ]+\n\S+\s+\{{[^}}]*\}}\s+{NUMBER}"
    period = _find(timing, clock, where, "Clock Summary")
    watts = _find(power, rf"\|\s*Total On-Chip Power \(W\)\s*\|\s*{NUMBER}", folder / REPORTS[2], "Total On-Chip Power")
    return Implementation(resources, 1e3 / period, slack, watts)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise DeploymentError(
            f"{path}: {error.strerror}; run hw/fpga/vivado/build.tcl in the design's folder"
        ) from error


def _find(text: str, pattern: str, path: Path, what: str) -> float:
    match = re.search(pattern, text)
    if match is None:
        raise DeploymentError(f"{path}: no {what}; run hw/fpga/vivado/build.tcl to its end")
    return float(match[1])
