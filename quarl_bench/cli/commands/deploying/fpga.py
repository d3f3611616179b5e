"""`quarl fpga`: a policy as a design for an FPGA: how fast, how large, and equal to its golden model."""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_integers, new_command, read_clock, read_path, read_share
from quarl_bench.cli.designs import (
    describe_candidate,
    describe_run,
    describe_space,
    describe_vivado,
    name_lanes,
    write_text,
)
from quarl_bench.cli.opening import open_integers, quantize_to_integers, refuse_other_scheme, use_one_thread
from quarl_bench.cli.printing import print_result
from quarl_bench.errors import BoardError, SpecError
from quarl_bench.system.atomic import check_replaceable, open_file, open_folder, write_file
from quarl_bench.system.bars import AT_MOST, open_bar, step
from quarl_bench.system.counts import read_natural, read_positive
from quarl_bench.system.extras import expect
from quarl_bench.system.places import default_cache

if TYPE_CHECKING:
    from tqdm import tqdm

    from quarl_bench.backends.fpga.explore.explorer import Candidate
    from quarl_bench.backends.fpga.explore.folding import FoldingPlan
    from quarl_bench.backends.fpga.explore.part import Part
    from quarl_bench.backends.fpga.rtl.design import Design
    from quarl_bench.backends.fpga.rtl.table import ActionTable
    from quarl_bench.backends.fpga.tools.simulation import SimulatedRun
    from quarl_bench.backends.fpga.tools.synthesis import Synthesis
    from quarl_bench.policies.policy import IntegerPolicy
    from quarl_bench.quantization.integer import IntegerNet

VECTORS = 1000
SIMULATED = "simulated"  # a board
RANDOM = "random:"  # begins the name of a published architecture, drawn with random weights


def add_command(commands: Any) -> None:
    """Add `quarl fpga`: a policy of integers, an FPGA and its clock, and which tools run on the design."""
    command = new_command(commands, "fpga", run,
        "quarl fpga POLICY --part xc7a15t --clock 100MHz --output design")  # fmt: skip
    add_integers(command)
    command.add_argument("--part", default="xc7a15t", help="FPGA: xc7a15t, xc7a35t or xc7a100t. Default: xc7a15t.")
    command.add_argument("--clock", default=100.0, type=read_clock, help="clock of the design. Default: 100MHz.")
    command.add_argument(
        "--stream", type=read_positive, metavar="N", help="input values a cycle. Default: a whole observation."
    )
    command.add_argument("--spare", default=0.1, type=read_share, help="share of the part to leave free. Default: 0.1.")
    command.add_argument(
        "--cycles", type=read_positive, metavar="N",
        help="also say why no design takes N cycles or fewer, if none does. Default: fewer than the fastest.",
    )  # fmt: skip
    command.add_argument(
        "--estimate", action="store_true", help="estimate sizes by formulas only. Default: synthesize with Yosys too."
    )
    command.add_argument(
        "--vectors", type=read_natural, metavar="N",
        help=f"observations to simulate; 0: none. Default: {VECTORS}; with --estimate 0.",
    )  # fmt: skip
    command.add_argument(
        "--output", type=read_path, help="folder for the Verilog; a design there is replaced. Default: no."
    )
    command.add_argument(
        "--tanh", action="store_true",
        help="also build the table from outputs to actions, counted separately. Default: left to the host.",
    )  # fmt: skip
    command.add_argument("--place", action="store_true", help="also place on an ECP5, another part. Default: no.")
    command.add_argument(
        "--qonnx", type=read_path, metavar="FILE", help="QONNX file to write, for FINN. Default: none."
    )
    command.add_argument(
        "--board", metavar="PORT",
        help="serial port of a board that holds the design, or `simulated`: it acts on the same observations. Default: "
        "none.",
    )  # fmt: skip
    command.add_argument(
        "--reports",
        type=read_path,
        metavar="FOLDER",
        help="what hw/fpga/vivado/build.tcl wrote of the design. Default: none.",
    )
    command.add_argument("--cache", type=read_path, help="folder for builds and syntheses. Default: the user's.")


def run(options: argparse.Namespace) -> int:
    """Explore, confirm, write, simulate."""
    from quarl_bench.backends.fpga.explore.explorer import TRIES, explore, find_pareto, fits
    from quarl_bench.backends.fpga.explore.part import find_part
    from quarl_bench.backends.fpga.qonnx import write_qonnx
    from quarl_bench.backends.fpga.rtl.design import MANIFEST
    from quarl_bench.backends.fpga.rtl.stage import split
    from quarl_bench.backends.fpga.rtl.table import ActionTable
    from quarl_bench.backends.fpga.tools.placement import place
    from quarl_bench.backends.fpga.tools.vivado import read_reports

    use_one_thread()
    if options.vectors is None:
        options.vectors = 0 if options.estimate and not (options.board or options.reports) else VECTORS
    if options.vectors < 2 and (options.board or options.reports):
        raise SpecError(
            f"--vectors {options.vectors}: a board and Vivado's reports need simulated cycles; use 2 or more"
        )
    part = find_part(options.part)
    policy, weights = _open_policy(options)
    net = policy.net
    stages = split(net)
    table = ActionTable.from_policy(policy) if options.tanh else None
    if options.stream is not None and options.stream > stages[0].inputs:
        raise SpecError(f"--stream {options.stream}: an observation has {stages[0].inputs} values")
    cache = open_folder(options.cache or default_cache() / "fpga")
    if options.output is not None:
        if options.reports is not None and options.reports.resolve().is_relative_to(options.output.resolve()):
            raise SpecError(
                f"--reports {options.reports}: the design would be written anew over them; leave --output out, or "
                "choose another"
            )
        check_replaceable(options.output, MANIFEST)
        open_folder(options.output.parent)
    if options.qonnx is not None:
        open_file(options.qonnx, ".onnx")
    implementation = None if options.reports is None else read_reports(options.reports)
    _require_tools(options)
    candidates = explore(stages, part, options.stream, options.spare)
    front = [candidate for candidate in find_pareto(candidates, part) if fits(candidate.resources, part, 0.0)]
    most = 4 + (0 if options.estimate else TRIES)  # syntheses, and what follows them
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_bar(most, "steps", "design", bar_format=AT_MOST) as bar,
    ):
        folder = options.output or Path(scratch) / "design"
        chosen, design, synthesis = _choose(candidates, part, options, folder, cache, table, bar)
        bar.set_postfix_str("simulating")
        simulated = _simulate(design, net, chosen.plan, options.vectors, cache)
        step(bar, "simulated")
        tanh = _measure_table(design, net, options, cache)
        step(bar, "table of actions")
        board = None if options.board is None else _ask_board(options.board, design, net, options.vectors, cache)
        step(bar, "board")
        placement = asdict(place(design, cache)) | {"source": "estimated"} if options.place else None
        step(bar, "placed")
    if options.qonnx is not None:
        write_file(options.qonnx, write_qonnx(stages))
    result = {
        "weights": weights,
        "part": part.name,
        "clock_mhz": options.clock,
        "zeros": {stage.name: round(stage.zeros, 4) for stage in stages},
        **describe_space(candidates, part, options.cycles or chosen.cycles - 1, options.spare),
        "front": [describe_candidate(candidate, part) for candidate in front],
        "chosen": describe_candidate(chosen, part) | {"design_sha256": chosen.plan.digest.hex()},
        "synthesis": None if synthesis is None else asdict(synthesis) | {"source": "estimated"},
        "simulation": None if simulated is None else describe_run(simulated),
        "tanh": tanh,
        "placement": placement,
        "board": board,
        "vivado": None if implementation is None or simulated is None else describe_vivado(implementation, simulated),
    }
    print_result(options, result, "\n".join(write_text(result, front, part)))
    return 0


def _require_tools(options: argparse.Namespace) -> None:
    """Every program that this run calls, and the port, named now and not after an hour; nothing for formulas alone."""
    from quarl_bench.backends.fpga.tools.placement import NEXTPNR
    from quarl_bench.backends.fpga.tools.simulation import require_verilator
    from quarl_bench.backends.fpga.tools.synthesis import YOSYS

    if options.board not in (None, SIMULATED):
        expect("fpga", "a serial line (pyserial)", "serial")
        if not Path(options.board).exists():
            raise BoardError(f"--board {options.board}: no such port; check its name and the cable, or use {SIMULATED}")
    if options.vectors or options.board == SIMULATED:
        require_verilator()
    for tool, called in ((YOSYS, options.place or not options.estimate), (NEXTPNR, options.place)):
        if called:
            tool.require()


def _open_policy(options: argparse.Namespace) -> "tuple[IntegerPolicy, str]":
    """The integers, and where the weights are from."""
    from quarl_bench.papers.registry import list_providers

    name = str(options.policy)
    if name.startswith(RANDOM):
        architectures = list_providers("architectures")[0].open("hardware.architectures")
        _refuse_given(options, "draws its own integers", ("scheme", "environment", "algo", "normalization", "arch"))
        return architectures.draw_policy(architectures.find_architecture(name.removeprefix(RANDOM))), "random weights"
    found = open_integers(options)
    if found is not None:
        kept, own = found
        refuse_other_scheme(options, own)
        _refuse_given(options, f"holds integers of {own}, which are not calibrated again", ("environment",))
        return kept.policy, f"policy {kept.sha256[:16]}"
    policy, _, sha256, _ = quantize_to_integers(options, "float layers have no design")
    return policy, f"policy {sha256[:16]}"


def _refuse_given(options: argparse.Namespace, reason: str, names: tuple[str, ...]) -> None:
    """SpecError for options that would be without effect."""
    given = [f"--{name}" for name in names if getattr(options, name) is not None]
    if given:
        raise SpecError(f"{options.policy}: {reason}; leave {' and '.join(given)} out")


def _choose(
    candidates: "list[Candidate]",
    part: "Part",
    options: argparse.Namespace,
    folder: Path,
    cache: Path,
    table: "ActionTable | None",
    bar: "tqdm[Any]",
) -> "tuple[Candidate, Design, Synthesis | None]":
    from quarl_bench.backends.fpga.explore.explorer import choose, fits
    from quarl_bench.backends.fpga.rtl.design import write_design
    from quarl_bench.backends.fpga.tools.synthesis import LEVELS_LIMIT, synthesize

    done: dict[bytes, Synthesis] = {}

    def confirm(plan: "FoldingPlan") -> bool:
        if options.estimate:
            return True
        bar.set_postfix_str(f"synthesising lanes {name_lanes(plan)}, {plan.cycles} cycles")
        with tempfile.TemporaryDirectory() as scratch:
            synthesis = synthesize(write_design(plan, Path(scratch) / "design"), cache)
        done[plan.digest] = synthesis
        step(bar, f"synthesised: {synthesis.path.levels} levels of LUTs")
        return fits(synthesis.resources, part, options.spare) and synthesis.path.levels <= LEVELS_LIMIT

    chosen = choose(candidates, part, confirm, options.spare)
    design = write_design(chosen.plan, folder, megahertz=options.clock, table=table)
    return chosen, design, done.get(chosen.plan.digest)


def _simulate(
    design: "Design", net: "IntegerNet", plan: "FoldingPlan", count: int, cache: Path
) -> "SimulatedRun | None":
    from quarl_bench.backends.fpga.tools.simulation import Simulation, check
    from quarl_bench.backends.fpga.vectors import draw_inputs

    if count == 0:
        return None
    q = draw_inputs(plan.stages, count)
    return check(Simulation(design, cache), design, q, net.run(q), cache)


def _measure_table(
    design: "Design", net: "IntegerNet", options: argparse.Namespace, cache: Path
) -> dict[str, Any] | None:
    """What the table of actions adds to the design: its size alone, and cycles with it."""
    from quarl_bench.backends.fpga.rtl.table import TANH_TOP
    from quarl_bench.backends.fpga.tools.simulation import Simulation, check
    from quarl_bench.backends.fpga.tools.synthesis import synthesize_table
    from quarl_bench.backends.fpga.vectors import draw_inputs

    if design.table is None:
        return None
    q = draw_inputs(design.plan.stages, options.vectors)
    run = (
        check(Simulation(design, cache, top=TANH_TOP), design, q, design.table.find_words(net.run(q)), cache)
        if options.vectors
        else None
    )
    synthesis = None if options.estimate else synthesize_table(design, cache)
    return {
        "simulation": None if run is None else describe_run(run) | {"cycles": run.whole[0]},
        "synthesis": None if synthesis is None else asdict(synthesis) | {"source": "estimated"},
    }


def _ask_board(port: str, design: "Design", net: "IntegerNet", count: int, cache: Path) -> dict[str, Any]:
    """Actions and cycles of the board; BoardError when one is not the golden model's."""
    from contextlib import nullcontext

    from quarl_bench.backends.fpga.link import open_link, simulate_board
    from quarl_bench.backends.fpga.vectors import draw_inputs

    q = draw_inputs(design.plan.stages, count)
    board = simulate_board(design, cache) if port == SIMULATED else nullcontext(port)
    with board as name, open_link(name, design.plan) as link:
        outputs, cycles = link.run(q)
    wrong = (outputs != net.run(q)).any(1)
    if wrong.any():
        raise BoardError(
            f"{port}: {int(wrong.sum())} of {count} actions are not the golden model's; load the design again"
        )
    source = "simulated" if port == SIMULATED else "measured"
    return {"source": source, "observations": count, "mismatches": 0, "cycles": int(cycles.max())}
