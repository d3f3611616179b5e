"""Verdicts on Table 4: fp32 over int8 on one board, in time and in memory, and why a ratio is what it is."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from quarl_bench.boards.timing import BoardComparison, Timing
from quarl_bench.judging.retention import conclude
from quarl_bench.judging.statistics import Interval
from quarl_bench.judging.times.sessions import ALONE
from quarl_bench.spec import Outcome, Verdict

DOT_PRODUCT = ("asimddp", "i8mm", "avx512_vnni", "avx_vnni")  # instructions that multiply and add int8 at once
VARIES = "more blocks: fp32's rate varies"


def judge_speed(compared: BoardComparison, threshold: float) -> Verdict:
    """Whether int8 is more than `threshold` times as fast as fp32; void times give no interval."""
    if compared.faults or not compared.timed:
        estimate = compared.find_speedup().estimate if compared.timed else None
        return _call_void(compared, compared.faults, threshold, estimate)
    return _tell_sessions(compared, _decide(compared, compared.find_speedup(), threshold, "the ratio varies"))


def judge_size(compared: BoardComparison, threshold: float) -> Verdict:
    """Whether the int8 file is `threshold` times smaller, scales, biases and metadata included; known exactly."""
    ratio = compared.first.check.bytes / compared.second.check.bytes
    outcome = Outcome.SUPPORTED if ratio >= threshold else Outcome.REFUTED
    return _conclude(compared, outcome, ratio, Interval(ratio, ratio, ratio), threshold)


def judge_memory(compared: BoardComparison, threshold: float) -> Verdict:
    """Whether the int8 process's peak resident memory is `threshold` times smaller; other work does not change it."""
    if not compared.timed:
        return _call_void(compared, compared.faults, threshold)
    return _tell_sessions(compared, _decide(compared, compared.find_memory_ratio(), threshold, "the peaks vary"))


def judge_peak(compared: BoardComparison, memory: int, threshold: float) -> Verdict:
    """Whether the fp32 process's peak resident memory is more than `threshold` times `memory` bytes."""
    if not compared.timed:
        return _call_void(compared, compared.faults, threshold)
    share = Interval(*(peak / memory for peak in compared.first.bound_peak()))
    return _decide(compared, share, threshold, "the peaks vary")


def judge_rate(compared: BoardComparison, threshold: float) -> Verdict:
    """Whether int8 acts more than `threshold` times a second and fp32 less often; void times give no interval.

    The rate that decides is int8's, or fp32's where that is not below. Of rates no earlier sessions are stored.
    """
    if compared.faults or not compared.timed:
        return _call_void(compared, compared.faults, threshold)
    alone = replace(compared, sessions=ALONE)
    fp32, int8 = (_find_rate(timing) for timing in (compared.first, compared.second))
    if fp32.high < threshold:
        return _tell_sessions(alone, _decide(alone, int8, threshold, "the rate varies"))
    outcome = Outcome.REFUTED if fp32.low > threshold else Outcome.INCONCLUSIVE
    needed = "" if outcome is Outcome.REFUTED else VARIES
    return _tell_sessions(alone, _conclude(alone, outcome, fp32.estimate, fp32, threshold, needed))


def judge_cliff(free: BoardComparison, limited: BoardComparison, threshold: float) -> Verdict:
    """Whether fp32 gets more than `threshold` times slower, beside int8, where memory is `limited` than where `free`.

    The limits are those of both ratios at once, which is wider than 90%.
    """
    faults = sorted({*free.faults, *limited.faults})
    if faults or not (free.timed and limited.timed):
        return _call_void(limited, faults, threshold)
    before, after = free.find_speedup(), limited.find_speedup()
    verdict = _decide(limited, _divide(after, before), threshold, "the ratios vary")
    slower = [
        now.find_ns("p50") / then.find_ns("p50")
        for then, now in ((free.first, limited.first), (free.second, limited.second))
    ]
    told = (
        f"fp32 gets {slower[0]:.3g} times as slow, int8 {slower[1]:.3g} times",
        f"fp32/int8 is {before.estimate:.3g}x with all memory, {after.estimate:.3g}x with little",
    )
    return replace(verdict, caveats=told)


def _divide(above: Interval, below: Interval) -> Interval:
    return Interval(above.estimate / below.estimate, above.low / below.high, above.high / below.low)


def _find_rate(timing: Timing) -> Interval:
    """Actions a second."""
    estimate, low, high = timing.bound_ns()
    return Interval(1e9 / estimate, 1e9 / high, 1e9 / low)


def judge_growth(compared: Sequence[BoardComparison], threshold: float) -> Verdict:
    """Whether from every policy to the next larger one the ratio of times grows more than `threshold`-fold.

    The step that grows least decides. Its limits are those of both ratios at once, which is wider than 90%.
    """
    ordered = sorted(compared, key=lambda found: found.first.check.parameters)
    faults = sorted({fault for found in ordered for fault in found.faults})
    if faults or not all(found.timed for found in ordered):
        return _call_void(ordered[0], faults, threshold)
    ratios = [found.find_speedup() for found in ordered]
    steps = [_divide(b, a) for a, b in pairwise(ratios)]
    least = min(steps, key=lambda step: step.low)
    if any(step.high < threshold for step in steps):
        least = min(steps, key=lambda step: step.high)
    verdict = _decide(ordered[0], least, threshold, "the ratios vary")
    found = ", ".join(
        f"{f.first.check.parameters:,} parameters: {r.estimate:.3g}x" for f, r in zip(ordered, ratios, strict=True)
    )
    scope = f"these policies on {ordered[0].board.name}, {min(map(str, (f.sessions for f in ordered)))}"
    return replace(verdict, scope=scope, policies=len(ordered), caveats=(found,))


def explain_speed(compared: BoardComparison) -> str:
    """What decides the ratio of times: size, instruction set, runtime and kernel, threads."""
    state, fp32, int8 = compared.after, compared.first, compared.second
    found = [name for name in state.features if name in DOT_PRODUCT]
    dot = f"int8 dot product ({', '.join(found)})" if found else "no int8 dot product instruction"
    parts = [
        f"{fp32.check.parameters:,} parameters",
        f"{state.processor} ({state.architecture}), {dot}",
        ", ".join(f"{t.check.scheme} by {t.check.runtime} in {t.check.kernel} kernels" for t in (fp32, int8)),
        f"{compared.board.threads} thread{'s' if compared.board.threads > 1 else ''}",
    ]
    if int8.check.kernel == "builtin" and fp32.check.kernel != "builtin":
        parts.append("this runtime has no XNNPACK for int8")
    return "; ".join(parts)


def explain_size(compared: BoardComparison) -> str:
    """What keeps the ratio of files from four."""
    fp32, int8 = compared.first.check, compared.second.check
    return (
        f"{fp32.parameters:,} parameters: {fp32.bytes:,} -> {int8.bytes:,} bytes, of which "
        f"{int8.bytes - int8.parameters:,} are 32-bit biases, scales and metadata"
    )


def explain_memory(compared: BoardComparison) -> str:
    """What keeps the ratio of peaks from that of the files; of files alone where nothing ran."""
    if not compared.timed:
        return explain_size(compared)
    fp32, int8 = ((timing.peak_rss / 2**20, timing.check.bytes / 2**20) for timing in (compared.first, compared.second))
    return (
        f"peaks of {fp32[0]:.1f} and {int8[0]:.1f} MiB, of which the files are {fp32[1]:.2f} and {int8[1]:.2f}: the "
        "rest is the process, its runtime, and the weights as that packs them"
    )


def describe_timing(timing: Timing) -> str:
    """One line: percentiles of a call, control rate, memory."""
    p50, p90, p99, longest = (timing.find_ns(name) / 1e6 for name in ("p50", "p90", "p99", "max"))
    block = timing.blocks[0]
    energy = "" if timing.millijoules is None else f", {timing.millijoules:.4g} mJ a call"
    faults = max(b.major_faults for b in timing.blocks)
    return (
        f"{timing.check.scheme}: p50 {p50:.4g} ms, p90 {p90:.4g}, p99 {p99:.4g}, max {longest:.4g} over "
        f"{timing.calls:,} calls; {timing.hertz:,.0f} Hz; init {block.init_ms:.3g} ms, first {block.first_ms:.3g}; "
        f"peak {timing.peak_rss / 2**20:.1f} MiB resident, {faults} major faults{energy}"
    )


def describe_rate(compared: BoardComparison, verdict: Verdict) -> str:
    """The outcome, the rates of both, the threshold and the board, as one line for terminal and report."""
    numbers = "no number"
    if verdict.estimate is not None:
        fp32, int8 = (_find_rate(timing).estimate for timing in (compared.first, compared.second))
        numbers = f"{fp32:,.0f} Hz in fp32, {int8:,.0f} Hz in int8"
    line = f"{verdict.outcome}: {numbers} against {verdict.threshold:g} Hz on {compared.board.name}"
    return f"{line}; {verdict.needed}" if verdict.needed else line


def describe_ratio(verdict: Verdict) -> str:
    """The outcome, the ratio with its interval, the threshold and the board, as one line for terminal and report."""
    numbers = "no number" if verdict.estimate is None else f"{verdict.estimate:.3g}x"
    if verdict.low is not None and verdict.high is not None and verdict.low < verdict.high:
        numbers += f" [{verdict.low:.3g}, {verdict.high:.3g}]"
    where = verdict.scope.removeprefix("this policy on ")
    line = f"{verdict.outcome}: fp32/int8 {numbers} against {verdict.threshold:g}x on {where}"
    return f"{line}; {verdict.needed}" if verdict.needed else line


def _tell_sessions(compared: BoardComparison, verdict: Verdict) -> Verdict:
    """The same, which says in its scope what its interval covers."""
    return replace(verdict, scope=f"{verdict.scope}, {compared.sessions}")


def _decide(compared: BoardComparison, interval: Interval, threshold: float, reason: str) -> Verdict:
    """The verdict of an interval of a ratio; `reason` says why more blocks are needed where it holds the threshold."""
    outcome = conclude(interval[1:], threshold, math.inf)
    more = "sessions" if compared.sessions.earlier else "blocks"
    needed = "" if outcome is not Outcome.INCONCLUSIVE else f"more {more}: {reason}"
    return _conclude(compared, outcome, interval.estimate, interval, threshold, needed)


def _call_void(
    compared: BoardComparison, faults: Sequence[str], threshold: float, estimate: float | None = None
) -> Verdict:
    needed = f"void: {'; '.join(faults)}. Run again on an idle board"
    return _conclude(compared, Outcome.INCONCLUSIVE, estimate, None, threshold, needed)


def _conclude(
    compared: BoardComparison,
    outcome: Outcome,
    estimate: float | None,
    interval: Interval | None,
    threshold: float,
    needed: str = "",
) -> Verdict:
    return Verdict(
        outcome=outcome,
        estimate=estimate,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        threshold=threshold,
        scope=f"this policy on {compared.board.name}",
        policies=1,
        episodes=0,
        distinct_episodes=0,
        needed=needed,
    )
