"""What the row of a comparison on a board shows: times, memory over time, golden pairs, state of the board."""

from dataclasses import asdict
from typing import Any

from quarl_bench.boards.judgements import Faster
from quarl_bench.boards.speedup import describe_timing
from quarl_bench.boards.timing import BoardComparison, Timing, count_since_boot
from quarl_bench.judging.claim import JudgedCase
from quarl_bench.report.rows.builder import Shown
from quarl_bench.spec import Source, Verdict

RANDOM_WEIGHTS = "random weights: timing only"


def show_board(
    judged: JudgedCase, compared: BoardComparison, verdict: Verdict, *, trained: bool, memory: int = 0
) -> Shown:
    """Everything about one case on one board, in built-in types. Times stand in it only when they are not void.

    `memory`: bytes that the processes were limited to.
    """
    judgement, paper = (
        judged.claim.require(Faster),
        judged.claim.values.get((judged.case.algo, judged.case.environment)),
    )
    notes = [] if trained else [RANDOM_WEIGHTS]
    notes += [*verdict.caveats]
    notes += [f"emulated: in a control group with {memory >> 20} MiB of memory, and swap"] if memory else []
    notes += [str(timing.check) for timing in (compared.first, compared.second)]
    if compared.timed and not compared.faults:
        notes += [describe_timing(timing) for timing in (compared.first, compared.second)]
    notes += [f"on this board since its boot: {name}" for name in count_since_boot(compared.after)]
    notes.append(judgement.explain(compared))
    if judgement.name == "faster" and paper is not None:
        ratio = paper["fp32"] / paper["int8"]
        notes += [
            f"paper, Raspberry Pi 3b+: {paper['fp32']:g} -> {paper['int8']:g} ms, {ratio:.3g}x",
            *judged.claim.remarks,
        ]
    return {
        "kind": "timing",
        "weights": "trained" if trained else RANDOM_WEIGHTS,
        "measured": summarise_timing(compared, compared.second),
        "reference": summarise_timing(compared, compared.first),
        "states": [asdict(compared.before), asdict(compared.after)],
        "faults": list(compared.faults),
        "paper": None if paper is None else {"reference": paper["fp32"], "value": paper["int8"], "unit": "ms"},
        "source": str(Source.EMULATED if judgement.limited else compared.board.source),
        "processor": compared.after.processor,
        "caveats": notes,
        "line": judgement.describe(compared, verdict),
    }


def summarise_timing(compared: BoardComparison, timing: Timing) -> dict[str, Any]:
    """One artefact's golden check, times, memory over time, faults; built-in types only."""
    summary: dict[str, Any] = {"golden": asdict(timing.check), "void": bool(compared.faults)}
    if not timing.blocks:
        return summary
    first = timing.blocks[0]
    return summary | {
        "ms": {name: timing.find_ns(name) / 1e6 for name in ("p50", "p90", "p99", "max")},
        "standard_error_ms": timing.spread_ns / 1e6,
        "hertz": timing.hertz,
        "calls": timing.calls,
        "blocks": len(timing.blocks),
        "init_ms": [block.init_ms for block in timing.blocks],
        "first_ms": [block.first_ms for block in timing.blocks],
        "peak_rss": timing.peak_rss,
        "major_faults": [block.major_faults for block in timing.blocks],
        "pages_swapped": [block.pages_swapped for block in timing.blocks],
        "millijoules": timing.millijoules,
        "memory": [list(point) for point in timing.trace],  # seconds, resident and swapped bytes
        "phases": {name: at - first.start for name, at in first.phases.items()},
    }
