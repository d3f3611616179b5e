"""Sentences about a return against bits: the fewest bits that keep it, and whether some width returns more than fp32.

One cell is judged at several widths, and a verdict over all of them may be wrong at 5% as that of any other sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from quarl_bench.judging import statistics as stats
from quarl_bench.judging.census import find_share
from quarl_bench.judging.modes import case_p_values
from quarl_bench.judging.pairs import find_error
from quarl_bench.judging.retention import name_scope
from quarl_bench.spec import Measurement, Outcome, Verdict
from quarl_bench.views.panel import MeanPoint, Panel

FULL = 32  # bits of fp32, which loses nothing
Curve = Mapping[int, Sequence[Measurement]]  # by bits: fp32, and the cell at that width
PValues = tuple[float, float]  # one-sided, of what is supported and of what is refuted


@dataclass(frozen=True)
class FewestBits:
    """The fewest bits from which on every width keeps the return: an estimate, and limits that are wrong at 5% each."""

    estimate: int
    low: int
    high: int


def find_fewest_bits(kept: Mapping[int, float], p_values: Mapping[int, PValues], margin: float) -> FewestBits:
    """From the shares `kept` and the p-values of every width, of keeping more than 1 - `margin` and of keeping less.

    From the widest down, each width is asked once whether it keeps the return, until one is not shown to: `high` is the
    last that is. From the narrowest up, until one is not shown to lose: `low` is that one. A test in an order that is
    fixed before needs no correction, because the first wrong step is the only one that counts.
    """
    widths = sorted(p_values)
    estimate = high = FULL
    for bits in reversed(widths):
        if kept[bits] <= 1 - margin:
            break
        estimate = bits
    for bits in reversed(widths):
        if p_values[bits][0] >= stats.ERROR:
            break
        high = bits
    low = min(high, next((bits for bits in widths if p_values[bits][1] >= stats.ERROR), FULL))
    return FewestBits(min(max(estimate, low), high), low, high)


def judge_fewest_bits(environment: str, curve: Curve, *, margin: float, most: float, missing: Sequence[str]) -> Verdict:
    """Judge "`most` bits, and every width above, keep more than 1 - `margin` of the return" on one cell.

    Estimate and interval are the fewest bits; partial, without numbers, where the cell has no policies.
    """
    if not curve:
        return Verdict(Outcome.PARTIAL, None, None, None, most, name_scope(0), 0, 0, 0, missing=tuple(missing))
    p_values = {bits: case_p_values(environment, margin, pair[0], pair[1]) for bits, pair in curve.items()}
    kept = {bits: 1 - find_error(pair[0], pair[1]) for bits, pair in curve.items()}
    found = find_fewest_bits(kept, p_values, margin)
    outcome = Outcome.INCONCLUSIVE
    if found.high <= most:
        outcome = Outcome.SUPPORTED
    elif found.low > most:
        outcome = Outcome.REFUTED
    reference = next(iter(curve.values()))[0]
    told = ", ".join(f"{bits}: {kept[bits]:.0%}" for bits in sorted(kept))
    return Verdict(
        outcome=outcome,
        estimate=found.estimate,
        low=found.low,
        high=found.high,
        threshold=most,
        scope=name_scope(len(reference.policies)),
        policies=len(reference.policies),
        episodes=len(reference.environment_seeds),
        distinct_episodes=reference.distinct_episodes,
        needed="more policies" if outcome is Outcome.INCONCLUSIVE else "",
        caveats=(f"bits, and the share of fp32's return that they keep: {told}",),
    )


def judge_sweet_spots(curves: Mapping[str, tuple[str, Curve]], *, threshold: float, missing: Sequence[str]) -> Verdict:
    """Judge "in some cells there is a width at which the return is above fp32's": in a share of them above `threshold`.

    `curves` maps a cell to its environment and its curve. A cell has such a width where its widths together show one
    (Simes), and none where each alone is shown to return less.
    """
    best, p_values = [], []
    for name, (environment, curve) in curves.items():
        found = {bits: case_p_values(environment, 0.0, pair[0], pair[1]) for bits, pair in curve.items()}
        p_values.append((stats.combine_cells([p for p, _ in found.values()], 1), max(p for _, p in found.values())))
        bits = min(curve, key=lambda width: find_error(curve[width][0], curve[width][1]))
        best.append((name, bits, -find_error(curve[bits][0], curve[bits][1])))
    share = find_share(p_values, len(missing))
    outcome = Outcome.PARTIAL if missing else Outcome.INCONCLUSIVE
    if share is not None and share[0] > threshold:
        outcome = Outcome.SUPPORTED
    elif share is not None and share[1] <= threshold:
        outcome = Outcome.REFUTED
    references = [next(iter(curve.values()))[0] for _, curve in curves.values()]
    policies = min((len(m.policies) for m in references), default=0)
    told = ", ".join(f"{name} {gain:+.1%} at {bits}" for name, bits, gain in best)
    return Verdict(
        outcome=outcome,
        estimate=sum(gain > 0 for _, _, gain in best) / len(best) if best else None,
        low=None if share is None else share[0],
        high=None if share is None else share[1],
        threshold=threshold,
        scope=name_scope(policies),
        policies=policies,
        episodes=min((len(m.environment_seeds) for m in references), default=0),
        distinct_episodes=min((m.distinct_episodes for m in references), default=0),
        needed="more policies in the undecided cells" if outcome is Outcome.INCONCLUSIVE and best else "",
        caveats=(f"a census of {len(best)} cells: says nothing about others", f"at the best width: {told}"),
        missing=tuple(missing),
    )


def draw_widths(figure: str, name: str, curve: Curve) -> Panel:
    """Mean returns against bits, over policies, beside the band of fp32."""
    points = tuple(_mean_point(bits, curve[bits][1]) for bits in sorted(curve))
    reference = next(iter(curve.values()))[0]
    return Panel(figure, "ours", name, "bits of the weights", {"weights rounded": points}, _mean_point(0, reference))


def _mean_point(x: float, measurement: Measurement) -> MeanPoint:
    means = [fmean(row) for row in measurement.returns]
    return MeanPoint(float(x), fmean(means), stdev(means) if len(means) > 1 else 0.0)
