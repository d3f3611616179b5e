"""What `quarl fpga` says of a design, as values and as text."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quarl_bench.views.text import format_table

if TYPE_CHECKING:
    from quarl_bench.backends.fpga.explore.explorer import Candidate
    from quarl_bench.backends.fpga.explore.folding import FoldingPlan
    from quarl_bench.backends.fpga.explore.part import Part, Resources
    from quarl_bench.backends.fpga.tools.simulation import SimulatedRun
    from quarl_bench.backends.fpga.tools.vivado import Implementation

SHOWN = 12  # foldings of the front


def describe_space(candidates: "list[Candidate]", part: "Part", cycles: int, spare: float) -> dict[str, Any]:
    """How many foldings were looked at, how many fit, and why none takes `cycles` at most; None where one does."""
    from quarl_bench.backends.fpga.explore.explorer import find_shortage, fits

    shortage = find_shortage(candidates, part, cycles, spare)
    return {
        "foldings": len(candidates),
        "fitting": sum(fits(candidate.resources, part, spare) for candidate in candidates),
        "shortage": None if shortage is None else shortage.describe(spare),
    }


def describe_candidate(candidate: "Candidate", part: "Part") -> dict[str, Any]:
    """A folding, its cycles, and its estimated size with what bounds it on `part`."""
    bound, share = candidate.resources.bottleneck(part)
    folding = candidate.plan.folding
    return {
        "lanes": list(folding.lanes),
        "steps": list(folding.steps),
        "levels": folding.levels,
        "cycles": candidate.cycles,
        "estimated": asdict(candidate.resources),
        "bound": bound,
        "share": round(share, 4),
    }


def describe_run(run: "SimulatedRun") -> dict[str, Any]:
    """A simulation in which every output was the golden model's: a mismatch has ended it before."""
    return {
        "source": "simulated",
        "observations": len(run.outputs),
        "mismatches": 0,
        "cycles": run.latency[0],
        "interval": run.interval,
    }


def describe_vivado(found: "Implementation", simulated: "SimulatedRun") -> dict[str, Any]:
    """A row of LQCC's Table 3, from Vivado's reports and the simulated cycles."""
    interval = simulated.interval or simulated.latency[0]
    return {
        "source": "estimated",
        "meets_timing": found.meets_timing,
        "slack_ns": found.slack,
        "clock_mhz": found.megahertz,
        "latency_us": found.latency(simulated.latency[0]) * 1e6,
        "actions_per_second": found.actions_per_second(interval),
        "watts": found.watts,
        "joules_per_action": found.joules_per_action(interval),
        "resources": asdict(found.resources),
    }


def write_text(result: dict[str, Any], front: "list[Candidate]", part: "Part") -> list[str]:
    """Lines of the whole result: the front's table, then what was chosen and how it did in each of the tools asked."""
    lines = [f"{result['weights']}; zero weights: {', '.join(f'{k} {v:.0%}' for k, v in result['zeros'].items())}", ""]
    rows = [["lanes", "cycles", "LUT", "BRAM", "DSP", "bound by"]]
    for candidate in front[:SHOWN]:
        used, (bound, share) = candidate.resources, candidate.resources.bottleneck(part)
        numbers = [str(candidate.cycles), f"{used.luts:,}", f"{used.block_rams:g}", str(used.dsps)]
        rows.append([name_lanes(candidate.plan), *numbers, f"{bound} {share:.0%}"])
    lines += [*format_table(rows), f"front of cycles against {part.name}'s scarcest resource; estimated by formula"]
    lines.append(f"looked at {result['foldings']:,} foldings, {result['fitting']:,} fit by estimate")
    lines += [f"{result['shortage']}", ""] if result["shortage"] else [""]
    chosen, synthesis, simulation = result["chosen"], result["synthesis"], result["simulation"]
    microseconds = chosen["cycles"] / result["clock_mhz"]
    lines.append(
        f"fastest that fits: lanes {'-'.join(map(str, chosen['lanes']))}, {chosen['cycles']} cycles, "
        f"{microseconds:g} us at {result['clock_mhz']:g} MHz if placed and routed so"
    )
    if synthesis is not None:
        from quarl_bench.backends.fpga.explore.part import Resources

        used = Resources(**synthesis["resources"])
        levels = synthesis["path"]["levels"]
        lines.append(f"estimated: {list_resources(used, part)}; {levels} LUT levels ({synthesis['tool']})")
    if simulation is not None:
        lines.append(
            f"simulated: {simulation['observations']} observations, 0 mismatches, {simulation['cycles']} cycles, one "
            f"every {simulation['interval']}"
        )
    if (tanh := result["tanh"]) is not None:
        lines.append(f"table of actions: {_write_table(tanh)}")
    if (placement := result["placement"]) is not None:
        lines.append(
            f"another part: {placement['megahertz']:g} MHz placed on {placement['part']}; not this part's clock"
        )
    if (board := result["board"]) is not None:
        lines.append(
            f"board ({board['source']}): {board['observations']} observations, all equal, {board['cycles']} cycles"
        )
    if (vivado := result["vivado"]) is not None:
        timing = "timing met" if vivado["meets_timing"] else f"timing FAILED by {-vivado['slack_ns']:g} ns"
        joules = f"{vivado['watts']:g} W, {vivado['joules_per_action']:.3g} J each"
        lines.append(
            f"Vivado: {timing} at {vivado['clock_mhz']:g} MHz, {vivado['latency_us']:g} us, "
            f"{vivado['actions_per_second']:,.0f} actions/s, {joules}"
        )
    return lines


def _write_table(tanh: dict[str, Any]) -> str:
    texts = []
    if (synthesis := tanh["synthesis"]) is not None:
        used = synthesis["resources"]
        texts.append(
            f"{used['luts']} LUT, {used['ffs']} FF, {used['block_rams']:g} BRAM alone (estimated), "
            f"{synthesis['path']['levels']} LUT levels"
        )
    if (simulation := tanh["simulation"]) is not None:
        texts.append(f"{simulation['cycles']} cycles with it, one action every {simulation['interval']} (simulated)")
    return "; ".join(texts) or "written, neither sized nor simulated"


def name_lanes(plan: "FoldingPlan") -> str:
    """Lanes of every layer from first to last, joined as 8-4-8."""
    return "-".join(map(str, plan.folding.lanes))


def list_resources(used: "Resources", part: "Part") -> str:
    """What a design uses of what the part has."""
    return (
        f"LUT {used.luts:,} of {part.luts:,} (raw {used.luts_raw:,}), FF {used.ffs:,} of {part.ffs:,}, "
        f"BRAM {used.block_rams:g} of {part.block_rams:g}, DSP {used.dsps} of {part.dsps}"
    )
