"""Reading a synthesised netlist (Yosys' JSON): cells, and look-up tables between flip-flops."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quarl_bench.backends.fpga.explore.part import Resources

LUTS = ("LUT1", "LUT2", "LUT3", "LUT4", "LUT5", "LUT6", "INV")
SHIFTERS = ("SRL16E", "SRLC32E")  # look-up tables as shift registers: the clock breaks the path through them
PASSIVE = ("CARRY4", "MUXF7", "MUXF8")  # beside the look-up tables, with wires of their own
REGISTERED = ("MREG", "PREG")  # parameters of a DSP48E1 that break the path through it
COUNTING = 2  # version of what is read from a netlist: cached results of another are not read again


@dataclass(frozen=True)
class LongestPath:
    """The longest path between two registers: look-up tables on it, where it begins and ends."""

    levels: int
    begin: str
    end: str


def count_cells(module: dict[str, Any], packed: int) -> Resources:
    """Resources of a module of the netlist; `packed` is Yosys' estimate of logic cells, without shift registers."""
    kinds = Counter(cell["type"] for cell in module["cells"].values())
    flip_flops = sum(count for kind, count in kinds.items() if kind.startswith("FD"))
    shifters = sum(kinds[kind] for kind in SHIFTERS)
    return Resources(
        luts_raw=sum(kinds[kind] for kind in LUTS) + shifters,
        luts=packed + shifters,
        ffs=flip_flops,
        block_rams=kinds["RAMB36E1"] + kinds["RAMB18E1"] / 2,
        dsps=kinds["DSP48E1"],
    )


def load_module(path: Path, top: str) -> dict[str, Any]:
    """The cells, ports and nets of module `top` in a JSON netlist of Yosys."""
    module: dict[str, Any] = json.loads(path.read_bytes())["modules"][top]
    return module


def find_longest_path(module: dict[str, Any]) -> LongestPath:
    """Most look-up tables between two registers, memories or pins; carries and multiplexers count as wires."""
    cells = module["cells"]
    outputs, inputs = {}, {}
    for name, cell in cells.items():
        if _is_transparent(cell):
            outputs[name], inputs[name] = _bits(cell, "output"), _bits(cell, "input")
    driver = {bit: name for name, bits in outputs.items() for bit in bits}
    level: dict[str, int] = {}
    before: dict[str, str | None] = {}
    for name in _sort_cells(inputs, driver):
        sources = [driver[bit] for bit in inputs[name] if bit in driver]
        last = max(sources, key=lambda source: level[source], default=None)
        level[name] = (level[last] if last else 0) + (cells[name]["type"] in LUTS)
        before[name] = last
    if not level:
        return LongestPath(0, "", "")
    end = max(level, key=lambda name: level[name])
    begin = end
    while (previous := before[begin]) is not None:
        begin = previous
    return LongestPath(level[end], begin, end)


def _is_transparent(cell: dict[str, Any]) -> bool:
    if cell["type"] == "DSP48E1":
        return not any(int(cell["parameters"].get(name, "0"), 2) for name in REGISTERED)
    return cell["type"] in LUTS or cell["type"] in PASSIVE


def _bits(cell: dict[str, Any], direction: str) -> list[int]:
    directions = cell["port_directions"]
    ports = cell["connections"].items()
    return [bit for port, bits in ports if directions[port] == direction for bit in bits if isinstance(bit, int)]


def _sort_cells(inputs: dict[str, list[int]], driver: dict[int, str]) -> list[str]:
    """Cells after those that drive them."""
    waits = {name: len({driver[bit] for bit in bits if bit in driver}) for name, bits in inputs.items()}
    readers: dict[str, set[str]] = {name: set() for name in inputs}
    for name, bits in inputs.items():
        for bit in bits:
            if bit in driver:
                readers[driver[bit]].add(name)
    ready = [name for name, count in waits.items() if count == 0]
    for name in ready:  # grows while it is read
        for reader in readers[name]:
            waits[reader] -= 1
            if waits[reader] == 0:
                ready.append(reader)
    return ready
