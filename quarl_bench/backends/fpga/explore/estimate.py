"""How large a design will be, from formulas: to look through thousands of foldings before one is synthesised.

Counted as Yosys 0.70 packs them (`Resources.luts`); the tests hold the estimate to within a quarter of its result.
"""

from quarl_bench.backends.fpga.explore.folding import FoldingPlan
from quarl_bench.backends.fpga.explore.part import Resources
from quarl_bench.backends.fpga.explore.unit import Unit

TABLE_INPUTS = 6  # of a look-up table
PACKED = 0.85  # of the cells remain when small look-up tables share a site
CONSTANT = 0.4  # of a comparator with constants
CONTROL = 60  # look-up tables of a layer's counters and handshakes


def estimate(plan: FoldingPlan) -> Resources:
    """Resources of `plan`; nothing is generated."""
    last = plan.stages[-1]
    cells = sum(_unit_luts(unit, dsp=unit.name in plan.in_dsps) for unit in plan.units)
    memories = [rom for rom in plan.roms if rom.name not in plan.in_blocks]
    cells += sum(rom.luts for rom in memories)
    ffs = sum(_unit_ffs(unit) for unit in plan.units) + sum(rom.width for rom in memories)
    return Resources(
        luts_raw=round(cells),
        luts=round(PACKED * cells),
        ffs=round(ffs + last.outputs * (last.out_bits if last.wide else plan.out_bits)),
        block_rams=sum(rom.blocks for rom in plan.roms if rom.name in plan.in_blocks),
        dsps=sum(unit.multipliers for unit in plan.units if unit.name in plan.in_dsps),
    )


def estimate_least(unit: Unit) -> float:
    """Look-up tables that a unit takes at least, with every product in a DSP and every memory in block RAM."""
    return PACKED * _unit_luts(unit, dsp=True)


def _unit_luts(unit: Unit, *, dsp: bool) -> float:
    stage, products = unit.stage, unit.multipliers
    bits, constant = stage.product_bits, unit.weights.depth == 1
    inputs = stage.in_bits + stage.weight_bits
    if dsp or constant:  # a product by a constant of two or three bits is hardly more than wires
        product = 0.0
    elif inputs <= TABLE_INPUTS:
        product = bits if inputs == TABLE_INPUTS else 0.6 * bits  # two results of five inputs share a table
    else:
        product = float(inputs * (stage.weight_bits - 1))
    sums = products // unit.terms
    adders = sum(sums * _nodes(unit.terms, level) * (bits + level) for level in range(1, _depth(unit.terms) + 1))
    totals = 0 if unit.rows else sums * stage.sum_bits
    comparators = sum(unit.lanes * ((1 << search.step) - 1) * stage.sum_bits for search in unit.searches)
    return (
        products * product
        + adders * (1 - unit.zeros if constant else 1)
        + totals
        + comparators * (CONSTANT if unit.beats == 1 else 1)
        + (unit.lanes * stage.out_bits if stage.wide else 0)
        + CONTROL
    )


def _unit_ffs(unit: Unit) -> float:
    stage = unit.stage
    bits, depth = stage.product_bits, _depth(unit.terms)
    sums = unit.multipliers // unit.terms
    registered = [level for level in range(depth + 1) if level == depth or (level + 1) % unit.levels == 0]
    tree = sum(sums * (_nodes(unit.terms, level) if level else unit.terms) * (bits + level) for level in registered)
    held = stage.inputs * stage.in_bits if unit.rows and unit.beats > 1 else 0
    totals = 0 if unit.rows else sums * stage.sum_bits
    searches = sum(unit.lanes * (stage.sum_bits + search.known + search.step) for search in unit.searches)
    return tree + held + totals + searches + CONTROL / 2


def _nodes(terms: int, level: int) -> int:
    """Adders on a level of the tree: a node without partner is a wire."""
    below = -(-terms // (1 << (level - 1)))
    return below // 2


def _depth(terms: int) -> int:
    return (terms - 1).bit_length()
