"""Designs in Verilator: bit-exact under stalls and behind AXI streams, divergence, the board's line, synthesis."""

import json
import os
import shutil
import threading
import time
import tty
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quarl_bench.backends.fpga.explore.estimate import estimate
from quarl_bench.backends.fpga.explore.folding import Folding, FoldingPlan, choose_steps
from quarl_bench.backends.fpga.link import Link, find_crc, open_link, simulate_board
from quarl_bench.backends.fpga.rtl.design import MANIFEST, Design, write_design
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.fpga.rtl.table import TANH_TOP, ActionTable
from quarl_bench.backends.fpga.rtl.wrapper import AXIS_TOP
from quarl_bench.backends.fpga.tools.placement import place
from quarl_bench.backends.fpga.tools.simulation import Simulation, check
from quarl_bench.backends.fpga.tools.synthesis import synthesize, synthesize_table
from quarl_bench.backends.fpga.tools.yowasp import Tool
from quarl_bench.backends.fpga.vectors import draw_inputs
from quarl_bench.cli import main
from quarl_bench.errors import BoardError, DeploymentError, MissingExtra, StoreError
from quarl_bench.papers.lqcc.hardware.architectures import ARCHITECTURES, Architecture, draw_net, draw_policy
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Scheme
from tests.support.designs import make_falling, quantize, quantize_tanh_outputs, rewrite, write_reports
from tests.support.places import POLICIES
from tests.support.sizes import choose, exhaustive
from tests.support.strategies import inputs_of, make_net

verilator = pytest.mark.needs("verilator")


def make_design(net: IntegerNet, lanes: tuple[int, ...], folder: Path, **options) -> Design:
    stages = split(net)
    folding = Folding(lanes, options.pop("steps", None) or choose_steps(stages), **options)
    return write_design(FoldingPlan(stages, folding), folder)


def quantize_tanh() -> IntegerNet:
    net = make_net(4, 8, 6, 2, activation=Activation.TANH)
    quantized = quantize_net(net, Scheme.parse("int8"), inputs_of(net, 300, spread=2.0))
    assert isinstance(quantized, QuantizedNet)
    return IntegerNet.from_quantized(quantized)


def thin_out(net: IntegerNet) -> IntegerNet:
    """Most weights become zero, in one row of each layer all."""
    rng, layers = np.random.default_rng(0), []
    for layer in net.layers:
        kept = rng.random(layer.weight.shape) < 0.15
        kept[0] = False
        layers.append(replace(layer, weight=layer.weight * kept))
    return replace(net, layers=tuple(layers))


STREAMED = Architecture("streamed", (9, 6, 8, 3), 4, 3, 7, 1e6, 0)
WIDE = Architecture("wide", (17, 24, 24, 5), 3, 2, 6, 1e6, 0)
FOLDINGS = {
    "rows-columns-columns": (draw_net(STREAMED), (9, 2, 3, 2), {"levels": 1}),
    "columns-in-blocks": (draw_net(STREAMED), (4, 1, 8, 3), {"steps": (1, 2, 3)}),
    "int8-tanh-without-dsps": (quantize_tanh(), (4, 3, 2, 2), {"dsps": 0, "steps": (4, 8, 3), "block_rams": 0.0}),
    "tanh-outputs": (quantize_tanh_outputs(), (4, 4, 2), {}),
    "int8pceqcle": (rewrite("int8pceqcle").net, (4, 4, 2, 2), {}),
    "int8eqcle": (rewrite("int8eqcle").net, (2, 8, 3, 2), {}),
    "int8eqcleacc": (rewrite("int8eqcleacc").net, (4, 3, 2, 1), {}),
    "sums-at-once": (rewrite("int8pceqcleacc").net, (4, 8, 6, 2), {"levels": 5}),
    "sums-of-a-stream": (quantize(make_net(5, 8, 4), "int4acc"), (1, 4, 3), {"block_rams": 0.0, "levels": 1}),
    "sums-of-sparse-rows": (thin_out(quantize(make_net(9, 12, 5), "int3acc")), (9, 12, 5), {}),
    "sums-of-one-layer": (quantize(make_net(6, 5), "int8acc"), (6, 2), {"levels": 4}),
    "all-at-once": (draw_net(STREAMED), (9, 6, 8, 3), {"levels": 3}),
    "sparse-and-pipelined": (thin_out(draw_net(WIDE)), (17, 24, 24, 5), {"levels": 2}),
    "sparse-behind-columns": (thin_out(draw_net(WIDE)), (5, 24, 24, 5), {}),
}


# --- bit-exact -------------------------------------------------------------------------------------------------------


@verilator
@pytest.mark.parametrize("name", choose([*list(FOLDINGS)[:1], "int8eqcleacc"], list(FOLDINGS)))
def test_designs_equal_the_golden_model(name: str, designs: Path, tmp_path: Path) -> None:
    net, lanes, options = FOLDINGS[name]
    design = make_design(net, lanes, tmp_path / "design", **options)
    simulation = Simulation(design, designs)
    q = draw_inputs(design.plan.stages, 2000)
    run = check(simulation, design, q, net.run(q), designs)
    assert run.latency[0] == design.plan.cycles == json.loads((tmp_path / "design" / MANIFEST).read_text())["cycles"]
    assert run.interval >= max(design.plan.in_beats, *(unit.beats for unit in design.plan.units))
    assert run.interval == 1 or not design.plan.pipelined
    for gap, stall in ((0.6, 0.0), (0.0, 0.7), (0.5, 0.5)):
        stalled = simulation.run(q[:500], gap=gap, stall=stall, seed=7)
        np.testing.assert_array_equal(stalled.outputs, net.run(q[:500]))
        assert (stalled.taken >= stalled.shown).all()
    assert (simulation.run(q[:500], stall=0.7).taken > simulation.run(q[:500], stall=0.7).shown).any()


FALLING_FOLDINGS = {
    "pipelined": ((4, 8, 6, 2), {"block_rams": 0.0, "dsps": 0}),
    "columns": ((2, 3, 2, 1), {"steps": (3, 8, 2)}),
    "rows": ((4, 4, 3, 2), {"levels": 4}),
}
FALLS = ((Activation.SILU, "pipelined"), (Activation.GELU, "columns"), (Activation.HARDSWISH, "rows"))
ALL_FALLS = tuple((activation, name) for activation, _ in FALLS for name in FALLING_FOLDINGS)


@verilator
@pytest.mark.parametrize("activation, name", choose(FALLS[::2], ALL_FALLS))
def test_tables_that_fall_equal_the_golden_model(activation, name: str, designs: Path, tmp_path: Path) -> None:
    net = quantize(make_falling(activation, at_end=name == "rows"), "int8")
    lanes, options = FALLING_FOLDINGS[name]
    design = make_design(net, lanes, tmp_path / "design", **options)
    simulation = Simulation(design, designs)
    q = draw_inputs(design.plan.stages, choose(2000, 100_000))
    run = check(simulation, design, q, net.run(q), designs)
    assert run.latency[0] == design.plan.cycles
    assert (run.interval == 1) == (name == "pipelined") == design.plan.pipelined
    stalled = simulation.run(q[:500], gap=0.5, stall=0.5, seed=7)
    np.testing.assert_array_equal(stalled.outputs, net.run(q[:500]))


@verilator
def test_a_damaged_table_is_found(designs: Path, tmp_path: Path) -> None:
    net = quantize(make_falling(Activation.GELU), "int8")
    design = make_design(net, (2, 3, 2, 1), tmp_path / "design", steps=(3, 8, 2))
    memory = design.folder / "layer1_table2.mem"
    memory.write_text("".join(f"{int(word, 16) ^ 1:02x}\n" for word in memory.read_text().split()))
    q = draw_inputs(design.plan.stages, 200)
    with pytest.raises(DeploymentError, match=r"actions differ.*layer1, neuron 2: expected"):
        check(Simulation(design, designs), design, q, net.run(q), designs)


AXIS = [
    (draw_net(STREAMED), (4, 1, 8, 3)),
    (draw_net(STREAMED), (9, 2, 3, 2)),
    (quantize_tanh_outputs(), (4, 4, 2)),
    (rewrite("int8eqcleacc").net, (2, 4, 3, 1)),
    (quantize(make_falling(Activation.SILU, at_end=True), "int8"), (4, 4, 3, 2)),
]


@verilator
@pytest.mark.parametrize("net, lanes", choose(AXIS[:1], AXIS))
def test_axi_streams_carry_observations_and_actions(
    net: IntegerNet, lanes: tuple[int, ...], designs: Path, tmp_path: Path
) -> None:
    stages = split(net)
    design = write_design(FoldingPlan(stages, Folding(lanes, choose_steps(stages))), tmp_path / "design", axis_bits=16)
    q = draw_inputs(stages, 300)
    for gap, stall in ((0.0, 0.0), (0.5, 0.5)):
        run = Simulation(design, designs, top=AXIS_TOP).run(q, gap=gap, stall=stall)
        np.testing.assert_array_equal(run.outputs, net.run(q))


@verilator
def test_divergence_names_layer_and_neuron(designs: Path, tmp_path: Path) -> None:
    net = draw_net(STREAMED)
    design = make_design(net, (9, 2, 3, 2), tmp_path / "design")
    memory = design.folder / "layer2_thresholds0.mem"
    words = memory.read_text().split()
    # Beat 1, lane 1: neuron 4. Its smallest threshold becomes the most negative number, so it counts one too many.
    unit = design.plan.units[1]
    place = 1 * unit.thresholds[0][0].count // unit.lanes * unit.stage.sum_bits
    mask = (1 << unit.stage.sum_bits) - 1
    changed = int(words[1], 16) & ~(mask << place) | (1 << (unit.stage.sum_bits - 1)) << place
    words[1] = f"{changed:x}"
    memory.write_text("\n".join(words) + "\n")
    q = draw_inputs(design.plan.stages, 400)
    with pytest.raises(DeploymentError, match=r"actions differ.*layer2, neuron 4: expected 0, got 1"):
        check(Simulation(design, designs), design, q, net.run(q), designs)


HEADS = {
    "one-table": ActionHead(HeadKind.TANH, np.full(3, -1, np.float32), np.full(3, 1, np.float32)),
    "a-table-each": ActionHead(HeadKind.TANH, np.float32([-1, -0.4, 0]), np.float32([1, 0.4, 2]), mean_limit=2.0),
    "clipped": ActionHead(HeadKind.CLIP, np.float32([-0.2, -0.2, -3]), np.float32([0.2, 0.3, 3])),
}


@verilator
@pytest.mark.parametrize("name", choose(["a-table-each", "clipped"], list(HEADS)))
def test_the_table_gives_the_policys_actions_bit_by_bit(name: str, designs: Path, tmp_path: Path) -> None:
    policy = replace(draw_policy(STREAMED), head=HEADS[name])
    stages, table = split(policy.net), ActionTable.from_policy(policy)
    plan = FoldingPlan(stages, Folding((9, 2, 3, 2), choose_steps(stages)))
    design = write_design(plan, tmp_path / "design", table=table)
    simulation = Simulation(design, designs, top=TANH_TOP)
    observations = np.random.default_rng(0).normal(0, 5, (1000, 9)).astype(np.float32)
    q = policy.net.input.quantize(policy.transform.apply(observations))
    run = check(simulation, design, q, table.find_words(policy.net.run(q)), designs)
    actions = run.outputs.astype(np.uint32).view(np.float32)
    assert actions.tobytes() == policy.act(observations).tobytes()
    assert len(np.unique(actions)) > 10
    assert simulation.run(q[:1]).whole == (plan.cycles + 3,) * 2  # one cycle more for each output
    stalled = simulation.run(q[:300], gap=0.5, stall=0.5)
    np.testing.assert_array_equal(stalled.outputs, run.outputs[:300])


@verilator
def test_a_table_is_told_from_the_layers_that_it_follows(designs: Path, tmp_path: Path) -> None:
    policy = draw_policy(STREAMED)
    stages, table = split(policy.net), ActionTable.from_policy(policy)
    design = write_design(
        FoldingPlan(stages, Folding((9, 2, 3, 2), choose_steps(stages))), tmp_path / "design", table=table
    )
    memory = design.folder / "tanh_table.mem"
    memory.write_text("".join(f"{int(word, 16) ^ 1:08x}\n" for word in memory.read_text().split()))
    q = draw_inputs(stages, 50)
    with pytest.raises(DeploymentError, match=r"50 of 50 actions differ.*all layers agree, so what stands behind them"):
        check(Simulation(design, designs, top=TANH_TOP), design, q, table.find_words(policy.net.run(q)), designs)


def test_a_table_of_another_policy_is_refused(tmp_path: Path) -> None:
    stages = split(draw_net(STREAMED))
    table = ActionTable.from_policy(draw_policy(ARCHITECTURES["ant"]))
    with pytest.raises(DeploymentError, match="a table of 8 actions for a policy of 3 outputs"):
        write_design(FoldingPlan(stages, Folding((9, 2, 3, 2), (3, 3, 2))), tmp_path / "design", table=table)


@verilator
def test_inputs_outside_the_format_are_refused(designs: Path, tmp_path: Path) -> None:
    design = make_design(draw_net(STREAMED), (9, 2, 3, 2), tmp_path / "design")
    simulation = Simulation(design, designs)
    for q in (np.full((1, 9), 8), np.zeros((1, 8), dtype=np.int64)):
        with pytest.raises(DeploymentError, match=r"for \(n, 9\) integers in \[-8, 7\]"):
            simulation.run(q)


def test_without_verilator_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    design = make_design(draw_net(STREAMED), (9, 2, 3, 2), tmp_path / "design")
    with pytest.raises(DeploymentError, match="apt-get install verilator"):
        Simulation(design, tmp_path / "cache")


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="left alone"):
        make_design(draw_net(STREAMED), (9, 2, 3, 2), tmp_path)


# --- the board's line ------------------------------------------------------------------------------------------------


@pytest.mark.needs("verilator", "fpga")
def test_the_driver_talks_to_a_simulated_board(designs: Path, tmp_path: Path) -> None:
    net = draw_net(STREAMED)
    design = make_design(net, (4, 2, 4, 2), tmp_path / "design")
    plan = design.plan
    q = draw_inputs(plan.stages, 50)
    with simulate_board(design, designs) as port:
        with open_link(port, plan) as link:
            outputs, cycles = link.run(q)
            np.testing.assert_array_equal(outputs, net.run(q))
            assert set(cycles) == {plan.cycles}
            with pytest.raises(BoardError, match="another run has it"):
                Link(port, plan)
            link._line.write(b"R\x01\x02")  # a request that breaks off is forgotten
            time.sleep(0.5)
            np.testing.assert_array_equal(link.run(q[:2])[0], net.run(q[:2]))
            for damaged in (b"Z", b"R" + bytes(12) + b"\xff"):
                link._line.write(damaged)
                assert link._line.read(2) == b"e" + bytes([find_crc(b"e")])
        with open_link(port, plan) as link:
            np.testing.assert_array_equal(link.run(q[:2])[0], net.run(q[:2]))
        other = FoldingPlan(split(draw_net(STREAMED, seed=1)), plan.folding)
        with pytest.raises(BoardError, match=f"holds design {plan.digest.hex()[:16]}, not {other.digest.hex()[:16]}"):
            Link(port, other)


@exhaustive
@pytest.mark.needs("verilator", "fpga")
def test_a_board_answers_with_what_a_table_that_falls_gives(designs: Path, tmp_path: Path) -> None:
    net = quantize(make_falling(Activation.HARDSWISH, at_end=True), "int8")
    design = make_design(net, (2, 4, 3, 2), tmp_path / "design")
    q = draw_inputs(design.plan.stages, 50)
    with simulate_board(design, designs) as port, open_link(port, design.plan) as link:
        outputs, cycles = link.run(q)
    np.testing.assert_array_equal(outputs, net.run(q))
    assert set(cycles) == {design.plan.cycles}


@pytest.mark.needs("fpga")
def test_silent_cut_and_missing_lines_are_one_line_errors(tmp_path: Path) -> None:
    plan = FoldingPlan(split(draw_net(STREAMED)), Folding((9, 2, 3, 2), (3, 3, 2)))
    with pytest.raises(BoardError, match="check the port's name"):
        Link(str(tmp_path / "ttyUSB0"), plan)
    identity = b"q\x01\x09\x00\x03\x00" + plan.digest
    for answer, match in (
        (b"", "silent"),
        (b"e" + bytes([find_crc(b"e")]), "arrived damaged"),
        (identity, "38 of 39 bytes"),
        (identity + bytes([find_crc(identity) ^ 1]), "damaged"),
    ):
        with pytest.raises(BoardError, match=match) as caught:
            ask_board_that_says(answer, plan)
        assert "\n" not in str(caught.value)
    with pytest.raises(BoardError, match="check the port's name, the cable"):
        ask_board_that_says(None, plan)


def ask_board_that_says(answer: bytes | None, plan: FoldingPlan) -> None:
    """None: the cable is cut when the request is there."""
    host, device = os.openpty()
    tty.setraw(device)

    def reply() -> None:
        os.read(host, 2)
        if answer is None:
            os.close(host)
        else:
            os.write(host, answer)

    thread = threading.Thread(target=reply)
    thread.start()
    try:
        Link(os.ttyname(device), plan, timeout=0.3)
    finally:
        thread.join()
        os.close(device)
        if answer is not None:
            os.close(host)


# --- synthesis -------------------------------------------------------------------------------------------------------


TINY = {
    "requantized": draw_net(Architecture("tiny", (3, 4, 2), 3, 2, 3, 1e6, 0)),
    "sums": quantize(make_net(3, 4, 2), "int3acc"),
    "falls": quantize(make_net(3, 4, 2, activation=Activation.HARDSWISH), "int4"),
}


@exhaustive
@pytest.mark.needs("fpga")
@pytest.mark.parametrize("net", TINY.values(), ids=list(TINY))
def test_synthesis_estimates_resources_once(net: IntegerNet, designs: Path, tmp_path: Path) -> None:
    design = make_design(net, (3, 1, 2), tmp_path / "design")
    found = synthesize(design, designs)
    assert found.resources.luts_raw >= found.resources.luts > 0
    assert 1 <= found.path.levels <= 12
    assert found.resources.luts < 3 * estimate(design.plan).luts
    begin = time.monotonic()
    assert synthesize(design, designs) == found
    assert time.monotonic() - begin < 1
    (design.folder / "policy.v").write_text("module policy(; endmodule\n")
    with pytest.raises(DeploymentError, match=r"refuses the design .*policy.v:1"):
        synthesize(design, designs)


@exhaustive
@pytest.mark.needs("fpga")
def test_a_table_is_sized_apart(designs: Path, tmp_path: Path) -> None:
    policy = draw_policy(STREAMED)
    stages = split(policy.net)
    for blocks in (0.0, 22.5):  # where no block RAM is left, its words are look-up tables
        plan = FoldingPlan(stages, Folding((9, 6, 8, 3), choose_steps(stages), block_rams=blocks))
        design = write_design(plan, tmp_path / "design", table=ActionTable.from_policy(policy))
        found = synthesize_table(design, designs).resources
        assert found.block_rams == (0.5 if blocks else 0)
        assert 0 < found.luts < 100
        assert found.dsps == 0


def test_results_of_another_counting_are_not_read(
    designs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "quarl_bench.backends.fpga.tools.synthesis.YOSYS", Tool("numpy", "")
    )  # any package: it is not run
    path = {"levels": 1, "begin": "", "end": ""}
    for luts in (1, 2):
        resources = {"luts_raw": luts, "luts": luts, "ffs": 0, "block_rams": 0, "dsps": 0}
        found = {"resources": resources, "path": path}
        monkeypatch.setattr("quarl_bench.backends.fpga.tools.synthesis._synthesize", lambda *_, found=found: found)
        monkeypatch.setattr("quarl_bench.backends.fpga.tools.synthesis.COUNTING", luts)
        design = make_design(draw_net(STREAMED), (9, 2, 3, 2), tmp_path / "design")
        assert synthesize(design, designs).resources.luts == luts


@exhaustive
@pytest.mark.needs("fpga")
def test_a_clock_is_that_of_another_part(designs: Path, tmp_path: Path) -> None:
    design = make_design(draw_net(Architecture("tiny", (2, 2, 2), 2, 2, 2, 1e6, 0)), (2, 1, 2), tmp_path / "design")
    found = place(design, designs)
    assert 10 < found.megahertz < 1000
    assert found.part.startswith("LFE5U")


def test_without_yosys_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("quarl_bench.backends.fpga.tools.synthesis.YOSYS", Tool("yowasp-absent", ""))
    design = make_design(draw_net(STREAMED), (9, 2, 3, 2), tmp_path / "design")
    with pytest.raises(MissingExtra, match=r"quarl_bench\[fpga\]"):
        synthesize(design, tmp_path)


# --- command line ----------------------------------------------------------------------------------------------------


def test_quarl_fpga_explores_a_trained_policy(baseline, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline("dqn-cartpole-seed0")

    arguments = ["fpga", str(POLICIES / "dqn-cartpole-seed0"), "--scheme", "int2", "--part", "xc7a35t", "--json"]
    assert main([*arguments, "--estimate", "--vectors", "0", "--output", str(tmp_path / "design")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["weights"].startswith("policy ")
    assert result["chosen"]["cycles"] == json.loads((tmp_path / "design" / MANIFEST).read_text())["cycles"]
    assert set(result["zeros"]) == {"layer1", "layer2", "layer3"}
    assert main([*arguments, "--estimate", "--vectors", "0", "--tanh"]) == 2
    assert "an argmax head has no table of actions; leave --tanh out" in capsys.readouterr().err


@pytest.mark.needs("verilator", "fpga")
def test_quarl_fpga_asks_a_board_and_reads_vivado(
    designs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(ARCHITECTURES, "streamed", STREAMED)
    arguments = ["fpga", "random:streamed", "--estimate", "--vectors", "20", "--cache", str(designs), "--json"]
    extra = [
        "--tanh",
        "--board",
        "simulated",
        "--qonnx",
        str(tmp_path / "policy.onnx"),
        "--reports",
        str(write_reports(tmp_path)),
    ]
    assert main([*arguments, *extra]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["board"] == {
        "source": "simulated", "observations": 20, "mismatches": 0, "cycles": result["chosen"]["cycles"],
    }  # fmt: skip
    assert result["tanh"]["simulation"]["cycles"] == result["chosen"]["cycles"] + 3
    assert result["tanh"]["synthesis"] is None
    vivado = result["vivado"]
    assert vivado["latency_us"] == pytest.approx(result["simulation"]["cycles"] / 100)
    assert vivado["joules_per_action"] == pytest.approx(0.331 * result["simulation"]["interval"] / 100e6)
    assert (tmp_path / "policy.onnx").stat().st_size > 0


@verilator
def test_reports_are_read_before_the_design_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    design, reports = tmp_path / "design", tmp_path / "design" / "reports"
    arguments = ["fpga", "random:hopper", "--estimate", "--cache", str(tmp_path / "cache"), "--output", str(design)]
    assert main([*arguments, "--vectors", "0"]) == 0
    reports.mkdir()
    write_reports(reports)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    capsys.readouterr()
    for folder, message in (
        (reports, "the design would be written anew over them; leave --output out, or choose another"),
        (design / ".." / "design" / "reports", "the design would be written anew over them"),
        (elsewhere, "timing_summary.rpt: No such file"),
    ):
        before = (design / MANIFEST).stat().st_mtime_ns
        assert main([*arguments, "--reports", str(folder)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert (design / MANIFEST).stat().st_mtime_ns == before
        assert len(list(reports.iterdir())) == 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["random:ant", "--board", "nowhere"], "--board nowhere: no such port"),
        (["random:ant", "--board", "simulated", "--vectors", "0"], "need simulated cycles"),
        (["random:pong"], "unknown architecture"),
        (["random:ant", "--part", "xc7z020"], "unknown part"),
        (["random:ant", "--stream", "28"], "an observation has 27 values"),
        *choose([], [(["random:eightbit", "--estimate"], "does not hold this policy")]),  # explored for seconds
        (["nowhere", "--scheme", "w8"], "float layers have no design"),
    ],
)
def test_quarl_fpga_refuses_in_one_line(arguments, message, capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which("verilator"):
        pytest.skip("needs verilator")
    assert main(["fpga", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
