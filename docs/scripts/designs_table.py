"""The table of docs/fpga.md: LQCC's Table 3 beside our designs, from the regression files of benches/lqcc/test_fpga."""

from pathlib import Path
from typing import Any

import yaml

from quarl_bench.papers.lqcc.hardware.architectures import ARCHITECTURES, Architecture
from quarl_bench.papers.lqcc.hardware.comparison import fold_finn
from quarl_bench.report.tables.markdown import write_table

NAMES = {
    "halfcheetah": "HalfCheetah",
    "walker2d": "Walker2d",
    "ant": "Ant",
    "humanoid": "Humanoid",
    "hopper": "Hopper",
    "reference": "HalfCheetah's reference",
}
HEAD = [
    "policy", "cycles", "an action every", "printed", "by FINN's formulas", "LUT", "FF", "BRAM", "DSP", "LUT levels",
]  # fmt: skip


def list_designs(folder: Path) -> list[str]:
    """Lines of Markdown: simulated cycles and estimated sizes of designs with random weights."""
    rows = [HEAD]
    for name, title in NAMES.items():
        architecture = ARCHITECTURES[name]
        cycles, size = (_read(folder / f"{kind}-{name}.yml") for kind in ("cycles", "resources"))
        numbers = (
            cycles["cycles"], cycles["interval"], architecture.paper_cycles, fold_finn(architecture).cycles,
            size["luts"], size["ffs"], size["block_rams"], size["dsps"], size["levels"],
        )  # fmt: skip
        rows.append([_describe(title, architecture), *(f"{number:,.6g}" for number in numbers)])
    return write_table(rows)


def _describe(title: str, architecture: Architecture) -> str:
    bits = f"{architecture.input_bits}-{architecture.core_bits}-{architecture.output_bits}"
    lanes = "" if architecture.in_lanes is None else f", {architecture.in_lanes} values a cycle"
    return f"{title}, {bits}, {architecture.widths[1]} wide{lanes}"


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data
