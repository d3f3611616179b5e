"""Designs equal their golden model, whatever the folding; what cannot be a design is refused in one line."""

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarl_bench.backends.fpga.explore.estimate import estimate
from quarl_bench.backends.fpga.explore.explorer import (
    choose,
    explore,
    find_fastest,
    find_pareto,
    find_shortage,
    fits,
)
from quarl_bench.backends.fpga.explore.folding import Folding, FoldingPlan, choose_steps
from quarl_bench.backends.fpga.explore.part import PARTS, Part, find_part
from quarl_bench.backends.fpga.qonnx import write_differences, write_qonnx
from quarl_bench.backends.fpga.rtl.stage import signed_bits, split
from quarl_bench.backends.fpga.rtl.top import write_policy
from quarl_bench.backends.fpga.rtl.wrapper import write_axis
from quarl_bench.backends.fpga.tools.netlist import count_cells, find_longest_path
from quarl_bench.backends.fpga.tools.vivado import read_reports
from quarl_bench.backends.fpga.vectors import draw_inputs
from quarl_bench.errors import DeploymentError, SpecError
from quarl_bench.papers.lqcc.hardware.architectures import ARCHITECTURES, Architecture, draw_net, find_architecture
from quarl_bench.papers.lqcc.hardware.comparison import Fit
from quarl_bench.papers.lqcc.hardware.latency import judge_fit, judge_latency, judge_model, judge_speedup
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.spec import Outcome
from tests.support.designs import (
    FALLING,
    make_bare,
    make_falling,
    quantize,
    quantize_tanh_outputs,
    write_reports,
)
from tests.support.strategies import convolutions, make_net, perceptrons

SMALL = Architecture("small", (5, 8, 8, 3), 4, 2, 8, 1e6, 0)
PART = PARTS["xc7a15t"]


def run_stages(net: IntegerNet, q):
    stages = split(net)
    for stage in stages:
        q = stage.run(q)
    return q + stages[-1].lowest


def plan_small(lanes=(5, 2, 4, 3), **options) -> FoldingPlan:
    stages = split(draw_net(SMALL))
    return FoldingPlan(stages, Folding(lanes, options.pop("steps", None) or choose_steps(stages), **options))


# --- stages: integers, thresholds, integers --------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [Activation.ELU, Activation.SOFTPLUS, Activation.SELU, Activation.RELU6])
def test_a_table_that_never_falls_is_thresholds(activation) -> None:
    integers = quantize(make_net(5, 12, 8, 3, activation=activation), "int8")
    q = draw_inputs(split(integers), 2000)
    np.testing.assert_array_equal(run_stages(integers, q), integers.run(q))


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("scheme", ["int8", "int8pcpow2", "int6"])
@pytest.mark.parametrize("activation", FALLING)
def test_a_table_that_falls_is_thresholds_where_it_changes_and_a_memory(activation, scheme, at_end) -> None:
    integers = quantize(make_falling(activation, at_end=at_end), scheme)
    stages = split(integers)
    for stage, layer in zip(stages, integers.layers, strict=True):
        if layer.tabled is None or (np.diff(layer.table) >= 0).all():
            assert stage.table is None
            continue
        assert stage.thresholds.shape == (stage.outputs, len(stage.table) - 1)
        changes = np.flatnonzero(np.diff(layer.table))
        values = layer.table[np.append(0, changes + 1)]
        np.testing.assert_array_equal(stage.table[: len(values)] + stage.lowest, values)
        assert len(stage.table) < 2 * len(values)
        assert stage.table.min() == 0
        assert stage.highest < 1 << stage.out_bits
    assert stages[0].table is not None
    q = draw_inputs(stages, 2000)
    np.testing.assert_array_equal(run_stages(integers, q), integers.run(q))


@given(perceptrons(), st.sampled_from(["int8", "int4", "int2", "int8pow2", "int8sym"]), st.integers(0, 99))
def test_stages_equal_the_golden_model(net, scheme, seed) -> None:
    integers = quantize(net, scheme)
    stages = split(integers)
    q = draw_inputs(stages, 200, seed)
    np.testing.assert_array_equal(run_stages(integers, q), integers.run(q))
    for stage, following in pairwise(stages):
        assert following.in_bits == stage.out_bits
        assert following.high == stage.highest < 1 << stage.out_bits


def test_a_layer_that_uses_few_of_its_levels_has_a_narrow_link() -> None:
    """A table of a Tanh that holds two integers gives one bit, and one bit is what the next layer reads."""
    net = draw_net(SMALL)
    far = replace(net.layers[0].output, zero_point=net.layers[0].output.format.maximum)
    stages = split(replace(net, layers=(replace(net.layers[0], output=far), *net.layers[1:])))
    assert (stages[0].out_bits, stages[1].in_bits, stages[1].high) == (1, 1, 0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_random_architectures_use_their_levels(name: str) -> None:
    architecture = ARCHITECTURES[name]
    net = draw_net(architecture)
    q = draw_inputs(split(net), 300)
    np.testing.assert_array_equal(run_stages(net, q), net.run(q))
    hidden = [len(np.unique(layer)) for layer in net.trace(q)[:-1]]
    assert hidden == [2**architecture.core_bits] * (len(architecture.widths) - 2)


def test_drawn_inputs_saturate_and_meet_thresholds() -> None:
    stages = split(draw_net(SMALL))
    q = draw_inputs(stages, 1000)
    assert q.shape == (1000, 5)
    assert {q.min(), q.max()} == {stages[0].low, stages[0].high}
    sums = q @ stages[0].weight.T.astype(np.int64)
    smallest, largest = stages[0].reach
    for neuron, thresholds in enumerate(stages[0].thresholds):
        for threshold in thresholds[(smallest[neuron] < thresholds) & (thresholds <= largest[neuron])]:
            assert threshold in sums[:, neuron]
            assert threshold - 1 in sums[:, neuron]


@given(st.integers(-(2**20), 2**20), st.integers(-(2**20), 2**20))
@example(-128, -128)
def test_signed_bits_are_the_fewest(a: int, b: int) -> None:
    bits = signed_bits(min(a, b), max(a, b))
    assert -(2 ** (bits - 1)) <= min(a, b) <= max(a, b) < 2 ** (bits - 1)
    if bits > 1:
        assert min(a, b) < -(2 ** (bits - 2)) or max(a, b) >= 2 ** (bits - 2)


@given(convolutions())
def test_convolutions_are_refused(net) -> None:
    with pytest.raises(DeploymentError, match="layer1 is a convolution"):
        split(quantize(net, "int8"))


def test_other_rounding_is_refused() -> None:
    with pytest.raises(DeploymentError, match="gemmlowp; use"):
        split(draw_net(SMALL).with_requantization(Requantization.GEMMLOWP))


def test_more_than_eight_bits_are_refused() -> None:
    net = draw_net(SMALL)
    wide = replace(net.layers[1].output, format=replace(net.layers[1].output.format, bit_width=9))
    layers = (net.layers[0], replace(net.layers[1], output=wide), net.layers[2])
    with pytest.raises(DeploymentError, match="layer2 has 9 bits"):
        split(replace(net, layers=layers))


def test_outputs_take_the_bits_of_the_levels_they_reach() -> None:
    net = quantize_tanh_outputs()
    stages = split(net)
    assert (stages[-1].lowest, stages[-1].highest, stages[-1].thresholds.shape) == (-115, 230, (3, 255))
    plan = FoldingPlan(stages, Folding((4, 8, 3), choose_steps(stages)))
    assert plan.out_bits == 8
    silent = replace(
        stages[-1], weight=np.zeros_like(stages[-1].weight), thresholds=np.ones_like(stages[-1].thresholds)
    )
    assert replace(plan, stages=(stages[0], replace(silent, lowest=-128))).out_bits == 8
    q = draw_inputs(stages, 1000)
    np.testing.assert_array_equal(run_stages(net, q), net.run(q))
    assert {net.run(q).min(), net.run(q).max()} == {-115, 115}


# --- foldings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [(5, 8, 8), (5, 9, 8, 3), (0, 8, 8, 3), (6, 8, 8, 3)])
def test_impossible_lanes_are_refused(lanes) -> None:
    with pytest.raises(DeploymentError, match="lanes"):
        plan_small(lanes)


def test_a_design_is_named_by_its_numbers_and_its_folding() -> None:
    plan = plan_small()
    assert plan.digest == plan_small().digest
    assert plan.digest != plan_small((5, 4, 4, 3)).digest
    assert plan.digest != FoldingPlan(split(draw_net(SMALL, seed=1)), plan.folding).digest
    assert plan.digest.hex() in write_policy(plan)


def test_memories_hold_each_weight_and_threshold_once() -> None:
    plan = plan_small((5, 2, 4, 2), steps=(1, 2, 3))
    for unit in plan.units:
        words = unit.weights.words
        mask = (1 << unit.stage.weight_bits) - 1
        fields = [word >> (i * unit.stage.weight_bits) & mask for word in words for i in range(unit.weights.count)]
        assert sorted(fields) == sorted((unit.padded & mask).ravel().tolist())
        count = sum(rom.depth * rom.count for roms in unit.thresholds for rom in roms)
        assert count == unit.beats * unit.lanes * (2**unit.stage.out_bits - 1)


def test_block_ram_stays_within_the_folding() -> None:
    stages = split(draw_net(find_architecture("halfcheetah")))
    for blocks in (0.0, 3.0, 22.5):
        plan = FoldingPlan(stages, Folding((17, 2, 8, 6), choose_steps(stages), block_rams=blocks))
        assert sum(rom.blocks for rom in plan.roms if rom.name in plan.in_blocks) <= blocks
        assert estimate(plan).block_rams <= blocks


def test_each_lane_has_its_table_in_block_ram_where_that_is_left() -> None:
    stages = split(quantize(make_falling(Activation.GELU), "int8"))
    for blocks, kept in ((0.0, 0), (22.5, 5)):
        plan = FoldingPlan(stages, Folding((4, 3, 2, 2), choose_steps(stages, wide_step=8), block_rams=blocks))
        tables = [rom for unit in plan.units for rom in unit.tables]
        assert [(rom.depth, rom.width, rom.blocks) for rom in tables] == [(256, 8, 0.5)] * 5
        assert sum(rom.name in plan.in_blocks for rom in tables) == kept
        bare = [replace(stage, table=None) for stage in stages]
        without = estimate(FoldingPlan(tuple(bare), plan.folding))
        found = estimate(plan)
        spread = sum(rom.luts for rom in tables if rom.name not in plan.in_blocks)
        assert found.luts_raw - without.luts_raw == spread == 32 * (5 - kept)
        assert found.block_rams - without.block_rams == kept / 2


def test_axis_states_its_interface() -> None:
    whole, streamed = write_axis(plan_small(), 32), write_axis(plan_small((2, 2, 4, 3)), 32)
    assert "an observation in 1 beats of 32 bits, the action in 1 beats" in whole
    assert "an observation in 3 beats of 8 bits" in streamed


# --- explorer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, limit", [("halfcheetah", 310), ("walker2d", 100), ("ant", 45), ("humanoid", 65), ("hopper", 12)]
)
def test_the_fastest_folding_is_fast_enough(name: str, limit: int) -> None:
    architecture = ARCHITECTURES[name]
    candidates = explore(split(draw_net(architecture)), PART, architecture.in_lanes)
    chosen = choose(candidates, PART, lambda _: True)
    assert chosen.cycles <= limit
    assert fits(chosen.resources, PART)
    cycles = [candidate.cycles for candidate in candidates]
    assert cycles == sorted(cycles)
    shares = [candidate.resources.bottleneck(PART)[1] for candidate in find_pareto(candidates, PART)]
    assert shares == sorted(shares, reverse=True)


def test_a_policy_that_does_not_fit_says_what_is_short() -> None:
    candidates = explore(split(draw_net(ARCHITECTURES["eightbit"])), PART)
    with pytest.raises(
        DeploymentError, match=r"does not hold this policy: the nearest folding \(lanes .*more than.*no known part"
    ):
        choose(candidates, PART, lambda _: True)
    candidates = explore(split(draw_net(SMALL)), PART)
    with pytest.raises(
        DeploymentError, match=r"tiny does not hold .* of its LUT, .*; xc7a15t holds it: use a larger part"
    ):
        choose(candidates, Part("tiny", 100, 10_000, 25, 45), lambda _: True)


def test_a_policy_whose_every_folding_computes_too_much_says_what_helps() -> None:
    stages = split(draw_net(Architecture("broad", (17, 400, 6), 8, 8, 8, 1e6, 0)))
    with pytest.raises(DeploymentError, match=r"more than 4096 products a cycle; stream fewer values \(--stream\), or"):
        explore(stages, PART, 13)
    assert explore(stages, PART, 8)


@pytest.mark.parametrize("name", ["walker2d", "hopper", "halfcheetah"])
def test_the_fastest_is_found_without_the_others(name: str) -> None:
    stages = split(draw_net(ARCHITECTURES[name]))
    wanted = choose(explore(stages, PART), PART, lambda _: True)
    found = find_fastest(stages, PART)
    assert found is not None
    assert (found.plan.folding, found.resources) == (wanted.plan.folding, wanted.resources)
    assert find_fastest(stages, Part("tiny", 100, 10_000, 25, 45)) is None


@pytest.mark.parametrize(
    ("name", "most", "bound"), [("halfcheetah", 170, "LUT"), ("ant", 18, "LUT"), ("walker2d", 40, ""), ("ant", 3, "")]
)
def test_what_keeps_a_design_from_being_faster_is_said(name: str, most: int, bound: str) -> None:
    """Over every number of beats of every link, within a minute."""
    begin = time.process_time()
    candidates = explore(split(draw_net(ARCHITECTURES[name])), PART)
    shortage = find_shortage(candidates, PART, most)
    assert time.process_time() - begin < 60
    fast = [candidate for candidate in candidates if candidate.cycles <= most]
    if not bound:
        assert shortage is None
        assert not fast or any(fits(candidate.resources, PART) for candidate in fast)
        return
    assert shortage is not None
    assert (shortage.count, shortage.bound) == (len(fast), bound)
    assert not any(fits(candidate.resources, PART) for candidate in fast)
    assert shortage.share == min(candidate.resources.bottleneck(PART)[1] for candidate in fast) > 0.9
    lanes = "-".join(map(str, shortage.nearest.plan.folding.lanes))
    assert shortage.describe() == (
        f"none of the {len(fast):,} foldings of at most {most} cycles fits by estimate: the nearest (lanes {lanes}, "
        f"{shortage.nearest.cycles} cycles) takes {shortage.share:.0%} of the LUT, where 90% may be taken"
    )


def test_every_number_of_beats_is_looked_at_where_they_are_few() -> None:
    beats = {candidate.plan.units[0].beats for candidate in explore(split(draw_net(ARCHITECTURES["walker2d"])), PART)}
    assert {26, 22, 13} <= beats  # of 128 outputs, by lanes that are no power of two
    deep = split(draw_net(Architecture("deep", (17, 64, 64, 64, 6), 3, 2, 8, 1e6, 0)))
    assert {candidate.plan.folding.lanes[1] for candidate in explore(deep, PART)} == {1, 2, 4, 8, 16, 32, 64}


def test_a_refusal_of_the_synthesis_moves_on_to_the_next() -> None:
    candidates = explore(split(draw_net(SMALL)), PART)
    seen = []
    chosen = choose(candidates, PART, lambda plan: seen.append(plan) or len(seen) == 3)
    assert chosen.plan is seen[2]
    with pytest.raises(DeploymentError, match="none of the 4 fastest"):
        choose(candidates, PART, lambda _: False)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SpecError, match="known are xc7a15t"):
        find_part("xc7z020")
    with pytest.raises(SpecError, match="known are halfcheetah"):
        find_architecture("pong")


# --- QONNX -----------------------------------------------------------------------------------------------------------


@pytest.mark.needs("qonnx")
@pytest.mark.parametrize("name", ["small", "int8-tanh", "tanh-outputs", "sums", "falls", "falls-at-the-end"])
def test_qonnx_executes_the_file_to_the_same_integers(name: str) -> None:
    import onnx
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx

    net = draw_net(SMALL)
    if name == "int8-tanh":
        net = quantize(make_net(4, 8, 6, 2, activation=Activation.TANH), "int8")
    if name == "tanh-outputs":
        net = quantize_tanh_outputs()
    if name == "sums":
        net = quantize(make_net(4, 8, 6, 2), "int8pcacc")
    if name.startswith("falls"):
        net = quantize(make_falling(Activation.SILU, at_end=name.endswith("end")), "int8")
    stages = split(net)
    q = draw_inputs(stages, 300)
    model = ModelWrapper(onnx.load_model_from_string(write_qonnx(stages, rows=len(q))))
    outputs = execute_onnx(model, {"input": q.astype(np.float32)})["output"]
    np.testing.assert_array_equal(outputs, net.run(q))


@given(perceptrons(), st.sampled_from(["int8", "int8pc", "int5", "int8acc"]), st.integers(0, 99))
def test_a_table_that_falls_is_a_difference_of_counts(net, scheme, seed) -> None:
    integers = quantize(make_bare(net) if scheme.endswith("acc") else net, scheme)
    stages = split(integers)
    q = draw_inputs(stages, 200, seed)
    written, codes = write_differences(stages), q
    for stage in written:
        assert stage.table is None
        codes = stage.run(codes)
    np.testing.assert_array_equal(codes + written[-1].lowest, integers.run(q))
    if all(stage.table is None for stage in stages):
        assert written == stages


def test_sums_that_float32_does_not_hold_are_refused() -> None:
    stage = split(draw_net(SMALL))[0]
    wide = replace(stage, weight=np.tile(stage.weight[:1], (1, 1 << 20)))
    with pytest.raises(DeploymentError, match="sums of layer1 go beyond"):
        write_qonnx([wide])


# --- the paper's sentences -------------------------------------------------------------------------------------------


def test_latency_is_judged_by_its_worst_task() -> None:
    printed = {"a": 100, "b": 10}
    assert judge_latency({"a": 50, "b": 10}, printed, 1.0).outcome is Outcome.SUPPORTED
    assert judge_latency({"a": 50, "b": 11}, printed, 1.0).outcome is Outcome.REFUTED
    partial = judge_latency({"a": 50}, printed, 1.0)
    assert (partial.outcome, partial.missing) == (Outcome.PARTIAL, ("b",))
    assert judge_latency({"b": 11}, printed, 1.0).outcome is Outcome.REFUTED
    assert judge_model({"a": 81, "b": 12}, printed, 0.2).outcome is Outcome.SUPPORTED
    assert judge_model({"a": 79, "b": 10}, printed, 0.2).outcome is Outcome.REFUTED


def test_a_speedup_is_judged_by_its_smallest_task() -> None:
    times = {"a": 2.0, "b": 10.0}
    found = judge_speedup({"a": 25, "b": 10}, 100, times, 1.0)
    assert (found.outcome, found.estimate, found.high) == (Outcome.SUPPORTED, 1.0, 2.0)
    assert judge_speedup({"a": 25, "b": 11}, 100, times, 1.0).outcome is Outcome.REFUTED
    assert judge_speedup({"b": 11}, 100, times, 1.0).outcome is Outcome.REFUTED
    partial = judge_speedup({"a": 25}, 100, times, 1.0)
    assert (partial.outcome, partial.missing) == (Outcome.PARTIAL, ("b",))
    assert judge_speedup({"a": 25, "b": 10}, None, times, 1.0).missing == ("a", "b")


@pytest.mark.parametrize(
    "eight, four, outcome", [(1.2, 0.9, "supported"), (0.9, 0.8, "refuted"), (1.5, 1.1, "refuted")]
)
def test_fit_is_judged_on_both_designs(eight: float, four: float, outcome: str) -> None:
    assert judge_fit(Fit("LUT", eight), Fit("BRAM", four), 1.0).outcome == outcome


# --- netlists and reports --------------------------------------------------------------------------------------------


def cell(kind: str, inputs: list[int], output: int, **parameters: str) -> dict:
    return {
        "type": kind,
        "parameters": parameters,
        "port_directions": {"I": "input", "O": "output"},
        "connections": {"I": inputs, "O": [output]},
    }


def test_levels_count_tables_between_registers() -> None:
    cells = {
        "ff1": cell("FDRE", [9], 1),
        "a": cell("LUT2", [1, 2], 3),
        "carry": cell("CARRY4", [3], 4),
        "b": cell("LUT6", [4, 2], 5),
        "ff2": cell("FDRE", [5], 6),
        "c": cell("LUT1", [6], 7),
        "dsp": cell("DSP48E1", [7], 8, MREG="0", PREG="0"),
        "d": cell("LUT3", [8], 9),
    }
    path = find_longest_path({"cells": cells})
    assert (path.levels, path.begin, path.end) == (2, "a", "b")
    cells["e"] = cell("LUT3", [8, 5], 10)
    assert find_longest_path({"cells": cells}).levels == 3
    cells["dsp"]["parameters"]["PREG"] = "1"
    cells["e"] = cell("LUT3", [8], 10)
    assert find_longest_path({"cells": cells}).levels == 2


def test_shift_registers_are_counted_as_the_tables_they_take() -> None:
    kinds = ("LUT2", "SRL16E", "SRLC32E", "FDRE")
    cells = {kind: cell(kind, [index], index + 1) for index, kind in enumerate(kinds)}
    found = count_cells({"cells": cells}, packed=1)
    assert (found.luts_raw, found.luts, found.ffs) == (3, 3, 1)
    assert find_longest_path({"cells": cells}).levels == 1


def test_vivado_reports_become_a_row(tmp_path: Path) -> None:
    row = read_reports(write_reports(tmp_path))
    found = row.resources
    assert (found.luts, found.ffs, found.block_rams, found.dsps) == (6913, 6393, 13.5, 17)
    assert row.meets_timing
    assert row.latency(302) == pytest.approx(3.02e-6)
    assert row.actions_per_second(293) == pytest.approx(100e6 / 293)
    assert row.joules_per_action(293) == pytest.approx(0.331 * 293 / 100e6)
    assert not read_reports(write_reports(tmp_path, "-0.5")).meets_timing


def test_incomplete_reports_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match=r"timing_summary.rpt: No such file.*build.tcl"):
        read_reports(tmp_path)
    write_reports(tmp_path, power="ERROR: [Power 33-1]")
    with pytest.raises(DeploymentError, match=r"power.rpt: no Total On-Chip Power"):
        read_reports(tmp_path)
