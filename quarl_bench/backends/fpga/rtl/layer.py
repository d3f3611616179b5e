"""The Verilog of one layer: its matrix-vector unit, its memories, and the search that requantizes its sums.

A layer that returns its sums has an adder for each lane in the place of the search, and no register behind it.

A table that falls is a memory for each lane behind the search. It is read by what the last stage finds in this cycle,
so its word is there in the cycle in which the count would be: it takes no cycle of its own.
"""

from collections.abc import Iterator

from quarl_bench.backends.fpga.explore.folding import FoldingPlan
from quarl_bench.backends.fpga.explore.rom import Rom
from quarl_bench.backends.fpga.explore.unit import SearchStage, Unit
from quarl_bench.backends.template import fill, fill_part


def write_layer(unit: Unit, plan: FoldingPlan) -> str:
    """The module called after the layer."""
    stage = unit.stage
    values = {
        "name": unit.name,
        "outputs": stage.outputs,
        "inputs": stage.inputs,
        "in_bits": stage.in_bits,
        "in_signed": int(stage.in_signed),
        "out_bits": stage.out_bits,
        "in_lanes": stage.inputs if unit.rows else unit.in_lanes,
        "terms": unit.terms,
        "gathered": _gather(unit),
        "gathered_top": unit.multipliers * stage.in_bits - 1,
        "delay": unit.dot_delay,
        "lanes": unit.lanes,
        "beats": unit.beats,
        "in_beats": unit.in_beats,
        "weight_bits": stage.weight_bits,
        "sum_bits": stage.sum_bits,
        "part_bits": 0 if unit.rows else unit.part_bits,
        "levels": unit.levels,
        "pipelined": int(plan.pipelined),
        "enable": "next_ready" if plan.pipelined else "1'b1",
        "dsp": int(unit.name in plan.in_dsps),
        "address_bits": count_bits(unit.weights.depth),
        "group_bits": count_bits(unit.beats),
    }
    tops = {
        "in_top": (stage.inputs if unit.rows else unit.in_lanes) * stage.in_bits - 1,
        "out_top": unit.lanes * stage.out_bits - 1,
        "sums_top": unit.lanes * stage.sum_bits - 1,
        "address_top": count_bits(unit.weights.depth) - 1,
        "weights_top": unit.weights.width - 1,
        "group_top": count_bits(unit.beats) - 1,
    }
    form = (
        f"Rows: {unit.lanes} a cycle, {unit.beats} cycles."
        if unit.rows
        else f"Columns: {unit.in_lanes} a cycle, {unit.in_beats} cycles; then {unit.lanes} sums a cycle, "
        f"{unit.beats} cycles."
    )
    return fill(
        "layer.v",
        **values,
        **tops,
        form=form,
        weights=_write_rom(unit.weights, "next_weight", "weights", plan),
        unit=fill_part(f"{_name_form(unit)}.v", **values),
        group0=fill_part("group.v", group_top=tops["group_top"], group_bits=values["group_bits"])
        if unit.beats > 1
        else "  assign next_group0 = 1'b0;",
        results="\n".join(
            _write_searches(unit, plan) if unit.offsets is None else _write_sums(unit, unit.offsets, plan)
        ),
        valid=fill_part("delayed_valid.v", stages=len(unit.searches))
        if unit.searches
        else "  assign {out_last, out_valid} = {sums_last, sums_valid};",
    )


def _gather(unit: Unit) -> str:
    """The inputs of each row, one row after the other, where rows are sparse; the first lowest."""
    bits, taps = unit.stage.in_bits, () if unit.taps is None else unit.taps.ravel()[::-1].tolist()
    return ", ".join(f"in_data[{tap * bits}+:{bits}]" for tap in taps)


def _name_form(unit: Unit) -> str:
    if unit.rows:
        return "rows" if unit.taps is None else "sparse_rows"
    return "columns"


def _write_searches(unit: Unit, plan: FoldingPlan) -> Iterator[str]:
    """Search stages of all lanes; `group<i>` says which beat of sums stage i works on."""
    sum_bits, bits, group_bits = unit.stage.sum_bits, unit.stage.out_bits, count_bits(unit.beats)
    for search, roms in zip(unit.searches, unit.thresholds, strict=True):
        index = search.index
        size = ((1 << search.step) - 1) * sum_bits
        if index and unit.beats > 1 and index < len(unit.searches) - 1:
            yield f"  reg [{group_bits - 1}:0] group{index};"
            yield f"  always @(posedge clk) group{index} <= group{index - 1};"
        for rom in roms:
            yield f"  wire [{rom.width - 1}:0] {rom.name}_data;"
            yield _write_rom(rom, _address(rom, search, unit, roms), f"{rom.name}_data", plan)
        for lane in range(unit.lanes):
            rom = roms[lane if index else 0]
            before = f"held{index - 1}_lane{lane}" if index else "1'b0"
            yield fill_part(
                "search.v",
                index=index,
                lane=lane,
                found_top=search.known + search.step,
                sum_top=sum_bits - 1,
                sum_bits=sum_bits,
                known=search.known,
                step=search.step,
                sum=f"sum{index - 1}_lane{lane}" if index else f"sums[{lane * sum_bits}+:{sum_bits}]",
                before=before,
                thresholds=f"{rom.name}_data" if index else f"{rom.name}_data[{lane * size}+:{size}]",
            )
    final = len(unit.searches) - 1
    if not unit.tables:
        for lane in range(unit.lanes):
            yield f"  assign out_data[{lane * bits}+:{bits}] = held{final}_lane{lane}[{bits - 1}:0];"
    for lane, rom in enumerate(unit.tables):
        found = f"found{final}_lane{lane}[{unit.stage.count_bits - 1}:0]"
        yield _write_rom(rom, found, f"out_data[{lane * bits}+:{bits}]", plan)


def _write_sums(unit: Unit, offsets: Rom, plan: FoldingPlan) -> Iterator[str]:
    """The sums of all lanes with their offsets, in the cycle in which the sums leave the unit."""
    bits, sum_bits = offsets.bits, unit.stage.sum_bits
    yield f"  wire [{offsets.width - 1}:0] offsets;"
    yield _write_rom(offsets, "next_group0", "offsets", plan)
    for lane in range(unit.lanes):
        total = f"$signed(sums[{lane * sum_bits}+:{sum_bits}]) + $signed(offsets[{lane * bits}+:{bits}])"
        yield f"  assign out_data[{lane * bits}+:{bits}] = {total};"


def _address(rom: Rom, search: SearchStage, unit: Unit, roms: tuple[Rom, ...]) -> str:
    """Of a stage's thresholds, one cycle ahead: the beat of sums, and what the stage before finds in this cycle."""
    if search.index == 0:
        return "next_group0"
    found = f"found{search.index - 1}_lane{roms.index(rom)}[{search.known - 1}:0]"
    return f"{{group{search.index - 1}, {found}}}" if unit.beats > 1 else found


def _write_rom(rom: Rom, address: str, data: str, plan: FoldingPlan) -> str:
    if rom.depth == 1:
        return f"  assign {data} = {rom.width}'h{rom.words[0]:x};"
    return fill_part(
        "rom.v",
        name=rom.name,
        width=rom.width,
        depth=rom.depth,
        address_bits=count_bits(rom.depth),
        block=int(rom.name in plan.in_blocks),
        address=address,
        data=data,
    )


def count_bits(count: int) -> int:
    """Of an address of `count` words; at least 1."""
    return max(1, (count - 1).bit_length())
