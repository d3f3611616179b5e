"""Cells that are played with argmax and with sampled actions: which verdict counts, and what it is in one line."""

from dataclasses import replace

from quarl_bench.environments.registry import find_environment
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.retention import judge_retention, retention_p_values, reverse
from quarl_bench.spec import Measurement, Outcome, Verdict

STRENGTH = (Outcome.REFUTED, Outcome.PARTIAL, Outcome.UNDECIDABLE, Outcome.INCONCLUSIVE, Outcome.SUPPORTED)


def judge_case(
    environment: str, margin: float, reference: Measurement, measured: Measurement, *, opposite: bool = False
) -> Verdict:
    """The verdict on one cell: the weaker one, where it was measured with sampled actions as well.

    It is about "keeps more than 1 - margin", or its `opposite`. Two chances to refute make no more errors than one:
    unless both ways of acting refute, one has to at half the error.
    """
    cap = find_environment(environment).cap
    modes = _split_modes(reference, measured)
    verdicts = [judge_retention(before, after, margin=margin, cap=cap) for before, after in modes]
    found = weaken([reverse(verdict) for verdict in verdicts] if opposite else verdicts)
    alone = len(modes) > 1 and found.outcome is Outcome.REFUTED
    if alone and case_p_values(environment, margin, reference, measured, opposite=opposite)[1] >= stats.ERROR:
        needed = "more policies: one way of acting alone refutes it, and not at 2.5%"
        found = replace(found, outcome=Outcome.INCONCLUSIVE, needed=needed)
    return found


def case_p_values(
    environment: str, margin: float, reference: Measurement, measured: Measurement, *, opposite: bool = False
) -> tuple[float, float]:
    """One-sided p-values of "supported" and of "refuted", for false discovery rates over many cells.

    Supported needs both ways of acting, so the larger p-value; refuted is either one (Simes).
    """
    cap = find_environment(environment).cap
    modes = _split_modes(reference, measured)
    weights = [retention_p_values(before, after, margin=margin, cap=cap) for before, after in modes]
    if opposite:
        weights = [(lost, kept) for kept, lost in weights]
    return max(w[0] for w in weights), stats.combine_cells([w[1] for w in weights], 1)


def weaken(verdicts: list[Verdict]) -> Verdict:
    """The weakest of the verdicts on argmax and on sampled actions; the other stands in its caveats.

    Over many cells, unlike in `judge_case`, either way of acting refutes at 5%: with two, up to 10% of true sentences
    are refuted.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    names = ("argmax", "sampled")
    chosen = min(range(len(verdicts)), key=lambda index: STRENGTH.index(verdicts[index].outcome))
    found, other = verdicts[chosen], verdicts[1 - chosen]
    note = f"of {names[chosen]} actions; {names[1 - chosen]} actions are {describe(other)}"
    return replace(found, caveats=(note, *found.caveats))


def describe(verdict: Verdict) -> str:
    """One line: estimate, interval, threshold, outcome, and what it rests on."""
    numbers = "no interval" if verdict.estimate is None else f"{verdict.estimate:.4g}, no interval,"
    if verdict.estimate is not None and verdict.low is not None and verdict.high is not None:
        numbers = f"{verdict.estimate:.4g} [{verdict.low:.4g}, {verdict.high:.4g}]"
    basis = f"{verdict.policies} policies"
    if verdict.episodes:
        basis = f"{verdict.policies} x {verdict.episodes} episodes ({verdict.distinct_episodes} distinct)"
    line = f"{verdict.outcome}: {numbers} against {verdict.threshold:g}, {verdict.scope}, {basis}"
    return f"{line}; {verdict.needed}" if verdict.needed else line


def _split_modes(reference: Measurement, measured: Measurement) -> list[tuple[Measurement, Measurement]]:
    """(reference, measured) of argmax actions and, where there are, of sampled ones."""
    modes = [(reference, measured)]
    if reference.sampled is not None and measured.sampled is not None:
        modes.append((reference.sampled, measured.sampled))
    return modes
