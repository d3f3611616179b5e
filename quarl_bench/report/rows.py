"""A row: everything one case or claim item says about itself, in built-in types only."""

import math
from dataclasses import asdict

from quarl_bench.environments.registry import find_environment
from quarl_bench.experiments.measurement_key import name_preprocessing, runtime_versions
from quarl_bench.judging.claim import JudgedCase, JudgedClaim
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.modes import describe
from quarl_bench.judging.pairs import find_error
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement, Verdict
from quarl_bench.views.rows import Row


def build_case_row(judged: JudgedCase, reference: Measurement, measured: Measurement, verdict: Verdict) -> Row:
    """The row of one cell: what was measured, against what, and the verdict."""
    case = judged.case
    return {
        "kind": "case",
        **identify_case(judged),
        "environment_id": find_environment(case.environment).id,
        "preprocessing": name_preprocessing(find_environment(case.environment)),
        "rounding": str(Scheme.parse(case.scheme).rounding),
        "versions": runtime_versions(case),
        "measured": summarise(measured),
        "reference": summarise(reference),
        "paper": judged.paper_values,
        "p_values": list(judged.claim.require(Keeps).find_p_values(judged, reference, measured)),
        "source": str(measured.source),
    } | _judged(judged, verdict)


def identify_case(judged: JudgedCase) -> Row:
    """The words of its id, and the claim that it judges."""
    case = judged.case
    return {
        "id": judged.id,
        "claim": judged.claim.id,
        "rule": judged.claim.judgement.name,
        "algo": case.algo,
        "env": case.environment,
        "scheme": case.scheme,
        "origin": case.origin,
        "board": case.board,
    }


def build_claim_row(judged: JudgedClaim, cells: Evidence, verdict: Verdict) -> Row:
    """The row of one sentence over many cells; `errors` are relative losses of mean returns, per cell."""
    measurements = cells.measurements
    sources = sorted({str(m.source) for group in measurements.values() for m in group})
    errors = {name: find_error(m[0], m[1]) for name, m in measurements.items()}
    errors = {name: error for name, error in errors.items() if math.isfinite(error)}
    return (
        {
            "kind": "claim",
            "id": judged.id,
            "claim": judged.claim.id,
            "rule": judged.claim.judgement.name,
            "algo": judged.algo,
            "env": "",
            "scheme": judged.scheme,
            "origin": judged.claim.origin,
            "board": "",
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
            "paper": None,
            "source": sources[0] if sources else str(cells.source),
        }
        | ({"policies": cells.hashes} if cells.hashes else {})
        | _judged(judged, verdict)
    )


def summarise(measurement: Measurement) -> Row:
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


def state_verdict(verdict: Verdict) -> Row:
    """The keys of a row that come from its verdict: outcome, estimate, interval, threshold, and the line to print."""
    interval = None if verdict.low is None or verdict.high is None else [verdict.low, verdict.high]
    return {
        "verdict": str(verdict.outcome),
        "estimate": verdict.estimate,
        "interval": interval,
        "threshold": verdict.threshold,
        "scope": verdict.scope,
        "needed": verdict.needed,
        "caveats": list(verdict.caveats),
        "missing": list(verdict.missing),
        "line": describe(verdict),
    }


def _judged(judged: JudgedCase | JudgedClaim, verdict: Verdict) -> Row:
    claim = judged.claim
    return {"sentence": claim.says, "locus": claim.where, "known": judged.known} | state_verdict(verdict)
