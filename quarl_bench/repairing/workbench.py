"""What makes forms of one policy, compares their decisions, and lets them play."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from quarl_bench.checking.subject import Subject
from quarl_bench.policies.policy import IntegerPolicy, Observations, PolicyNet
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.bias import correct_biases
from quarl_bench.repairing.candidate import Candidate, HeldOut, make_candidate, spread
from quarl_bench.repairing.clipping import Clipping
from quarl_bench.repairing.journal import NOTHING, Journal
from quarl_bench.repairing.ladder import ANY, BIAS, CLIPPED, REWRITES, ROUNDED, find_unfit
from quarl_bench.repairing.rounding import learn_rounding

LEARNED_FROM, IMAGES = 2_000, 500  # states of calibration, over which biases and rounding are found


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
class Workbench:
    """A policy that is repaired, for what target, and who hears of every attempt.

    `seed` draws what is learned from; `journal` keeps what took long; `unfit` says, by scheme, why the target has no
    form.
    """

    subject: Subject
    target: str = ANY
    seed: int = 0
    tell: Tell = lambda _: None
    journal: Journal = NOTHING
    unfit: dict[str, str] = field(default_factory=dict)

    @property
    def policy(self) -> PolicyNet:
        """The fp32 policy."""
        policy: PolicyNet = self.subject.stored.policy
        return policy

    @cached_property
    def held_out(self) -> HeldOut:
        """The states in which decisions are compared."""
        return HeldOut.visit(self.subject)

    def compare_all(self, schemes: Iterable[Scheme]) -> list[Attempt]:
        """Those that the target can run."""
        found = []
        for scheme in schemes:
            begin = time.monotonic()
            candidate = make_candidate(self.subject, scheme)
            reason = find_unfit(candidate.policy, self.target)
            if reason:
                self.unfit[scheme.name] = reason
            else:
                found.append(self.compare(candidate, REWRITES, begin))
        return found

    def correct(self, scheme: Scheme) -> Attempt:
        """`scheme` with corrected biases."""
        begin = time.monotonic()
        form, states = self._prepare(scheme)
        policy = correct_biases(form, make_candidate(self.subject, scheme).policy, states)
        return self.compare(Candidate(scheme, policy, (BIAS,)), BIAS, begin)

    def clip(self, scheme: Scheme) -> Attempt:
        """`scheme` with ranges that are shrunk layer by layer, and corrected biases."""
        begin = time.monotonic()
        policy = Clipping.prepare(self.policy, scheme, self.subject.observations).search()
        return self.compare(Candidate(scheme, policy, (CLIPPED,)), CLIPPED, begin)

    def learn_rounding(self, start: Candidate, rung: str = ROUNDED) -> Attempt:
        """`start` with weights whose rounding is learned, and corrected biases."""
        begin = time.monotonic()

        def make() -> IntegerPolicy:
            form, states = self._prepare(start.scheme)
            return learn_rounding(form, start.policy, states, self.seed)

        policy = self.journal.recall(f"{start.name}+{ROUNDED}", make)
        return self.compare(Candidate(start.scheme, policy, (*start.steps, ROUNDED)), rung, begin)

    def compare(self, candidate: Candidate, rung: str, begin: float) -> Attempt:
        """What `candidate`, which was begun at a time of the monotonic clock, decides."""
        decisions = self.held_out.compare(candidate.policy)
        attempt = Attempt(candidate, rung, *decisions, time.monotonic() - begin)
        self.tell(attempt)
        return attempt

    def play(self, attempt: Attempt, seeds: Sequence[int]) -> Attempt:
        """`attempt` with its returns, one episode per environment seed."""
        played = replace(attempt, returns=attempt.candidate.play(self.subject, seeds).returns[0])
        self.tell(played)
        return played

    def _prepare(self, scheme: Scheme) -> tuple[PolicyNet, Observations]:
        """The fp32 policy in the form that is rounded, and states to learn from."""
        states = self.subject.observations
        count = IMAGES if self.policy.transform.image else LEARNED_FROM
        return self.policy.rewrite(scheme, states), spread(states, count)
