"""Verdicts on Table 5: what mixed precision gains in a step of DQN's training, by policy, and over their sizes."""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from quarl_bench.judging.retention import conclude, reverse
from quarl_bench.judging.statistics import Interval, bound_mean
from quarl_bench.judging.times.sessions import ALONE, Sessions
from quarl_bench.spec import Outcome, Verdict
from quarl_bench.training.recipes import FP32
from quarl_bench.training.sb3.matmul_times import ONEDNN, STOCK, WIDTHS
from quarl_bench.training.sb3.step_times import LEAN, TASK, StepTimes, find_error


def read_size(environment: str) -> str:
    """`ponga` -> a."""
    return environment.removeprefix(TASK)


def judge_step_time(
    times: StepTimes,
    environment: str,
    precision: str,
    threshold: float,
    *,
    opposite: bool = False,
    sessions: Sessions = ALONE,
) -> Verdict:
    """Whether a step in `precision` is more than `threshold` times as fast as the better one in fp32; or its opposite.

    The opposite sentence, "at most so many times", is judged by the same interval. It covers earlier `sessions`.
    """
    size = read_size(environment)
    now = mean_speedup(times.list_gains(size, precision))
    interval = sessions.cover(now, lambda ratios: ratios[f"{size}-{precision}"])
    verdict = _conclude(times, conclude(interval[1:], threshold, math.inf), interval, threshold, sessions)
    return reverse(verdict) if opposite else verdict


def judge_trend(
    times: StepTimes,
    environments: Sequence[str],
    precision: str,
    threshold: float,
    *,
    ends: bool = False,
    sessions: Sessions = ALONE,
) -> Verdict:
    """Whether gains grow more than `threshold`-fold from policy to policy, or only between the two `ends`.

    Every step has to hold, each at 5%. Estimate and interval are of the ratio of two gains that decides. It covers
    earlier `sessions`.
    """
    sizes = [read_size(name) for name in environments]
    pairs = [(sizes[0], sizes[-1])] if ends else [*pairwise(sizes)]
    steps = [_bound_growth(times, *pair, precision, sessions) for pair in pairs]
    least = min(steps, key=lambda step: step.low)
    if any(step.high < threshold for step in steps):
        least = min(steps, key=lambda step: step.high)
    return _conclude(times, conclude(least[1:], threshold, math.inf), least, threshold, sessions)


def list_ratios(times: StepTimes) -> dict[str, float]:
    """The gain of every size and precision over fp32, as a session is stored."""
    names = (key.split("-") for key in times.steps)
    return {
        f"{size}-{name}": mean_speedup(times.list_gains(size, name)).estimate
        for size, name in names
        if name not in (FP32, LEAN)
    }


def mean_speedup(gains: Sequence[float]) -> Interval:
    """Their geometric mean over blocks with 90% limits."""
    return Interval(*map(math.exp, bound_mean([math.log(gain) for gain in gains])))


def explain_step_time(times: StepTimes, environments: Sequence[str], precision: str) -> list[str]:
    """What the gains are gains over, a line for each policy, and what the products do by themselves."""
    return [
        *(_explain_size(times, name, precision) for name in environments),
        explain_kernels(times, precision),
    ]


def explain_kernels(times: StepTimes, precision: str) -> str:
    """Forward passes of linear layers alone, casts included, against the fp32 kernels there are."""
    parts = []
    for baseline in (STOCK, ONEDNN):
        names = [(f"{width}-{baseline}", f"{width}-{precision}") for width in WIDTHS]
        if all(key in times.kernels for pair in names for key in pair):
            ratios = (statistics.median(times.kernels[a]) / statistics.median(times.kernels[b]) for a, b in names)
            parts.append(f"{' / '.join(f'{ratio:.2f}' for ratio in ratios)} of {baseline} fp32")
    widths = " / ".join(map(str, WIDTHS))
    return f"kernel only, Linear 256 x n x n, n = {widths}, {precision} with casts: {', '.join(parts)}"


def describe_step_time(verdict: Verdict) -> str:
    """One line for terminal and report."""
    numbers = "no number" if verdict.estimate is None else f"{verdict.estimate:.3g}x"
    if verdict.low is not None and verdict.high is not None:
        numbers += f" [{verdict.low:.3g}, {verdict.high:.3g}]"
    line = f"{verdict.outcome}: {numbers} against {verdict.threshold:g}x, {verdict.scope}"
    return f"{line}; {verdict.needed}" if verdict.needed else line


def _bound_growth(times: StepTimes, small: str, large: str, precision: str, sessions: Sessions) -> Interval:
    """How many times as large the gain of the larger policy is."""
    gains = [times.list_gains(size, precision) for size in (small, large)]
    now = mean_speedup([b / a for a, b in zip(*gains, strict=True)])
    return sessions.cover(now, lambda ratios: ratios[f"{large}-{precision}"] / ratios[f"{small}-{precision}"])


def _explain_size(times: StepTimes, environment: str, precision: str) -> str:
    size = read_size(environment)
    steps = {name: times.steps[f"{size}-{name}"] for name in (FP32, LEAN, precision)}
    milliseconds = ", ".join(
        f"{name} {1e3 * statistics.median(taken):.3g} +- {1e3 * find_error(taken):.1g} ms"
        for name, taken in steps.items()
    )
    over = ", ".join(f"{mean_speedup(times.list_gains(size, precision, b)).estimate:.2f}x {b}" for b in (FP32, LEAN))
    rates = ", ".join(
        f"{name} {statistics.median(times.rates[key]):.3g}"
        for name in (FP32, LEAN, precision)
        if (key := f"{size}-{name}") in times.rates
    )
    played = f"; end to end on Pong, steps/s: {rates}" if rates else ""
    return f"Policy {size.upper()} / {times.divisor}: a step takes {milliseconds}; {precision} is {over}{played}"


def _conclude(times: StepTimes, outcome: Outcome, interval: Interval, threshold: float, sessions: Sessions) -> Verdict:
    void = "; ".join(times.faults)
    needed = (
        f"more {'sessions' if sessions.earlier else 'blocks'}: the ratio varies"
        if outcome is Outcome.INCONCLUSIVE
        else ""
    )
    return Verdict(
        outcome=Outcome.INCONCLUSIVE if void else outcome,
        estimate=interval.estimate,
        low=None if void else interval.low,
        high=None if void else interval.high,
        threshold=threshold,
        scope=f"these networks on {times.machine}, {sessions}",
        policies=0,
        episodes=0,
        distinct_episodes=0,
        needed=f"void: {void}. Run again on an idle machine" if void else needed,
    )
