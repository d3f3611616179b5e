"""The search for a form that keeps the return: by decisions first, by play on validation seeds, by one test.

Three disjoint ranges of environment seeds: states that calibrate, states and episodes that choose, and the episodes of
the one test, whose result stands whatever it says.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quarl_bench.checking.subject import Subject
from quarl_bench.errors import QuantizationError
from quarl_bench.evaluation.protocol import VALIDATION_SEEDS, list_validation_seeds
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.bias import correct_biases
from quarl_bench.repairing.candidate import Candidate, compare_decisions, make_candidate, visit
from quarl_bench.repairing.ladder import ANY, BIAS, find_unfit, list_forms, list_ranges

STATES, IMAGES = 2_000, 500  # in which decisions are compared
BIAS_STATES = 2_000  # of calibration, over which biases are corrected
RANGED, IMAGE_RANGED = 5, 3  # forms whose ranges are searched, and as many whose biases are corrected
STEPS = 120_000  # of the environment in the first round, about, and twice as many in the last
FIRST, FEWEST, MOST = 10, 12, 40  # episodes of the first round, and bounds of how many candidates play them
LAST, SHORT, LONG = 5, 40, 100  # candidates of the last round, and bounds of their episodes
FP32 = Scheme.parse("fp32")
REWRITES = "rewrites"


@dataclass(frozen=True, eq=False)
class Attempt:
    """One candidate: how it decides in states that calibrated nothing, and what it returned on validation seeds."""

    candidate: Candidate
    rung: str  # of the ladder
    agreement: float
    regret: float
    seconds: float  # to make and to compare it
    returns: tuple[float, ...] = ()  # on validation seeds, episode by episode; none where it was not played

    @property
    def validation(self) -> float | None:
        """Mean return on validation seeds."""
        return sum(self.returns) / len(self.returns) if self.returns else None


Tell = Callable[[Attempt], None]


@dataclass(frozen=True, eq=False)
class Found:
    """All attempts, those of the last round of play first, and why forms were left out."""

    attempts: tuple[Attempt, ...]
    unfit: dict[str, str]  # by scheme

    @property
    def chosen(self) -> Attempt:
        """The one that is tested."""
        return choose(self.attempts)


def search(subject: Subject, scheme: Scheme, target: str = ANY, tell: Tell = lambda _: None) -> Found:
    """Every form of `scheme` that `target` can run, those of best decisions played; `tell` hears of each.

    SpecError as `list_forms`; QuantizationError where no form is left, with the reason.
    """
    attempts, unfit = compare_forms(subject, scheme, target, tell)
    return Found(tuple(play_rounds(subject, attempts, scheme, tell)), unfit)


def compare_forms(
    subject: Subject, scheme: Scheme, target: str = ANY, tell: Tell = lambda _: None
) -> tuple[list[Attempt], dict[str, str]]:
    """The decisions of every form, of the best in other ranges and with corrected biases; and why forms are left out.

    Errors as `search`.
    """
    ranker = _Ranker(subject, target, tell)
    forms = ranker.compare_all(list_forms(scheme, subject.stored.policy))
    if not forms:
        raise QuantizationError(f"{scheme.name}: {next(iter(ranker.unfit.values()))}")
    count = IMAGE_RANGED if subject.stored.policy.transform.image else RANGED
    ranged = [other for form in rank(forms)[:count] for other in list_ranges(form.candidate.scheme)]
    attempts = forms + ranker.compare_all(ranged)
    attempts += [ranker.correct(attempt) for attempt in rank(attempts)[:count]]
    return attempts, ranker.unfit


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


def play_rounds(
    subject: Subject, attempts: Sequence[Attempt], plain: Scheme, tell: Tell = lambda _: None
) -> list[Attempt]:
    """The best by decisions play a few episodes, the best of those more; the plain scheme plays in every round.

    Those of the last round come first, by return; behind them the others by decisions.
    """
    left = rank(attempts)
    behind: list[Attempt] = []
    for one in list_rounds(subject):
        seeds = list_validation_seeds(one.episodes)
        kept = [a for i, a in enumerate(left) if i < one.count or a.candidate.name == plain.name]
        behind = [a for a in left if a not in kept] + behind
        left = []
        for attempt in kept:
            measured = attempt.candidate.play(subject, seeds)
            left.append(replace(attempt, returns=measured.returns[0]))
            tell(left[-1])
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


class _Ranker:
    """Makes candidates and compares their decisions in states that calibrated nothing."""

    def __init__(self, subject: Subject, target: str, tell: Tell) -> None:
        self._subject, self._target, self._tell = subject, target, tell
        self.unfit: dict[str, str] = {}
        policy = subject.stored.policy
        count = IMAGES if policy.transform.image else STATES
        self._states = visit(policy, subject.environment, count, VALIDATION_SEEDS)
        self._outputs = policy.outputs(self._states)

    def compare_all(self, schemes: Iterable[Scheme]) -> list[Attempt]:
        """Those that the target can run."""
        found = []
        for scheme in schemes:
            begin = time.monotonic()
            candidate = make_candidate(self._subject, scheme)
            reason = find_unfit(candidate.policy, self._target)
            if reason:
                self.unfit[scheme.name] = reason
            else:
                found.append(self._compare(candidate, REWRITES, begin))
        return found

    def correct(self, attempt: Attempt) -> Attempt:
        """The same with corrected biases."""
        begin, scheme = time.monotonic(), attempt.candidate.scheme
        calibration = self._subject.observations
        form = self._subject.stored.policy.rewrite(scheme, calibration)
        policy = correct_biases(form, attempt.candidate.policy, calibration[:: -(-len(calibration) // BIAS_STATES)])
        return self._compare(Candidate(scheme, policy, (BIAS,)), BIAS, begin)

    def _compare(self, candidate: Candidate, rung: str, begin: float) -> Attempt:
        agreement, regret = compare_decisions(
            self._subject.stored.policy, candidate.policy, self._states, self._outputs
        )
        attempt = Attempt(candidate, rung, agreement, regret, time.monotonic() - begin)
        self._tell(attempt)
        return attempt
