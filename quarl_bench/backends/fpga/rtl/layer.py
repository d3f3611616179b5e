"""The Verilog of one layer: its matrix-vector unit, its memories, and the search that requantizes its sums."""

from collections.abc import Iterator
from string import Template

from quarl_bench.backends.fpga.explore.folding import FoldingPlan, SearchStage, Unit
from quarl_bench.backends.fpga.explore.rom import Rom

_LAYER = Template("""\
// $name: $outputs neurons over $inputs inputs of $in_bits bits, $out_bits bits out.
// $form
module $name (
    input clk,
    input reset,
    input in_valid,
    output in_ready,
    input [$in_top:0] in_data,  // $in_lanes values
    output out_valid,
    output out_last,
    input next_ready,
    output [$out_top:0] out_data  // $lanes values
);
  wire enable = $enable;
  wire sums_valid, sums_last;
  wire [$sums_top:0] sums;
  wire [$address_top:0] next_weight;
  wire [$weights_top:0] weights;
$weights
$unit
  wire [$group_top:0] next_group0;
$group0
$searches
  quarl_delay #(.BITS(2), .CYCLES($stages)) delay_valid (
      .clk(clk), .reset(reset), .enable(enable), .in({sums_last, sums_valid}), .out({out_last, out_valid})
  );
endmodule
""")

_ROWS = Template("""\
  quarl_rows #(
      .INPUTS($inputs),
      .IN_BITS($in_bits),
      .IN_SIGNED($in_signed),
      .LANES($lanes),
      .BEATS($beats),
      .BEAT_BITS($address_bits),
      .WEIGHT_BITS($weight_bits),
      .SUM_BITS($sum_bits),
      .LEVELS($levels),
      .DSP($dsp),
      .PIPELINED($pipelined)
  ) unit (
      .clk(clk),
      .reset(reset),
      .enable(enable),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .next_row(next_weight),
      .weights(weights),
      .next_ready(next_ready),
      .done(out_valid && out_last),
      .out_valid(sums_valid),
      .out_last(sums_last),
      .sums(sums)
  );""")

_SPARSE = Template("""\
  // Each row reads $terms inputs of its own: the rest of its weights is zero.
  wire [$gathered_top:0] gathered = {$gathered};
  reg flying;
  wire start = next_ready && ($pipelined || !flying);
  wire step = in_valid && start;
  wire keep;
  assign in_ready = start;
  assign next_weight = 0;
  always @(posedge clk)
    if (reset) flying <= 1'b0;
    else if (step) flying <= 1'b1;
    else if (out_valid) flying <= 1'b0;
  genvar lane;
  generate
    if ($delay == 1) begin : undelayed
      assign keep = step;
    end else begin : delayed
      quarl_delay #(.BITS(1), .CYCLES($delay - 1)) delay_keep (
          .clk(clk), .reset(reset), .enable(enable), .in(step), .out(keep)
      );
    end
    for (lane = 0; lane < $lanes; lane = lane + 1) begin : rows
      quarl_dot #(
          .TERMS($terms),
          .IN_BITS($in_bits),
          .IN_SIGNED($in_signed),
          .WEIGHT_BITS($weight_bits),
          .SUM_BITS($sum_bits),
          .LEVELS($levels),
          .DSP(0)
      ) dot (
          .clk(clk),
          .enable(enable),
          .keep(keep),
          .values(gathered[lane*$terms*$in_bits+:$terms*$in_bits]),
          .weights(weights[lane*$terms*$weight_bits+:$terms*$weight_bits]),
          .sum(sums[lane*$sum_bits+:$sum_bits])
      );
    end
  endgenerate
  quarl_delay #(.BITS(2), .CYCLES($delay)) delay_sums (
      .clk(clk), .reset(reset), .enable(enable), .in({step, step}), .out({sums_last, sums_valid})
  );""")

_COLUMNS = Template("""\
  quarl_columns #(
      .TERMS($in_lanes),
      .BEATS($in_beats),
      .BEAT_BITS($address_bits),
      .IN_BITS($in_bits),
      .IN_SIGNED($in_signed),
      .LANES($lanes),
      .GROUPS($beats),
      .GROUP_BITS($group_bits),
      .WEIGHT_BITS($weight_bits),
      .PART_BITS($part_bits),
      .SUM_BITS($sum_bits),
      .LEVELS($levels),
      .DSP($dsp)
  ) unit (
      .clk(clk),
      .reset(reset),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .next_column(next_weight),
      .weights(weights),
      .next_ready(next_ready),
      .done(out_valid && out_last),
      .out_valid(sums_valid),
      .out_last(sums_last),
      .sums(sums)
  );""")

_ROM = Template("""\
  quarl_rom #(
      .WIDTH($width),
      .DEPTH($depth),
      .ADDRESS_BITS($address_bits),
      .BLOCK($block),
      .FILE("$name.mem")
  ) rom_$name (
      .clk(clk),
      .enable(enable),
      .address($address),
      .data($data)
  );""")

_GROUP0 = Template("""\
  reg [$group_top:0] group0;  // which beat of sums
  assign next_group0 = reset ? $group_bits'd0 : !sums_valid ? group0 : sums_last ? $group_bits'd0 : group0 + 1'b1;
  always @(posedge clk) group0 <= next_group0;""")

_SEARCH = Template("""\
  wire [$found_top:0] found${index}_lane$lane, held${index}_lane$lane;
  wire [$sum_top:0] sum${index}_lane$lane;
  quarl_search #(
      .SUM_BITS($sum_bits),
      .KNOWN($known),
      .STEP($step)
  ) search${index}_lane$lane (
      .clk(clk),
      .enable(enable),
      .sum($sum),
      .known($before),
      .thresholds($thresholds),
      .found(found${index}_lane$lane),
      .found_held(held${index}_lane$lane),
      .sum_held(sum${index}_lane$lane)
  );""")


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
        "stages": len(unit.searches),
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
    return _LAYER.substitute(
        {key: value for key, value in (values | tops).items() if key != "weights"},
        form=form,
        weights=_write_rom(unit.weights, "next_weight", "weights", plan),
        unit=_find_template(unit).substitute(values),
        group0=_GROUP0.substitute(group_top=tops["group_top"], group_bits=values["group_bits"])
        if unit.beats > 1
        else "  assign next_group0 = 1'b0;",
        searches="\n".join(_write_searches(unit, plan)),
    )


def _gather(unit: Unit) -> str:
    """The inputs of each row, one row after the other, where rows are sparse; the first lowest."""
    bits, taps = unit.stage.in_bits, () if unit.taps is None else unit.taps.ravel()[::-1].tolist()
    return ", ".join(f"in_data[{tap * bits}+:{bits}]" for tap in taps)


def _find_template(unit: Unit) -> Template:
    if unit.rows:
        return _ROWS if unit.taps is None else _SPARSE
    return _COLUMNS


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
            yield _SEARCH.substitute(
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
    for lane in range(unit.lanes):
        yield f"  assign out_data[{lane * bits}+:{bits}] = held{final}_lane{lane}[{bits - 1}:0];"


def _address(rom: Rom, search: SearchStage, unit: Unit, roms: tuple[Rom, ...]) -> str:
    """Of a stage's thresholds, one cycle ahead: the beat of sums, and what the stage before finds in this cycle."""
    if search.index == 0:
        return "next_group0"
    found = f"found{search.index - 1}_lane{roms.index(rom)}[{search.known - 1}:0]"
    return f"{{group{search.index - 1}, {found}}}" if unit.beats > 1 else found


def _write_rom(rom: Rom, address: str, data: str, plan: FoldingPlan) -> str:
    if rom.depth == 1:
        return f"  assign {data} = {rom.width}'h{rom.words[0]:x};"
    return _ROM.substitute(
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
