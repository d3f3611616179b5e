"""The search for a form that keeps the return: by decisions first, by play on validation seeds, by one test.

Three disjoint ranges of environment seeds: states that calibrate, states and episodes that choose, and the episodes of
the one test, whose result stands whatever it says.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from quarl_bench.checking.subject import Subject
from quarl_bench.errors import QuantizationError
from quarl_bench.evaluation.protocol import list_validation_seeds
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.candidate import Candidate, make_candidate
from quarl_bench.repairing.ladder import CLIPPED, list_forms, list_ranges
from quarl_bench.repairing.workbench import Attempt, Workbench

RANGED, IMAGE_RANGED = 5, 3  # forms that take other ranges, and as many whose biases are corrected
SHRUNK, IMAGE_SHRUNK = 5, 1  # forms whose ranges are shrunk layer by layer
LEARNED, IMAGE_LEARNED = 3, 2  # forms whose rounding is learned
STEPS = 120_000  # of the environment in the first round, about, and twice as many in the last
FIRST, FEWEST, MOST = 10, 12, 40  # episodes of the first round, and bounds of how many candidates play them
LAST, SHORT, LONG = 5, 40, 100  # candidates of the last round, and bounds of their episodes
FP32 = Scheme.parse("fp32")


@dataclass(frozen=True, eq=False)
class Found:
    """All attempts, those of the last round of play first, and why forms were left out."""

    attempts: tuple[Attempt, ...]
    unfit: dict[str, str]  # by scheme

    @property
    def chosen(self) -> Attempt:
        """The one that is tested."""
        return choose(self.attempts)


def search(bench: Workbench, scheme: Scheme) -> Found:
    """Every form of `scheme` that the target can run, those of best decisions played.

    SpecError as `list_forms`; QuantizationError where no form is left, with the reason.
    """
    return Found(tuple(play_rounds(bench, compare_forms(bench, scheme), scheme)), bench.unfit)


def compare_forms(bench: Workbench, scheme: Scheme) -> list[Attempt]:
    """The decisions of every form, of the best in other ranges, with corrected biases, and with clipped ranges.

    Errors as `search`.
    """
    forms = bench.compare_all(list_forms(scheme, bench.policy))
    if not forms:
        raise QuantizationError(f"{scheme.name}: {next(iter(bench.unfit.values()))}")
    count = IMAGE_RANGED if bench.policy.transform.image else RANGED
    ranged = [other for form in rank(forms)[:count] for other in list_ranges(form.candidate.scheme)]
    attempts = forms + bench.compare_all(ranged)
    best = [attempt.candidate.scheme for attempt in rank(attempts)]
    shrunk = IMAGE_SHRUNK if bench.policy.transform.image else SHRUNK
    return [*attempts, *map(bench.correct, best[:count]), *map(bench.clip, best[:shrunk])]


def round_best(bench: Workbench, attempts: Sequence[Attempt], deadline: float) -> tuple[Attempt, ...]:
    """The forms that play and decide best with rounding that is learned, played on validation seeds.

    None is begun after `deadline`, a time of the monotonic clock.
    """
    seeds = list_validation_seeds(list_rounds(bench.subject)[-1].episodes)
    starts = list_starts(bench, attempts)[: IMAGE_LEARNED if bench.policy.transform.image else LEARNED]
    return tuple(bench.play(bench.learn_rounding(start), seeds) for start in starts if time.monotonic() < deadline)


def list_starts(bench: Workbench, attempts: Sequence[Attempt]) -> list[Candidate]:
    """What rounding is learned from, best first: each form as its scheme rounds it, and as it was clipped."""
    best = (attempt.candidate for attempt in (choose(attempts), *rank(attempts)))
    starts = (form if form.steps == (CLIPPED,) else make_candidate(bench.subject, form.scheme) for form in best)
    return list({start.name: start for start in starts}.values())


def list_best(attempts: Sequence[Attempt]) -> list[Scheme]:
    """The schemes of the attempts: of the one that plays best first, then by decisions."""
    return list(dict.fromkeys(attempt.candidate.scheme for attempt in (choose(attempts), *rank(attempts))))


def rank(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Best decisions first: by the sum of the places in regret and in agreement."""
    listed = list(attempts)
    places = np.zeros(len(listed), dtype=np.int64)
    for values in ([attempt.regret for attempt in listed], [-attempt.agreement for attempt in listed]):
        places += np.searchsorted(np.sort(values), values)
    return [listed[i] for i in sorted(range(len(listed)), key=lambda i: (places[i], listed[i].regret))]


@dataclass(frozen=True)
class Round:
    """How many of the best candidates are played, and for how many episodes each."""

    count: int
    episodes: int


IMAGE_ROUNDS = Round(4, 4), Round(3, 8)  # where observations are images, whose episodes are dear


def list_rounds(subject: Subject) -> tuple[Round, ...]:
    """The rounds of play: the shorter fp32's episodes, the more candidates and the more episodes.

    Decisions in fp32's states foretell a return badly where a candidate soon leaves these states.
    """
    if subject.stored.policy.transform.image:
        return IMAGE_ROUNDS
    seeds = list_validation_seeds(FIRST)
    length = sum(subject.play(FP32, seeds).lengths[0]) / FIRST
    many = min(max(int(STEPS / (FIRST * length)), FEWEST), MOST)
    long = min(max(int(2 * STEPS / ((LAST + 1) * length)), SHORT), LONG)
    return Round(many, FIRST), Round(LAST, long)


def play_rounds(bench: Workbench, attempts: Sequence[Attempt], plain: Scheme) -> list[Attempt]:
    """The best by decisions play a few episodes, the best of those more; the plain scheme plays in every round.

    Those of the last round come first, by return; behind them the others by decisions.
    """
    left = rank(attempts)
    behind: list[Attempt] = []
    for one in list_rounds(bench.subject):
        seeds = list_validation_seeds(one.episodes)
        kept = [a for i, a in enumerate(left) if i < one.count or a.candidate.name == plain.name]
        behind = [a for a in left if a not in kept] + behind
        left = [bench.play(attempt, seeds) for attempt in kept]
        left.sort(key=lambda a: -(a.validation or 0.0))
    return left + behind


def choose(attempts: Sequence[Attempt]) -> Attempt:
    """Of those that played most episodes: of least regret among those within a standard error of the best return.

    The error is that of the paired difference to the best. Chance decides between close ones, and regret less so.
    """
    most = max(len(attempt.returns) for attempt in attempts)
    last = [attempt for attempt in attempts if len(attempt.returns) == most]
    best = max(last, key=lambda attempt: (attempt.validation or 0.0, -attempt.regret))

    def is_close(attempt: Attempt) -> bool:
        gap = np.array(best.returns) - np.array(attempt.returns)
        error = float(gap.std(ddof=1)) / math.sqrt(most) if most > 1 else 0.0
        return float(gap.mean()) <= error

    return min(filter(is_close, last), key=lambda attempt: attempt.regret)
