"""A design's folder: Verilog named after the layers, memories, constraints, and a manifest.

    rtl/*.v            the library, as it stands in hw/fpga/rtl
    policy.v           one module for each layer, and `policy` that links them
    policy_axis.v      the same behind AXI streams
    policy_uart.v      the same behind a serial line, for an Arty A7
    *.mem              weights and thresholds, a hexadecimal word a line
    policy*.xdc        the clock
    design.json        what is in here: interface, folding, hash

Interface of `policy`: valid/ready streams. One beat of the input carries `lanes` values, value i of a beat in bits
[i * bits, (i + 1) * bits), and an observation takes ceil(inputs / lanes) beats, the last filled up with anything. The
output is the whole action in one beat, held until it is taken.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from quarl_bench.atomic import new_folder
from quarl_bench.deploy.fpga.folding import Plan, Rom, SearchStage, Unit
from quarl_bench.deploy.fpga.library import find_hardware
from quarl_bench.errors import DeploymentError

MANIFEST = "design.json"
SCHEMA_VERSION = 1
TOP = "policy"
AXIS_TOP = "policy_axis"
UART_TOP = "policy_uart"
BAUD = 115_200
BOARD_CLOCK = 100_000_000  # Hz, of an Arty A7
PATIENCE = 0.05  # seconds of silence that end a frame on the serial line

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
      .clk(clk), .reset(reset), .in({sums_last, sums_valid}), .out({out_last, out_valid})
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
      .DSP($dsp)
  ) unit (
      .clk(clk),
      .reset(reset),
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
      .sum($sum),
      .known($before),
      .thresholds($thresholds),
      .found(found${index}_lane$lane),
      .found_held(held${index}_lane$lane),
      .sum_held(sum${index}_lane$lane)
  );""")

_TOP = Template("""\
// $inputs inputs of $in_bits bits ($in_kind), $in_lanes a beat, $in_beats beats; $outputs outputs of $out_bits bits.
// $cycles cycles from the first beat to the action.
module policy (
    input clk,
    input reset,
    input in_valid,
    output in_ready,
    input [$in_top:0] in_data,
    output out_valid,
    input out_ready,
    output [$out_top:0] out_data
);
  wire valid0 = in_valid;
  wire ready0;
  wire [$in_top:0] data0 = in_data;
  assign in_ready = ready0;
$links
$trace
  wire [$action_top:0] counts;
  quarl_collect #(
      .BITS($last_bits),
      .BEATS($last_beats),
      .BEAT_BITS($last_beat_bits)
  ) action (
      .clk(clk),
      .reset(reset),
      .in_valid(valid$last),
      .in_ready(ready$last),
      .in_data(data$last),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(counts)
  );

  // Counts of thresholds become the output format's integers.
  genvar i;
  generate
    for (i = 0; i < $outputs; i = i + 1) begin : outputs
      wire signed [31:0] count = counts[i*$count_bits+:$count_bits];
      wire signed [31:0] value = count + ($lowest);
      assign out_data[i*$out_bits+:$out_bits] = value[$out_bits-1:0];
    end
  endgenerate
endmodule
""")

_LINK = Template("""\
  wire valid$after, ready$after, last$after;
  wire [$top:0] data$after;
  $name $name (
      .clk(clk),
      .reset(reset),
      .in_valid(valid$before),
      .in_ready(ready$before),
      .in_data(data$before),
      .out_valid(valid$after),
      .out_last(last$after),
      .next_ready(ready$after),
      .out_data(data$after)
  );""")

_AXIS = Template("""\
// The policy behind AXI4-Stream: an observation in $in_count beats of $in_width bits, the action in $out_count beats of
// $out_width bits. Both are one string of bits, value i from bit i * width of a value, low bits first$padding.
module policy_axis (
    input aclk,
    input aresetn,
    input s_axis_tvalid,
    output s_axis_tready,
    input [$in_width_top:0] s_axis_tdata,
    input s_axis_tlast,
    output m_axis_tvalid,
    input m_axis_tready,
    output [$out_width_top:0] m_axis_tdata,
    output m_axis_tlast,
    output framing_error  // tlast came early or late since reset
);
  wire in_valid, in_ready, out_valid, out_ready;
  wire [$in_top:0] in_data;
  wire [$out_top:0] out_data;

  quarl_axis #(
      .IN_WIDTH($in_width),
      .IN_COUNT($in_count),
      .IN_BITS($in_bits),
      .COLLECT($collect),
      .OUT_WIDTH($out_width),
      .OUT_COUNT($out_count),
      .OUT_BITS($out_bits)
  ) streams (
      .clk(aclk),
      .reset(!aresetn),
      .s_valid(s_axis_tvalid),
      .s_ready(s_axis_tready),
      .s_data(s_axis_tdata),
      .s_last(s_axis_tlast),
      .m_valid(m_axis_tvalid),
      .m_ready(m_axis_tready),
      .m_data(m_axis_tdata),
      .m_last(m_axis_tlast),
      .framing_error(framing_error),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data)
  );

  policy policy (
      .clk(aclk),
      .reset(!aresetn),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data)
  );
endmodule
""")

_UART = Template("""\
// The policy behind a serial line, for an Arty A7: clk is its 100 MHz oscillator, resetn its red button.
module policy_uart #(
    parameter CLOCKS = $clocks,  // a bit: $baud baud
    parameter TIMEOUT = $timeout
) (
    input clk,
    input resetn,
    input rx,
    output tx
);
  reg [1:0] level;  // the button belongs to no clock
  always @(posedge clk) level <= {level[0], !resetn};
  wire reset = level[1];
  wire in_valid, in_ready, out_valid, out_ready;
  wire [$in_top:0] in_data;
  wire [$out_top:0] out_data;

  quarl_serial #(
      .LANES($in_lanes),
      .BEATS($in_beats),
      .IN_BITS($in_bits),
      .OUTPUTS($outputs),
      .OUT_BITS($out_bits),
      .OUT_SIGNED($out_signed),
      .DESIGN(256'h$design),  // its first byte lowest
      .CLOCKS(CLOCKS),
      .TIMEOUT(TIMEOUT)
  ) serial (
      .clk(clk),
      .reset(reset),
      .rx(rx),
      .tx(tx),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data)
  );

  policy policy (
      .clk(clk),
      .reset(reset),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data)
  );
endmodule
""")

_CONSTRAINTS = Template("""\
# $megahertz MHz; set_input_delay and set_output_delay are the board's, so paths from and to pins are left open.
create_clock -period $period -name clk [get_ports {$clock}]
""")


@dataclass(frozen=True)
class Port:
    """A stream: beats of one vector, and bits of a beat."""

    beats: int
    width: int

    @property
    def words(self) -> int:
        """Of 32 bits that hold a beat."""
        return -(-self.width // 32)


@dataclass(frozen=True)
class Design:
    """A design's folder."""

    folder: Path
    plan: Plan
    axis_bits: int


def write_design(plan: Plan, folder: Path, *, axis_bits: int = 32, megahertz: float = 100.0) -> Design:
    """Write `folder`, or replace the design there; `axis_bits` is the width of the AXI streams."""
    if axis_bits < 8 or axis_bits % 8:
        raise DeploymentError(f"fpga: AXI streams of {axis_bits} bits; give a multiple of 8")
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
        for name, clock in ((TOP, "clk"), (AXIS_TOP, "aclk")):
            values = {"megahertz": f"{megahertz:g}", "period": f"{1e3 / megahertz:.3f}", "clock": clock}
            (work / f"{name}.xdc").write_text(_CONSTRAINTS.substitute(values))
        (work / MANIFEST).write_text(json.dumps(describe(plan, axis_bits, megahertz), indent=2) + "\n")
    return Design(folder, plan, axis_bits)


def describe(plan: Plan, axis_bits: int, megahertz: float) -> dict[str, Any]:
    """The manifest."""
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
        "output": {"values": last.outputs, "bit_width": plan.out_bits, "signed": last.lowest < 0},
        "axis_bits": axis_bits,
        "folding": asdict(plan.folding),
        "layers": [
            {
                "name": unit.name,
                "form": "rows" if unit.rows else "columns",
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


def write_policy(plan: Plan) -> str:
    """The Verilog of `policy` and of its layers."""
    layers = "\n".join(_write_layer(unit, plan) for unit in plan.units)
    return f"// Generated by quarl_bench; design {plan.digest.hex()}.\n\n{layers}\n{_write_top(plan)}"


def axis_ports(plan: Plan, axis_bits: int) -> tuple[Port, Port]:
    """What `policy_axis` takes and gives for one observation."""
    beat = plan.in_lanes * plan.in_bits
    given = Port(-(-plan.stages[-1].outputs * plan.out_bits // axis_bits), axis_bits)
    if plan.in_beats == 1:
        return Port(-(-beat // axis_bits), axis_bits), given
    return Port(plan.in_beats, -(-beat // 8) * 8), given  # a beat of the stream is one of the policy


def write_axis(plan: Plan, axis_bits: int) -> str:
    """The Verilog of `policy_axis`."""
    beat = plan.in_lanes * plan.in_bits
    out_bits = plan.stages[-1].outputs * plan.out_bits
    taken, given = axis_ports(plan, axis_bits)
    collect = plan.in_beats == 1
    padding = "" if collect or taken.width == beat else f"; {taken.width - beat} bits fill up an input beat"
    return _AXIS.substitute(
        in_width=taken.width,
        in_width_top=taken.width - 1,
        in_count=taken.beats,
        in_bits=beat,
        in_top=beat - 1,
        collect=int(collect),
        out_width=given.width,
        out_width_top=given.width - 1,
        out_count=given.beats,
        out_bits=out_bits,
        out_top=out_bits - 1,
        padding=padding,
    )


def write_uart(plan: Plan) -> str:
    """The Verilog of `policy_uart`."""
    last = plan.stages[-1]
    return _UART.substitute(
        clocks=BOARD_CLOCK // BAUD,
        baud=BAUD,
        timeout=round(PATIENCE * BOARD_CLOCK),
        in_lanes=plan.in_lanes,
        in_beats=plan.in_beats,
        in_bits=plan.in_bits,
        in_top=plan.in_lanes * plan.in_bits - 1,
        outputs=last.outputs,
        out_bits=plan.out_bits,
        out_signed=int(last.lowest < 0),
        out_top=last.outputs * plan.out_bits - 1,
        design=plan.digest[::-1].hex(),
    )


def _write_top(plan: Plan) -> str:
    first, last = plan.units[0], plan.units[-1]
    links = [
        _LINK.substitute(name=unit.name, before=index, after=index + 1, top=unit.lanes * unit.stage.out_bits - 1)
        for index, unit in enumerate(plan.units)
    ]
    shown = [
        f'    if (valid{index + 1}) $$display("{unit.name} %h", data{index + 1});'.replace("$$", "$")
        for index, unit in enumerate(plan.units)
    ]
    trace = ["`ifdef QUARL_TRACE", "  always @(posedge clk) begin", *shown, "  end", "`endif"]
    return _TOP.substitute(
        inputs=first.stage.inputs,
        in_bits=plan.in_bits,
        in_kind="signed" if first.stage.in_signed else "unsigned",
        in_lanes=plan.in_lanes,
        in_beats=plan.in_beats,
        in_top=plan.in_lanes * plan.in_bits - 1,
        outputs=last.stage.outputs,
        out_bits=plan.out_bits,
        out_top=last.stage.outputs * plan.out_bits - 1,
        cycles=plan.cycles,
        links="\n".join(links),
        trace="\n".join(trace),
        last=len(plan.units),
        last_bits=last.lanes * last.stage.out_bits,
        last_beats=last.beats,
        last_beat_bits=_address_bits(last.beats),
        action_top=last.beats * last.lanes * last.stage.out_bits - 1,
        count_bits=last.stage.out_bits,
        lowest=last.stage.lowest,
    )


def _write_layer(unit: Unit, plan: Plan) -> str:
    stage = unit.stage
    values = {
        "name": unit.name,
        "outputs": stage.outputs,
        "inputs": stage.inputs,
        "in_bits": stage.in_bits,
        "in_signed": int(stage.in_signed),
        "out_bits": stage.out_bits,
        "in_lanes": stage.inputs if unit.rows else unit.in_lanes,
        "lanes": unit.lanes,
        "beats": unit.beats,
        "in_beats": unit.in_beats,
        "weight_bits": stage.weight_bits,
        "sum_bits": stage.sum_bits,
        "part_bits": unit.part_bits,
        "levels": unit.levels,
        "dsp": int(unit.name in plan.in_dsps),
        "stages": len(unit.searches),
        "address_bits": _address_bits(unit.weights.depth),
        "group_bits": _address_bits(unit.beats),
    }
    tops = {
        "in_top": (stage.inputs if unit.rows else unit.in_lanes) * stage.in_bits - 1,
        "out_top": unit.lanes * stage.out_bits - 1,
        "sums_top": unit.lanes * stage.sum_bits - 1,
        "address_top": _address_bits(unit.weights.depth) - 1,
        "weights_top": unit.weights.width - 1,
        "group_top": _address_bits(unit.beats) - 1,
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
        unit=(_ROWS if unit.rows else _COLUMNS).substitute(values),
        group0=_GROUP0.substitute(group_top=tops["group_top"], group_bits=values["group_bits"])
        if unit.beats > 1
        else "  assign next_group0 = 1'b0;",
        searches="\n".join(_write_searches(unit, plan)),
    )


def _write_searches(unit: Unit, plan: Plan) -> Iterator[str]:
    """Search stages of all lanes; `group<i>` says which beat of sums stage i works on."""
    sum_bits, bits, group_bits = unit.stage.sum_bits, unit.stage.out_bits, _address_bits(unit.beats)
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


def _write_rom(rom: Rom, address: str, data: str, plan: Plan) -> str:
    if rom.depth == 1:
        return f"  assign {data} = {rom.width}'h{rom.words[0]:x};"
    return _ROM.substitute(
        name=rom.name,
        width=rom.width,
        depth=rom.depth,
        address_bits=_address_bits(rom.depth),
        block=int(rom.name in plan.in_blocks),
        address=address,
        data=data,
    )


def _format_rom(rom: Rom) -> str:
    digits = -(-rom.width // 4)
    return "".join(f"{word:0{digits}x}\n" for word in rom.words)


def _address_bits(count: int) -> int:
    return max(1, (count - 1).bit_length())
