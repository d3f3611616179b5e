"""An answer in words: the lines of the terminal, the JSON of programs, the table of notebooks."""

import html
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quarl_bench.checking.recommendation import find_fewest, recommend
from quarl_bench.evaluation.sensitivity import describe_sensitivity
from quarl_bench.judging.pairs import align
from quarl_bench.judging.statistics import ERROR
from quarl_bench.views.rows import SCHEMA_VERSION
from quarl_bench.views.text import describe_returns, format_table

if TYPE_CHECKING:
    from quarl_bench.checking.answer import Answer, SchemeResult
    from quarl_bench.checking.costs import ArtefactCost

COLUMNS = ("scheme", "return", "against fp32", "keeps", "interval", "same action", "verdict")
COSTS = ("artefact", "bytes", "us (p50)", "us (p90)", "its code alone")
TARGETS = ("target", "scheme", "takes", "of", "source")
CONFIDENCE = 1 - ERROR  # that a definite verdict is right, for either side
LAYER_BITS = 4  # at which layers are compared


def name_share(share: float, floor: float | None) -> str:
    """A share of the return, or of what it is above the floor."""
    return f"{share:.0%} of the return{'' if floor is None else f' above {floor:g}'}"


def describe_answer(found: "Answer") -> dict[str, Any]:
    """All that `quarl check --json` prints, as one object; `quarl report` reads it back."""
    fewest = find_fewest(found.lines)
    return {
        "kind": "check",
        "schema_version": SCHEMA_VERSION,
        "policy": found.name,
        "policy_sha256": found.stored.sha256,
        "environment": found.environment.id,
        "episodes": len(found.reference.environment_seeds),
        "distinct_episodes": found.reference.distinct_episodes,
        "source": str(found.reference.source),
        "margin": found.margin,
        "floor": found.floor,
        "confidence": CONFIDENCE,
        "scheme": found.asked,
        "fewest": None if fewest is None else fewest.scheme.name,
        "verdict": str(found.verdict.outcome),
        "return": found.lines[0].base,
        "random_return": found.random.mean,
        "doubt": found.doubt,
        "rows": [describe_line(line) for line in found.lines],
        "refused": dict(found.refused),
        "layer_bits": LAYER_BITS,
        "layers": [asdict(layer) for layer in found.layers],
        "costs": [asdict(cost) for cost in found.costs],
        "targets": [asdict(cost) for cost in found.targets],
        "recommendation": recommend(found),
    }


def list_lines(found: "Answer") -> list[str]:
    """The lines that `quarl check` prints: the fp32 return, a line per scheme, costs, and what to ship."""
    needs = [f"  {line.scheme.name}: {line.verdict.needed}" for line in found.lines if line.verdict.needed]
    missing = [f"  {reason}" for reason in found.refused.values()]
    missing += [f"  {cost.backend} {cost.scheme}: {cost.reason}" for cost in found.costs if cost.reason]
    missing += dict.fromkeys(f"  {cost.reason}" for cost in found.targets if cost.reason)
    fewest = find_fewest(found.lines)
    best = "none" if fewest is None else fewest.scheme.name
    tried, random = len(found.random.environment_seeds), describe_returns(found.random.returns[0])
    episodes, (distinct,) = len(found.reference.environment_seeds), align(found.reference)[0]
    equal = "" if len(distinct) == episodes else f" ({len(distinct)} distinct; equal ones count once)"
    returns = describe_returns(distinct.tolist())
    return [
        f"{found.environment.id}, {episodes} episodes each{equal}, deterministic, measured on this machine",
        f"fp32 returns {returns}; a scheme is to keep {found.share}, on the same environment seeds",
        f"random actions return {random} on the first {tried} of them",
        *format_table([COLUMNS, *map(format_line, found.lines)]),
        f"fewest bits that keep {found.share} at {CONFIDENCE:.0%} confidence: {best}",
        *(["what would decide:", *needs] if needs else []),
        "which layers are touchy:",
        *(f"  {describe_sensitivity(layer, LAYER_BITS)}" for layer in found.layers),
        "what it costs here: bytes of the model's file (of c: of its machine code and constants, compiled), and one",
        "call from Python, quantization of its input included; of small nets that is Python's own time:",
        *format_table([COSTS, *(_format_cost(cost) for cost in found.costs if not cost.reason)]),
        *_list_targets(found),
        *(["not there:", *missing] if missing else []),
        recommend(found),
    ]


def write_html(found: "Answer") -> str:
    """A fragment of HTML with the table of schemes and the recommendation; it needs nothing beside itself."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
    rows = [format_line(line) for line in found.lines]
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"{found.name} on {found.environment.id}: {found.asked} {found.verdict.outcome}"
    return (
        f"<p><b>{html.escape(title)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{html.escape(recommend(found))}</p>"
    )


def describe_line(line: "SchemeResult") -> dict[str, Any]:
    """One scheme's result, in JSON types."""
    verdict = line.verdict
    return {
        "scheme": line.scheme.name,
        "family": str(line.scheme.family),
        "bits": line.scheme.widest,
        "return": line.mean,
        "difference": line.difference,
        "difference_interval": None if line.interval is None else list(line.interval),
        "ratio": verdict.estimate,
        "ratio_low": verdict.low,
        "ratio_high": verdict.high,
        "agreement": line.agreement,
        "verdict": str(verdict.outcome),
        "needed": verdict.needed,
        "caveats": list(verdict.caveats),
    }


def format_line(line: "SchemeResult") -> tuple[str, ...]:
    """One scheme's result as cells of the table under `COLUMNS`."""
    verdict = line.verdict
    interval = "none" if verdict.low is None else f"[{verdict.low:.1%}, {verdict.high:.1%}]"
    keeps = "none" if verdict.estimate is None else f"{verdict.estimate:.1%}"
    returns, apart = f"{line.mean:.4g}", f"{line.difference:+.4g}"
    return line.scheme.name, returns, apart, keeps, interval, f"{line.agreement:.2%}", str(verdict.outcome)


def _list_targets(found: "Answer") -> list[str]:
    rows = [
        (cost.target, cost.scheme, f"{cost.value:,.0f}", cost.unit, cost.source)
        for cost in found.targets
        if not cost.reason
    ]
    return ["what it costs elsewhere:", *format_table([TARGETS, *rows])] if rows else []


def _format_cost(cost: "ArtefactCost") -> tuple[str, ...]:
    own = "" if cost.own is None else f"{cost.own:,.0f} ns"
    return f"{cost.backend} {cost.scheme}", f"{cost.bytes:,}", f"{cost.median:.1f}", f"{cost.p90:.1f}", own
