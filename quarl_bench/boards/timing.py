"""What a board said about an artefact: golden pairs, blocks of single calls, memory over time; and what it is worth.

Pure values: hw/raspi/run_policy.py takes the numbers, boards/session.py brings them here.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quarl_bench.boards.board import Board
from quarl_bench.judging.statistics import Interval, bound_mean
from quarl_bench.judging.times.sessions import ALONE, Sessions

FLAGS = {0: "under-voltage", 1: "frequency capped", 2: "throttled", 3: "soft temperature limit"}  # of a Raspberry Pi
SPEED, MEMORY = "speed", "memory"
RATIOS = (SPEED, MEMORY)  # of a session
IDENTITY = ("machine", "cores", "artefacts", "runtime", "kernels", "threads")  # what sessions have in common
SINCE_BOOT = 16  # bits above: the same, at any time since boot
CLOCK_SHARE = 0.95  # of the highest frequency of a run; below, the clock moved under the timing
POINTS = 200  # of a memory trace that are kept


@dataclass(frozen=True)
class TimingPlan:
    """How long to time one artefact: `blocks` (2 or more) fresh processes of so many calls and seconds at least.

    The default gives 1,000 calls and 10 s. `insist`: time even beside other work; the result is void all the same.
    """

    blocks: int = 4
    calls: int = 250
    seconds: float = 2.5
    warmup: float = 0.5
    insist: bool = False


@dataclass(frozen=True)
class State:
    """What a timing depends on, before or after it. None: the board does not tell."""

    architecture: str
    processor: str
    features: tuple[str, ...]  # instruction set extensions that multiply integers
    cores: int
    system: str
    python: str
    runtimes: dict[str, str]  # installed versions, NumPy's among them
    compiler: str | None  # of C
    load: float
    others: float  # cores in use by anything else
    governor: str | None
    khz: int | None
    celsius: float | None
    throttled: int | None  # a Raspberry Pi's flags
    memory: int  # bytes, as are the next ones
    memory_free: int
    swap: int
    disk_free: int


@dataclass(frozen=True)
class Divergence:
    """The first output that is not the golden one."""

    pair: int
    element: tuple[int, ...]
    expected: float
    got: float


@dataclass(frozen=True)
class GoldenCheck:
    """Golden pairs re-run on the board. Integers have to be equal, floats within the runner's tolerance."""

    scheme: str
    backend: str
    bytes: int  # of the model's file
    parameters: int
    runtime: str
    kernel: str
    pairs: int
    elements: int
    exact: bool  # integers
    wrong: int
    largest: float  # difference: in steps of the output integers, or in the unit of float outputs
    golden_sha256: str
    output_sha256: str
    first: Divergence | None

    def __str__(self) -> str:
        """One line: how many golden pairs were re-run, and where the first output differs if one does."""
        what = f"{self.scheme} in {self.runtime} ({self.kernel})"
        if self.first is None:
            found = "all equal" if self.exact else f"outputs within {self.largest:.2g}"
            return f"{what}: {self.pairs} golden pairs re-run, {found}"
        first = self.first
        return (
            f"{what}: {self.wrong} of {self.elements} outputs differ, by {self.largest:g} at most; first pair "
            f"{first.pair}, element {list(first.element)}: expected {first.expected:g}, got {first.got:g}"
        )


@dataclass(frozen=True)
class Block:
    """One fresh process: loaded, warmed up, timed call by call, and watched from outside."""

    block: int
    init_ms: float  # of the model, in a runtime that is loaded
    first_ms: float
    warmup_calls: int
    calls: int
    seconds: float
    ns: dict[str, float]  # p50, p90, p99, max of a call
    phases: dict[str, float]  # seconds on the clock of `start`
    runtime: str
    kernel: str
    start: float
    span: float
    others: float
    peak_rss: int
    major_faults: int
    pages_swapped: int
    khz: int | None
    trace: tuple[tuple[float, int, int], ...]  # seconds, resident bytes, swapped bytes
    watts: tuple[tuple[float, float], ...]  # seconds, reading

    def find_steady_watts(self) -> float | None:
        """Mean reading of the meter while calls were timed."""
        begin, end = self.phases["steady"] - self.start, self.phases["end"] - self.start
        readings = [value for at, value in self.watts if begin <= at <= end]
        return statistics.fmean(readings) if readings else None


@dataclass(frozen=True)
class Timing:
    """One artefact on one board. Without blocks when the board was in a bad state before they began."""

    check: GoldenCheck
    blocks: tuple[Block, ...]

    @property
    def calls(self) -> int:
        """Calls of the policy that were timed, summed over all blocks."""
        return sum(block.calls for block in self.blocks)

    def find_ns(self, name: str) -> float:
        """`p50`, `p90` or `p99` of a call: the median of the blocks'; `max`: the largest."""
        values = [block.ns[name] for block in self.blocks]
        return max(values) if name == "max" else statistics.median(values)

    def bound_ns(self) -> Interval:
        """The median call with its 90% limits, over the blocks' logarithms."""
        return _exponentiate(bound_mean([math.log(block.ns["p50"]) for block in self.blocks]))

    def bound_peak(self) -> Interval:
        """Peak resident bytes of a process, with limits as of `bound_ns`."""
        return _exponentiate(bound_mean([math.log(block.peak_rss) for block in self.blocks]))

    @property
    def spread_ns(self) -> float:
        """Standard error of the median call over the blocks."""
        values = [block.ns["p50"] for block in self.blocks]
        return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0

    @property
    def hertz(self) -> float:
        """Control rate: median calls per second."""
        return 1e9 / self.find_ns("p50")

    @property
    def peak_rss(self) -> int:
        """Bytes, runtime and interpreter included."""
        return max(block.peak_rss for block in self.blocks)

    @property
    def trace(self) -> tuple[tuple[float, int, int], ...]:
        """Memory over the life of the first block's process, at most `POINTS` points."""
        points = self.blocks[0].trace
        return points[:: max(1, math.ceil(len(points) / POINTS))]

    @property
    def millijoules(self) -> float | None:
        """Per call, by the board's meter; None without one."""
        watts = [w for block in self.blocks if (w := block.find_steady_watts()) is not None]
        return 1e-6 * statistics.fmean(watts) * self.find_ns("p50") if watts else None


@dataclass(frozen=True)
class BoardComparison:
    """Two artefacts, timed in turns on one board. `faults` say why the times are void; empty: they count.

    `sessions` are earlier timings of the same artefacts there: the limits of ratios then cover all of them.
    """

    board: Board
    before: State
    after: State
    first: Timing
    second: Timing
    sessions: Sessions = ALONE

    @property
    def timed(self) -> bool:
        """Whether both artefacts were timed; False where a board only checks outputs."""
        return bool(self.first.blocks and self.second.blocks)

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything that makes these times void."""
        return find_faults(self.board, self.before, self.after, (*self.first.blocks, *self.second.blocks))

    @property
    def machine(self) -> str:
        """The processor that was timed, as stored sessions name it."""
        return f"{self.after.processor} {self.after.architecture}"

    def identify(self) -> dict[str, object]:
        """The values of `IDENTITY` here."""
        first, second = self.first.check, self.second.check
        artefacts = f"{first.golden_sha256[:16]} {second.golden_sha256[:16]}"
        runtimes = " ".join(dict.fromkeys((first.runtime, second.runtime)))
        kernels = f"{first.kernel} {second.kernel}"
        values = (self.machine, self.after.cores, artefacts, runtimes, kernels, self.board.threads)
        return dict(zip(IDENTITY, values, strict=True))

    def list_ratios(self) -> dict[str, float]:
        """The ratios of this session alone, the first's over the second's."""
        return dict(zip(RATIOS, (self._bound_speedup().estimate, self._bound_memory().estimate), strict=True))

    def find_speedup(self) -> Interval:
        """The first's median call over the second's, with 90% limits of the paired blocks' logarithms.

        They are widened by what the clock cannot tell: blocks of short calls often agree to its step. With earlier
        sessions they are limits over sessions.
        """
        return self.sessions.cover(self._bound_speedup(), lambda ratios: ratios[SPEED])

    def find_memory_ratio(self) -> Interval:
        """The first's peak resident memory over the second's, with limits as of `find_speedup`."""
        return self.sessions.cover(self._bound_memory(), lambda ratios: ratios[MEMORY])

    def _bound_speedup(self) -> Interval:
        estimate, low, high = self._average(lambda block: block.ns["p50"])
        blind = sum(self.find_step() / 2 / timing.find_ns("p50") for timing in (self.first, self.second))
        return Interval(*map(math.exp, (estimate, low - blind, high + blind)))

    def _bound_memory(self) -> Interval:
        return _exponentiate(self._average(lambda block: block.peak_rss))

    def _average(self, read: Callable[[Block], float]) -> Interval:
        """Of the logarithm of the ratio, over paired blocks."""
        pairs = zip(self.first.blocks, self.second.blocks, strict=True)
        return bound_mean([math.log(read(a) / read(b)) for a, b in pairs])

    def find_step(self) -> int:
        """Nanoseconds between two readings of the board's clock: the largest that divides every longest call."""
        return math.gcd(*(int(block.ns["max"]) for timing in (self.first, self.second) for block in timing.blocks))


def _exponentiate(logarithms: Interval) -> Interval:
    return Interval(*map(math.exp, logarithms))


def read_state(report: dict[str, Any]) -> State:
    """From the runner's JSON; TypeError or KeyError for another version's."""
    return State(**report | {"features": tuple(report["features"])})


def read_check(report: dict[str, Any]) -> GoldenCheck:
    """From the runner's JSON; TypeError or KeyError for another version's."""
    first = report["first"]
    found = None if first is None else Divergence(**first | {"element": tuple(first["element"])})
    return GoldenCheck(**report | {"first": found})


def read_block(report: dict[str, Any]) -> Block:
    """From the runner's JSON; TypeError or KeyError for another version's."""
    series: dict[str, Any] = {name: tuple(tuple(point) for point in report[name]) for name in ("trace", "watts")}
    return Block(**report | series)


def find_faults(board: Board, before: State, after: State, blocks: Sequence[Block]) -> tuple[str, ...]:
    """Why the times of these blocks are void: other work, a low supply voltage, throttling, a moving clock."""
    faults = []
    beside = {"before": before.others, "beside": max((b.others for b in blocks), default=0.0), "after": after.others}
    place, most = max(beside.items(), key=lambda item: item[1])
    if most > board.quiet:
        faults.append(f"other processes used {most:.2f} cores {place} the timing (limit {board.quiet:g})")
    was, now = before.throttled or 0, after.throttled or 0
    for bit, name in FLAGS.items():
        if (was | now) >> bit & 1:
            faults.append(f"{name} now; mend the power supply or the cooling")
        elif now & ~was & 1 << (bit + SINCE_BOOT):
            faults.append(f"{name} during the timing; mend the power supply or the cooling")
    clocks = [block.khz for block in blocks if block.khz is not None]
    if clocks and min(clocks) < CLOCK_SHARE * max(clocks):
        faults.append(
            f"the clock moved between {min(clocks) // 1000} and {max(clocks) // 1000} MHz (governor "
            f"{after.governor}); set it with `cpupower frequency-set -g performance`"
        )
    return tuple(faults)


def count_since_boot(state: State) -> tuple[str, ...]:
    """What has happened since boot, worth a note but no fault of this timing."""
    return tuple(name for bit, name in FLAGS.items() if (state.throttled or 0) >> (bit + SINCE_BOOT) & 1)
