"""A design's folder: Verilog named after the layers, memories, constraints, and a manifest.

    rtl/*.v            the library, as it stands in hw/fpga/rtl
    policy.v           one module for each layer, and `policy` that links them
    policy_axis.v      the same behind AXI streams
    policy_uart.v      the same behind a serial line, for an Arty A7
    policy_tanh.v      with tanh_table.v behind it, which turns outputs into actions; only where that is wanted
    *.mem              weights, thresholds and tables, a hexadecimal word a line
    policy*.xdc        the clock
    design.json        what is in here: interface, folding, hash

Interface of `policy`: valid/ready streams. One beat of the input carries `lanes` values, value i of a beat in bits
[i * bits, (i + 1) * bits), and an observation takes ceil(inputs / lanes) beats, the last filled up with anything. The
output is the whole action in one beat, held until it is taken: a value in the bits of the output format, 32 of a sum.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from quarl_bench.backends.fpga.explore.folding import FoldingPlan
from quarl_bench.backends.fpga.explore.rom import Rom
from quarl_bench.backends.fpga.rtl.table import STAGE, TANH_TOP, ActionTable, write_stage, write_tanh
from quarl_bench.backends.fpga.rtl.top import TOP, write_policy
from quarl_bench.backends.fpga.rtl.wrapper import AXIS_TOP, UART_TOP, write_axis, write_uart
from quarl_bench.backends.fpga.tools.library import find_hardware
from quarl_bench.errors import DeploymentError
from quarl_bench.system.atomic import new_folder

MANIFEST = "design.json"
SCHEMA_VERSION = 1

_CONSTRAINTS = Template("""\
# $megahertz MHz; set_input_delay and set_output_delay are the board's, so paths from and to pins are left open.
create_clock -period $period -name clk [get_ports {$clock}]
""")


@dataclass(frozen=True)
class Design:
    """The folder of a design: Verilog, memories, constraints and manifest."""

    folder: Path
    plan: FoldingPlan
    axis_bits: int
    table: ActionTable | None = None


def write_design(
    plan: FoldingPlan,
    folder: Path,
    *,
    axis_bits: int = 32,
    megahertz: float = 100.0,
    table: ActionTable | None = None,
) -> Design:
    """Write `folder`, or replace the design there; `axis_bits` is the width of the AXI streams."""
    if axis_bits < 8 or axis_bits % 8:
        raise DeploymentError(f"fpga: AXI streams of {axis_bits} bits; give a multiple of 8")
    design = Design(folder, plan, axis_bits, table)
    library = sorted((find_hardware() / "rtl").glob("*.v"))
    with new_folder(folder, MANIFEST) as work:
        for rom in plan.roms:
            (work / f"{rom.name}.mem").write_text(_format_rom(rom))
        (work / "rtl").mkdir()
        for source in library:
            (work / "rtl" / source.name).write_bytes(source.read_bytes())
        (work / f"{TOP}.v").write_text(write_policy(plan))
        (work / f"{AXIS_TOP}.v").write_text(write_axis(plan, axis_bits))
        (work / f"{UART_TOP}.v").write_text(write_uart(plan))
        (work / f"{UART_TOP}.xdc").write_bytes((find_hardware() / "arty" / f"{UART_TOP}.xdc").read_bytes())
        clocks = {TOP: "clk", AXIS_TOP: "aclk"}
        if table is not None:
            clocks[TANH_TOP] = "clk"
            rom = table.build_rom(plan)
            (work / f"{rom.name}.mem").write_text(_format_rom(rom))
            (work / f"{STAGE}.v").write_text(write_stage(rom, plan))
            (work / f"{TANH_TOP}.v").write_text(write_tanh(plan))
        for name, clock in clocks.items():
            values = {"megahertz": f"{megahertz:g}", "period": f"{1e3 / megahertz:.3f}", "clock": clock}
            (work / f"{name}.xdc").write_text(_CONSTRAINTS.substitute(values))
        (work / MANIFEST).write_text(json.dumps(describe(design, megahertz), indent=2) + "\n")
    return design


def describe(design: Design, megahertz: float) -> dict[str, Any]:
    """What the manifest of the folder says: layers, lanes, clock and cycles."""
    plan = design.plan
    first, last = plan.stages[0], plan.stages[-1]
    return {
        "schema_version": SCHEMA_VERSION,
        "design_sha256": plan.digest.hex(),
        "megahertz": megahertz,
        "cycles": plan.cycles,
        "input": {
            "values": first.inputs,
            "bit_width": first.in_bits,
            "signed": first.in_signed,
            "lanes": plan.in_lanes,
            "beats": plan.in_beats,
        },
        "output": {"values": last.outputs, "bit_width": plan.out_bits, "signed": plan.out_signed},
        "actions": None if design.table is None else "float32, one a beat",
        "axis_bits": design.axis_bits,
        "folding": asdict(plan.folding),
        "layers": [
            {
                "name": unit.name,
                "form": "columns" if not unit.rows else "rows" if unit.taps is None else "sparse rows",
                "inputs": unit.stage.inputs,
                "outputs": unit.stage.outputs,
                "weight_bits": unit.stage.weight_bits,
                "sum_bits": unit.stage.sum_bits,
                "out_bits": unit.stage.out_bits,
                "zeros": round(unit.stage.zeros, 4),
                "multipliers": unit.multipliers,
                "beats": unit.beats,
                "search_steps": [search.step for search in unit.searches],
            }
            for unit in plan.units
        ],
        "block_rams": sorted(plan.in_blocks),
        "dsps": sorted(plan.in_dsps),
    }


def _format_rom(rom: Rom) -> str:
    digits = -(-rom.width // 4)
    return "".join(f"{word:0{digits}x}\n" for word in rom.words)
