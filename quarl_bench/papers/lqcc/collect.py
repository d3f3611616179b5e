"""What LQCC's judgements decide on: returns and curves of the authors' runs, as printed, or of our own policies.

The authors' files are not part of this package: $QUARL_LQCC_RUNS names their folder.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from quarl_bench.errors import MissingBaseline
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS
from quarl_bench.experiments.cells import Cells, environment_for
from quarl_bench.experiments.member import FP32
from quarl_bench.judging.claim import JudgedClaim
from quarl_bench.judging.evidence import Evidence
from quarl_bench.papers.lqcc.claims import AUTHORS as AUTHORS_ORIGIN
from quarl_bench.papers.lqcc.figures import AUTHORS, OURS, read_normalization, show_scopes, show_steps
from quarl_bench.papers.lqcc.integer_agreement import compare_forwards
from quarl_bench.papers.lqcc.parity import Summary
from quarl_bench.papers.lqcc.runs.own import Runs, read_curves
from quarl_bench.papers.lqcc.runs.published import FP32_FILE, PublishedRuns, read_published
from quarl_bench.papers.lqcc.runs.tasks import Tasks
from quarl_bench.papers.lqcc.sentences import read_printed, replay
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.spec import Source
from quarl_bench.views.panel import Panel

VARIABLE = "QUARL_LQCC_RUNS"
RAW = "raw"  # behind the origin of policies on raw observations
STATES = 100_000
FIGURES = {"sac": "Figure 1 (SAC)", "ddpg": "Figure 6 (DDPG, normalized)"}


def find_tasks(cells: Cells, item: JudgedClaim, *, raw: bool = False) -> Evidence:
    """By task of the item: fp32 returns, on raw observations if that is wished, and those of a configuration."""
    environments, origin = [case.environment for case in item.cases], item.claim.origin
    if origin == AUTHORS_ORIGIN:
        return Evidence(own=_list_published(environments), source=Source.PUBLISHED)
    runs = Runs(cells)
    tasks = runs.find(item.algo, environments, origin, f"{origin}{RAW}" if raw else "")
    beside = None
    if item.algo == "ddpg" and not raw:
        beside = runs.find(item.algo, environments, f"{origin}{RAW}")
    return Evidence(own=tasks, hashes=runs.policies, beside=beside)


def show_bits(item: JudgedClaim, evidence: Evidence) -> Sequence[Panel]:
    """Figures 1 and 6: sweeps over bits; of the authors' runs those of all their tasks."""
    if evidence.source is Source.PUBLISHED:
        return show_scopes(FIGURES["sac"], AUTHORS, _list_published())
    panels = show_scopes(FIGURES[item.algo], OURS, evidence.own)
    return panels + (show_scopes("Figure 6 (DDPG, raw)", OURS, evidence.beside) if evidence.beside else [])


def show_selected(item: JudgedClaim, evidence: Evidence) -> Sequence[Panel]:
    """Figures 4 and 5, around what is printed, or around what the rule selects on our runs, where these settle it."""
    printed = read_printed(item.claim)
    if evidence.source is Source.PUBLISHED:
        return show_steps(AUTHORS, evidence.own, printed)
    ours = {task: selection.configuration for task, selection in replay(evidence.own)[0].items()}
    return show_steps(OURS, evidence.own, printed | ours)


def find_curves(cells: Cells, item: JudgedClaim, *, half: bool) -> Evidence:
    """Learning curves by arm: fp32's, and the scheme's or, at `half` precision, those of fp32 trained in bf16."""
    (case,) = item.cases
    runs = Runs(cells)
    arms = {"fp32": replace(case, scheme=FP32)}
    arms |= {"bf16": replace(case, origin=f"{case.origin}bf16")} if half else {case.scheme: case}
    found = {name: arm for name, wanted in arms.items() if (arm := runs.find_arm(wanted)) is not None}
    names = {name: wanted.origin if half else name for name, wanted in arms.items()}
    missing = tuple(f"{case.environment}: {names[name]}" for name in arms if name not in found)
    curves = {name: read_curves(arm) for name, arm in found.items()}
    return Evidence(own=curves, hashes=runs.policies, missing=missing)


def find_normalization(cells: Cells, item: JudgedClaim) -> Evidence:
    """By task raw and normalized returns: from the printed table for the authors, else of our policies.

    The authors' files hold the normalized half of it only.
    """
    if item.claim.origin == AUTHORS_ORIGIN:
        return Evidence(own=read_normalization(item.claim), source=Source.PUBLISHED)
    arms = {case.environment: [{"origin": f"{case.origin}{RAW}"}, {}] for case in item.cases}
    found, gaps, hashes = _find_pairs(cells, item, arms)
    tasks = {task: tuple(map(Summary.of, pair)) for task, pair in found.items()}
    missing = tuple(f"{task}: raw and normalized, two policies of each" for task in gaps)
    return Evidence(own=tasks, hashes=hashes, missing=missing)


def find_algorithms(cells: Cells, item: JudgedClaim) -> Evidence:
    """By task the returns of DDPG, of SAC, and of DDPG again: the unit, and the two arms."""
    arms = {case.environment: [{"algo": "sac"}, {"algo": "ddpg"}] for case in item.cases}
    found, gaps, hashes = _find_pairs(cells, item, arms)
    tasks = {task: (ddpg, sac, ddpg) for task, (sac, ddpg) in found.items()}
    missing = tuple(f"{task}: SAC and DDPG, two policies of each" for task in gaps)
    return Evidence(own=tasks, hashes=hashes, missing=missing)


def find_trained(cells: Cells, item: JudgedClaim) -> Evidence:
    """The returns of fp32, of the net trained with the quantizer, and of one quantized to as many bits afterwards."""
    (case,) = item.cases
    runs = Runs(cells)
    arms = [runs.find_arm(replace(case, scheme=FP32)), runs.find_arm(case), runs.find_untrained(case)]
    found, gaps = runs.find_pairs({case.environment: arms})
    missing = tuple(f"{task}: fp32, trained, and quantized afterwards" for task in gaps)
    return Evidence(own=found, hashes=runs.policies, missing=missing)


def find_untrained(cells: Cells, item: JudgedClaim) -> Evidence:
    """Measurements of one cell in fp32 and quantized after training; MissingBaseline where no policy is."""
    (case,) = item.cases
    runs = Runs(cells)
    policies = runs.note(cells.find_policies(replace(case, scheme=FP32)))
    arm = runs.note(cells.quantize(policies, item.scheme))
    return Evidence(own=(cells.measure(policies), cells.measure(arm)), hashes=runs.policies)


def compare_states(cells: Cells, item: JudgedClaim) -> Evidence:
    """The trained net's forward and the deployed one, of every policy, in the states that it visits."""
    (case,) = item.cases
    runs = Runs(cells)
    arm = runs.find_arm(case)
    found = [
        compare_forwards(
            cast("IntegerPolicy", member.policy),  # what a scheme of integers makes
            collect_observations(member.policy, environment_for(member.stored, case), STATES, CALIBRATION_SEEDS),
        )
        for member in (() if arm is None else arm.members)
    ]
    return Evidence(own=found, hashes=runs.policies, missing=() if found else (case.id,))


def _find_pairs(cells: Cells, item: JudgedClaim, arms: dict[str, list[dict[str, str]]]) -> Any:
    """Per task the returns of arms that differ from its case in these fields; tasks without; and the policies."""
    runs = Runs(cells)
    sets = {
        case.environment: [runs.find_arm(replace(case, **change)) for change in arms[case.environment]]
        for case in item.cases
    }
    return *runs.find_pairs(sets), runs.policies


def _list_published(environments: Sequence[str] = ()) -> Tasks:
    """The authors' returns by task, by default of all tasks; MissingBaseline where their files are not here."""
    folder = Path(os.environ.get(VARIABLE, ""))
    if not os.environ.get(VARIABLE) or not (folder / FP32_FILE).exists():
        raise MissingBaseline(f"the authors' runs are not here: {VARIABLE} names the folder of their two CSV files")
    published = _read(folder)
    return {name: (published.fp32[name], partial(published.find, name)) for name in environments or published.fp32}


@cache
def _read(folder: Path) -> PublishedRuns:
    return read_published(folder)
