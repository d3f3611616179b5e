"""Designs that return their sums: what they consist of, what they save, how they travel, and what has no form."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.backends.fpga.explore.estimate import estimate
from quarl_bench.backends.fpga.explore.explorer import explore
from quarl_bench.backends.fpga.explore.folding import Folding, FoldingPlan, choose_steps
from quarl_bench.backends.fpga.explore.part import PARTS
from quarl_bench.backends.fpga.link import open_link, simulate_board
from quarl_bench.backends.fpga.qonnx import write_qonnx
from quarl_bench.backends.fpga.rtl.design import MANIFEST, write_design
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.fpga.rtl.top import write_policy
from quarl_bench.backends.fpga.rtl.wrapper import AXIS_TOP, axis_streams, write_axis, write_uart
from quarl_bench.backends.fpga.tools.simulation import Simulation, check
from quarl_bench.backends.fpga.vectors import draw_inputs
from quarl_bench.cli import main
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.net import Net
from tests.support.designs import UNLIKE, make_bare, quantize, rewrite
from tests.support.places import POLICIES
from tests.support.sizes import choose
from tests.support.strategies import make_net, normal, perceptrons

verilator = pytest.mark.needs("verilator")
LANES = (4, 3, 2, 1)


def plan_design(scheme: str, lanes: tuple[int, ...] = LANES) -> FoldingPlan:
    stages = split(rewrite(scheme).net)
    return FoldingPlan(stages, Folding(lanes, choose_steps(stages)))


# --- stages and their sizes ------------------------------------------------------------------------------------------


@given(perceptrons().map(make_bare), st.sampled_from(["int8acc", "int2pcacc", "int5symacc"]), st.integers(0, 99))
def test_stages_return_the_golden_models_sums(net: Net, scheme: str, seed: int) -> None:
    integers = quantize(net, scheme)
    stages = split(integers)
    q = draw_inputs(stages, 200, seed)
    sums = expected = integers.run(q)
    for stage in stages:
        q = stage.run(q)
    np.testing.assert_array_equal(q, expected)
    bits = stages[-1].out_bits
    assert -(1 << (bits - 1)) <= sums.min() <= sums.max() < 1 << (bits - 1)


def test_neurons_of_a_single_layer_meet_in_ties() -> None:
    net = quantize(make_net(6, 2), "int8acc")
    first, second = net.run(draw_inputs(split(net), 1000)).T
    assert min((first == second).sum(), (np.abs(first - second) == 1).sum()) > 10


def test_what_requantizes_is_left_out() -> None:
    plain, wide = plan_design("int8eqcle"), plan_design("int8eqcleacc")
    assert plain.cycles - wide.cycles == len(plain.units[-1].searches) == 4
    assert wide.units[-1].searches == wide.units[-1].thresholds == ()
    assert [rom.name for rom in wide.units[-1].roms] == ["layer3_weights", "layer3_offsets"]
    assert estimate(wide).luts < estimate(plain).luts
    assert (wide.out_bits, wide.out_signed, wide.stages[-1].lowest) == (32, True, 0)
    last = write_policy(wide).partition("module layer3 ")[2]
    assert "search" not in last
    assert "search" in write_policy(plain).partition("module layer3 ")[2]


def test_the_offset_is_part_of_the_design() -> None:
    plan = plan_design("int8eqcleacc")
    last = plan.stages[-1]
    other = FoldingPlan((*plan.stages[:-1], replace(last, offsets=last.offsets + 1)), plan.folding)
    assert plan.digest != other.digest


def test_wrappers_and_manifest_say_how_wide_an_output_is(tmp_path: Path) -> None:
    plan = plan_design("int8eqcleacc")
    assert axis_streams(plan, 32)[1].beats == 2
    assert "the action in 2 beats of 32 bits" in write_axis(plan, 32).replace("\n// ", " ")
    assert "Each of the 2 outputs is 4 bytes on the line, the lowest first." in write_uart(plan)
    assert "bytes on the line" not in write_uart(plan_design("int8eqcle"))
    write_design(plan, tmp_path / "design")
    manifest = json.loads((tmp_path / "design" / MANIFEST).read_text())
    assert manifest["output"] == {"values": 2, "bit_width": 32, "signed": True}
    assert manifest["layers"][-1]["search_steps"] == []
    assert manifest["folding"]["steps"][-1] == 0


def test_the_fastest_folding_of_sums_is_faster() -> None:
    cycles = {
        name: explore(split(rewrite(name).net), PARTS["xc7a15t"])[0].cycles for name in ("int8eqcle", "int8eqcleacc")
    }
    assert cycles["int8eqcleacc"] < cycles["int8eqcle"]


# --- what has no form ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "steps"), [("int8eqcleacc", (2, 2, 2)), ("int8eqcle", (2, 2, 0))])
def test_steps_belong_to_layers_that_search(scheme: str, steps: tuple[int, ...]) -> None:
    with pytest.raises(DeploymentError, match=r"give 1\.\.8 bits for each layer, 0 for sums"):
        FoldingPlan(split(rewrite(scheme).net), Folding(LANES, steps))


def test_sums_of_more_than_32_bits_are_refused() -> None:
    net = rewrite("int8eqcleacc").net
    last = replace(net.layers[-1], bias=np.full_like(net.layers[-1].bias, (1 << 31) - 1))
    with pytest.raises(DeploymentError, match=r"^fpga: the sums of layer3 take 33 bits, and wide outputs have 32; use"):
        split(replace(net, layers=(*net.layers[:-1], last)))


def test_sums_within_a_net_are_refused() -> None:
    net = rewrite("int8eqcleacc").net
    with pytest.raises(DeploymentError, match="layer3 has 32 bits"):
        split(replace(net, layers=(net.layers[0], replace(net.layers[1], output=net.output), net.layers[2])))


def test_sums_that_a_qonnx_file_does_not_hold_are_refused() -> None:
    *before, last = split(rewrite("int8eqcleacc").net)
    far = replace(last, offsets=last.offsets + (1 << 24))
    with pytest.raises(DeploymentError, match=r"sums of layer3 go beyond 2\^24"):
        write_qonnx([*before, far])


def test_quarl_fpga_takes_them_and_has_no_table_of_their_actions(
    baseline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline("ppo-mountaincarcontinuous-seed0")
    policy = str(POLICIES / "ppo-mountaincarcontinuous-seed0")
    arguments = ["fpga", policy, "--scheme", "int2acc", "--estimate", "--part", "xc7a100t", "--json"]
    assert main([*arguments, "--output", str(tmp_path / "design")]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"]["steps"][-1] == 0
    assert main([*arguments, "--tanh"]) == 2
    error = capsys.readouterr().err
    assert "too many for a table of actions; leave --tanh out" in error
    assert error.count("\n") == 1


# --- simulated -------------------------------------------------------------------------------------------------------


@verilator
def test_divergence_of_a_sum_is_named(designs: Path, tmp_path: Path) -> None:
    net = rewrite("int8eqcleacc").net
    design = write_design(plan_design("int8eqcleacc"), tmp_path / "design")
    memory = design.folder / "layer3_offsets.mem"
    words = memory.read_text().split()
    memory.write_text(f"{words[0]}\n{int(words[1], 16) ^ 1:x}\n")  # one more, or one less
    q = draw_inputs(design.plan.stages, 400)
    with pytest.raises(DeploymentError, match=r"actions differ.*layer3, neuron 1: expected") as caught:
        check(Simulation(design, designs), design, q, net.run(q), designs)
    expected, got = map(int, re.findall(r"-?\d+", str(caught.value).partition("neuron 1: ")[2]))
    assert abs(expected - got) == 1
    assert expected in net.run(q)[:, 1]


@verilator
@pytest.mark.parametrize("scheme", choose(["int8eqcle"], ["int8eqcle", "int8eqcleacc"]))
def test_a_stream_acts_behind_inputs_that_the_host_divides(scheme: str, designs: Path, tmp_path: Path) -> None:
    policy, states = rewrite(scheme), normal(np.random.default_rng(1), 300, 4, spread=4.0) * UNLIKE
    design = write_design(plan_design(scheme, (2, 8, 3, 2)), tmp_path / "design")
    q = policy.net.input.quantize(policy.transform.apply(states))
    run = Simulation(design, designs, top=AXIS_TOP).run(q, gap=0.3, stall=0.3)
    np.testing.assert_array_equal(policy.net.output.dequantize(run.outputs), policy.outputs(states))
    assert (q != policy.net.input.quantize(states)).mean() > 0.5  # undivided, they would be others


@pytest.mark.needs("verilator", "fpga")
@pytest.mark.parametrize("scheme", choose(["int8eqcleacc"], ["int8eqcle", "int8eqcleacc"]))
def test_a_board_acts_behind_inputs_that_the_host_divides(scheme: str, designs: Path, tmp_path: Path) -> None:
    """Sums travel as four bytes each, and compare as they are: no dequantization stands in front of the argmax."""
    policy, states = rewrite(scheme), normal(np.random.default_rng(1), 60, 4, spread=4.0) * UNLIKE
    design = write_design(plan_design(scheme, (2, 8, 3, 2)), tmp_path / "design")
    with simulate_board(design, designs) as port, open_link(port, design.plan) as link:
        outputs, cycles = link.run(policy.net.input.quantize(policy.transform.apply(states)))
    np.testing.assert_array_equal(policy.net.output.dequantize(outputs), policy.outputs(states))
    np.testing.assert_array_equal(outputs.argmax(axis=1), policy.act(states))
    assert set(cycles) == {design.plan.cycles}
    assert (outputs < 0).any()
    assert (np.abs(outputs).max() > 128) == policy.net.output.wide
