"""The one builder of rows, and what rows of cases and of sentences over many cells show beside their verdict."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.measurement_key import evaluation_epoch, name_preprocessing, runtime_versions
from quarl_bench.judging.claim import JudgedCase, JudgedClaim
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.modes import describe
from quarl_bench.judging.pairs import find_error
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement, Verdict
from quarl_bench.system.machine import describe_machine
from quarl_bench.views.rows import SCHEMA_VERSION, Row

Shown = dict[str, Any]  # fields of a row


def build_row(item: JudgedCase | JudgedClaim | Shown, verdict: Verdict, **found: Any) -> Row:
    """The row of an item, or of what is described like one: its words, its verdict, and what was `found`.

    What was found may say the line, the notes and the reason in words of its own.
    """
    about = item if isinstance(item, dict) else _describe_item(item)
    return Row(
        **{
            **about,
            "schema_version": SCHEMA_VERSION,
            "verdict": str(verdict.outcome),
            "estimate": verdict.estimate,
            "interval": None if verdict.low is None or verdict.high is None else [verdict.low, verdict.high],
            "threshold": verdict.threshold,
            "scope": verdict.scope,
            "needed": verdict.needed,
            "caveats": list(verdict.caveats),
            "missing": list(verdict.missing),
            "line": describe(verdict),
            "processor": describe_machine()["processor"],
            "code_epoch": evaluation_epoch(about["board"]),
            **found,
        }
    )


def show_case(judged: JudgedCase, reference: Measurement, measured: Measurement) -> Shown:
    """One cell: what was measured, and against what."""
    case = judged.case
    return {
        "kind": "case",
        "environment_id": find_environment(case.environment).id,
        "preprocessing": name_preprocessing(find_environment(case.environment)),
        "rounding": str(Scheme.parse(case.scheme).rounding),
        "versions": runtime_versions(case),
        "paper": judged.paper_values,
        "p_values": list(judged.claim.require(Keeps).find_p_values(judged, reference, measured)),
        **show_pair(reference, measured),
    }


def show_cells(cells: Evidence) -> Shown:
    """Many cells; `errors` are relative losses of mean returns, per cell."""
    measurements = cells.measurements
    every = [measurement for group in measurements.values() for measurement in group]
    sources = sorted({str(measurement.source) for measurement in every})
    errors = {name: find_error(m[0], m[1]) for name, m in measurements.items()}
    errors = {name: error for name, error in errors.items() if math.isfinite(error)}
    hashes = [sha256 for group in cells.hashes.values() for sha256 in group]
    return {
        "kind": "claim",
        "measured": {name: summarise(group[1]) for name, group in measurements.items()},
        "reference": {name: summarise(group[0]) for name, group in measurements.items()},
        "errors": errors,
        "mean_absolute_error": sum(map(abs, errors.values())) / len(errors) if errors else None,
        "ratios": cells.ratios,
        "orders": cells.orders,
        "histograms": {
            environment: {name: asdict(histogram) for name, histogram in found.items()}
            for environment, found in cells.histograms.items()
        },
        "curves": cells.curves,
        "runs": cells.runs,
        "states": cells.states if cells.curves else "",
        "policies": cells.hashes or None,
        "source": sources[0] if sources else str(cells.source),
        **_trace(every, hashes),
    }


def show_pair(reference: Measurement, measured: Measurement) -> Shown:
    """Two measurements of one cell, and the policies and seeds that they rest on."""
    return {
        "measured": summarise(measured),
        "reference": summarise(reference),
        "source": str(measured.source),
        "returns": {"measured": _write_returns(measured), "reference": _write_returns(reference)},
        **_trace((reference, measured)),
    }


def summarise(measurement: Measurement) -> dict[str, Any]:
    """Means per policy and the counts every row states."""
    means = [sum(row) / len(row) for row in measurement.returns]
    agreement = measurement.agreement
    return {
        "mean": measurement.mean,
        "lowest_policy": min(means),
        "per_policy": means,
        "policies": len(measurement.policies),
        "policy_sha256": list(measurement.policies),
        "episodes": len(measurement.environment_seeds),
        "distinct_episodes": measurement.distinct_episodes,
        "first_environment_seed": measurement.environment_seeds[0],
        "deterministic": measurement.deterministic,
        "agreement": None if agreement is None else sum(agreement) / len(agreement),
    } | ({} if measurement.sampled is None else {"sampled": summarise(measurement.sampled)})


def _write_returns(measurement: Measurement) -> Shown:
    """Every episode's return, from which `report.audit` judges again."""
    sampled = measurement.sampled
    return measurement.as_dict() | ({} if sampled is None else {"sampled": sampled.as_dict()})


def _describe_item(judged: JudgedCase | JudgedClaim) -> Shown:
    """The words of its id, and the claim that it judges."""
    claim = judged.claim
    cell: Shown = (
        asdict(judged.case)
        if isinstance(judged, JudgedCase)
        else {
            "algo": judged.algo,
            "environment": judged.environment,
            "scheme": judged.scheme,
            "origin": claim.origin,
            "board": "",
        }
    )
    return {
        "id": judged.id,
        "claim": claim.id,
        "replay": claim.replay,
        "rule": claim.judgement.name,
        "sentence": claim.says,
        "locus": claim.where,
        "env": cell.pop("environment"),
        **cell,
    }


def _trace(measurements: Iterable[Measurement], hashes: Iterable[str] = ()) -> Shown:
    """The policies that measurements rest on, and the environment seeds: the first, and how many."""
    known = list(measurements)
    seeds = [seed for measurement in known for seed in measurement.environment_seeds]
    policies = {sha256 for measurement in known for sha256 in measurement.policies}
    return {
        "policy_sha256": sorted(policies | set(hashes)),
        "seeds": [min(seeds), max(seeds) - min(seeds) + 1] if seeds else [],
    }
