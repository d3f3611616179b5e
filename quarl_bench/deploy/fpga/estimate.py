"""How large a design will be, from formulas: to look through thousands of foldings before one is synthesised.

Counted as Yosys 0.70 packs them (`Resources.luts`); the tests hold the estimate to within a quarter of its result.
"""

from quarl_bench.deploy.fpga.folding import Plan, Unit
from quarl_bench.deploy.fpga.part import Resources

TABLE_INPUTS = 6  # of a look-up table
PACKED = 0.8  # of the cells remain when small look-up tables share a site
CONSTANT = 0.6  # of a product by a constant
CONTROL = 60  # look-up tables of a layer's counters and handshakes


def estimate(plan: Plan) -> Resources:
    """Resources of `plan`; nothing is generated."""
    cells = sum(_unit_luts(unit, dsp=unit.name in plan.in_dsps) for unit in plan.units)
    memories = [rom for rom in plan.roms if rom.name not in plan.in_blocks]
    cells += sum(rom.luts for rom in memories)
    ffs = sum(_unit_ffs(unit) for unit in plan.units) + sum(rom.width for rom in memories)
    return Resources(
        luts_raw=round(cells),
        luts=round(PACKED * cells),
        ffs=round(ffs + plan.units[-1].stage.outputs * plan.out_bits),
        block_rams=sum(rom.blocks for rom in plan.roms if rom.name in plan.in_blocks),
        dsps=sum(unit.multipliers for unit in plan.units if unit.name in plan.in_dsps),
    )


def _unit_luts(unit: Unit, *, dsp: bool) -> float:
    stage, products = unit.stage, unit.multipliers
    bits = stage.in_bits + stage.weight_bits
    constant = CONSTANT if unit.weights.depth == 1 else 1.0
    if dsp:
        product = 0.0
    elif bits <= TABLE_INPUTS:
        product = bits if bits == TABLE_INPUTS else 0.75 * bits
    else:
        product = float(bits * (stage.weight_bits - 1))
    sums = products // unit.terms
    adders = sum(sums * _nodes(unit.terms, level) * (bits + level) for level in range(1, _depth(unit.terms) + 1))
    totals = 0 if unit.rows else sums * stage.sum_bits
    comparators = sum(unit.lanes * ((1 << search.step) - 1) * stage.sum_bits for search in unit.searches)
    return products * product * constant + adders * constant + totals + comparators + CONTROL


def _unit_ffs(unit: Unit) -> float:
    stage = unit.stage
    bits, depth = stage.in_bits + stage.weight_bits, _depth(unit.terms)
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
