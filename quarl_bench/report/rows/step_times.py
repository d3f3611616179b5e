"""What the row of Table 5's step times on one device shows beside its verdict."""

import statistics
from collections.abc import Sequence

from quarl_bench.judging.claim import JudgedCase, JudgedClaim
from quarl_bench.judging.times.step_times import describe_step_time, mean_speedup, read_size
from quarl_bench.report.rows.builder import Shown
from quarl_bench.spec import Source, Verdict
from quarl_bench.training.recipes import FP32
from quarl_bench.training.sb3.step_times import LEAN, StepTimes


def show_step_times(
    judged: JudgedCase | JudgedClaim,
    times: StepTimes,
    verdict: Verdict,
    environments: Sequence[str],
    precision: str,
    notes: Sequence[str],
) -> Shown:
    """Everything about one item of Table 5 on one device, in built-in types. Gains stand in it only if not void."""
    cell = judged.case if isinstance(judged, JudgedCase) else judged.cases[0]
    values = judged.claim.values
    paper = {name: values[cell.algo, name] for name in environments if (cell.algo, name) in values}
    minutes = [f"paper, {name}: {row['fp32']:g} -> {row['mixed']:g} min" for name, row in paper.items()]
    single = paper.get(environments[0]) if len(environments) == 1 else None
    return {
        "kind": "timing",
        "algo": cell.algo,
        "scheme": precision,
        "origin": "",
        "board": cell.board,
        "measured": {name: statistics.median(times.steps[f"{read_size(name)}-{precision}"]) for name in environments},
        "reference": {
            name: {kind: statistics.median(times.steps[f"{read_size(name)}-{kind}"]) for kind in (FP32, LEAN)}
            for name in environments
        },
        "gains": {} if times.faults else {name: _list_gains(times, name, precision) for name in environments},
        "device": {
            "name": times.device,
            "machine": times.machine,
            "cores": times.cores,
            "divisor": times.divisor,
        },
        "processor": times.machine,
        "versions": times.versions,
        "faults": list(times.faults),
        "paper": None if single is None else {"reference": single["fp32"], "value": single["mixed"], "unit": "min"},
        "paper_gains": {name: row["fp32"] / row["mixed"] for name, row in paper.items()},
        "source": str(Source.MEASURED),
        "caveats": [*notes, *minutes, *judged.claim.remarks],
        "line": describe_step_time(verdict),
    }


def _list_gains(times: StepTimes, environment: str, precision: str) -> dict[str, list[float]]:
    """Estimate and limits over each fp32 contender."""
    size = read_size(environment)
    return {kind: list(mean_speedup(times.list_gains(size, precision, kind))) for kind in (FP32, LEAN)}
