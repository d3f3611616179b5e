"""May this policy be shipped in fewer bits, and what does that cost? One policy, many schemes, one answer.

Every scheme plays the episodes of the fp32 policy (the same environment seeds) and is judged by the rule of the papers'
cases. One policy is checked, so every sentence is about this policy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from quarl_bench.checking.costs import ArtefactBuilder, ArtefactCost, open_builder, time_artefacts
from quarl_bench.checking.random_play import find_doubt, weigh_doubt
from quarl_bench.checking.recommendation import INT8, WEIGHTS, choose_schemes, recommend
from quarl_bench.checking.subject import Subject
from quarl_bench.checking.targets import TargetCost, estimate_targets
from quarl_bench.checking.text import LAYER_BITS, describe_answer, list_lines, name_share, write_html
from quarl_bench.environments.registry import Environment
from quarl_bench.errors import SpecError
from quarl_bench.evaluation.protocol import list_test_seeds
from quarl_bench.evaluation.sensitivity import Sensitivity, measure_sensitivity
from quarl_bench.experiments.member import FP32
from quarl_bench.judging.outcomes import MARGIN
from quarl_bench.judging.pairs import align
from quarl_bench.judging.retention import check_limits, judge_retention
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement, Outcome, Verdict
from quarl_bench.system.counts import check_episodes

SCHEMES = ("fp16", "w8", "int8", "int6", "int4", "int3", "int2")
STATES = 2_000  # in which layers are compared
PARTS = RANDOM, LAYERS, TARGETS, ARTEFACTS = ("random actions", "layers", "microcontroller and FPGA", "artefacts")


@dataclass(frozen=True)
class SchemeResult:
    """One scheme: its measurement beside fp32's, and the verdict on "it keeps 1 - margin of the return".

    With a `floor`, a return that counts as nothing, the verdict is on returns above it.
    """

    scheme: Scheme
    reference: Measurement
    measured: Measurement
    verdict: Verdict
    floor: float | None = None

    @property
    def base(self) -> float:
        """fp32's mean return over distinct episodes, which is what differences are taken from."""
        return float(align(self.reference)[0].mean())

    @property
    def mean(self) -> float:
        """Its own mean return over the same episodes."""
        return float(align(self.reference, self.measured)[1].mean())

    @property
    def difference(self) -> float:
        """Mean of the paired differences to fp32, in return units; like the verdict, of distinct episodes."""
        return self.mean - self.base

    @property
    def interval(self) -> tuple[float, float] | None:
        """The verdict's interval of that difference; None where there is none."""
        low, high, size = self.verdict.low, self.verdict.high, abs(self.base - (self.floor or 0.0))
        return None if low is None or high is None else ((low - 1.0) * size, (high - 1.0) * size)

    @property
    def agreement(self) -> float:
        """Share of visited states in which it acts as fp32 does."""
        return 1.0 if self.measured.agreement is None else self.measured.agreement[0]


@dataclass(frozen=True)
class Answer:
    """All that was found about one policy.

    `str` of it is what `quarl check` prints, `as_dict` what it prints under `--json`, and notebooks show it as a table.

    Attributes:
        name: What the caller calls the policy.
        asked: The scheme that the verdict is about.
        stored: The fp32 policy (`stored.policy`) and the hash of its weights (`stored.sha256`).
        environment: Where it played.
        reference: The measurement of fp32.
        random: The measurement of random actions, on the first of the same seeds.
        lines: The result of every scheme: `measured`, `verdict`, `difference`, `agreement`.
        layers: What rounding the weights of one layer alone does to the policy, layer by layer.
        costs: Bytes and times of the artefacts on this machine.
        margin: Share of the return that may be lost.
        floor: The return that counts as nothing, if one was given.
        refused: Schemes that this policy has no form in, and why.
        targets: Costs on a microcontroller and on an FPGA, emulated or estimated.
    """

    name: str
    asked: str
    stored: StoredPolicy
    environment: Environment
    reference: Measurement
    random: Measurement
    lines: tuple[SchemeResult, ...]
    layers: tuple[Sensitivity, ...]
    costs: tuple[ArtefactCost, ...]
    margin: float
    floor: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[TargetCost, ...] = ()

    @property
    def share(self) -> str:
        """What a scheme is to keep, in words."""
        return name_share(1 - self.margin, self.floor)

    def find(self, scheme: str) -> SchemeResult:
        """The line of a scheme; SpecError when it was not checked."""
        for line in self.lines:
            if line.scheme.name == scheme:
                return line
        raise SpecError(f"scheme {scheme!r} was not checked; name it among the schemes")

    @property
    def most_sensitive_layer(self) -> Sensitivity | None:
        """The layer that loses most, where a scale per output channel would lose half of it or less."""
        worst = max(self.layers, key=lambda layer: layer.error, default=None)
        return worst if worst is not None and worst.error > 0 and 2 * worst.error_per_channel <= worst.error else None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the scheme that was asked for."""
        return self.find(self.asked).verdict

    @property
    def doubt(self) -> str:
        """Why the verdicts prove nothing, where fp32 does not beat random play; else empty."""
        return find_doubt(self.reference, self.random)

    @property
    def outcome(self) -> Outcome:
        """That of the verdict; undecidable where what is kept is worth nothing."""
        return weigh_doubt(self.verdict, self.doubt).outcome

    @property
    def recommendation(self) -> str:
        """What to ship, in a sentence or a few."""
        return recommend(self)

    def as_dict(self) -> dict[str, Any]:
        """Everything in built-in types, as `quarl check --json` prints it and `quarl report` reads it."""
        return describe_answer(self)

    def __str__(self) -> str:
        return "\n".join(list_lines(self))

    def _repr_html_(self) -> str:
        return write_html(self)


@dataclass(frozen=True)
class Selection:
    """Which schemes a check plays, and which of them its verdict is about."""

    asked: str
    names: tuple[str, ...]
    refused: Mapping[str, str]  # those that the policy has no form in, and why
    note: str = ""  # why the verdict is about another scheme than int8


def select_schemes(subject: Subject, scheme: str | None = None) -> Selection:
    """What to play so as to answer about `scheme`; None is int8, or w8 of nets that have no form in integers.

    Raises QuantizationError where the policy has no form in a scheme that was asked for, before anything is played.
    """
    asked = INT8 if scheme is None else Scheme.parse(scheme).name
    if asked == FP32:
        raise SpecError("scheme fp32: what other schemes are held against; name one of them")
    refused, note = subject.find_refused([*map(Scheme.parse, SCHEMES)]), ""
    if scheme is None and asked in refused:
        note = f"{INT8}: {refused[INT8]}; the exit code is about {WEIGHTS}"
        asked = WEIGHTS
    subject.quantize(asked)  # what cannot be done says so before others are played
    names = SCHEMES if asked in SCHEMES else (asked, *SCHEMES)
    return Selection(asked, tuple(name for name in names if name not in refused), refused, note)


def play_schemes(
    subject: Subject, schemes: Sequence[Scheme], episodes: int, margin: float = MARGIN, floor: float | None = None
) -> Iterator[SchemeResult]:
    """The lines of `schemes`, one by one; fp32 is played first.

    `floor` is a return that counts as nothing, a random policy's for example, for tasks whose returns lie around 0;
    SpecError where fp32's mean return is not above it, and for numbers that are out of range.
    """
    check_episodes(episodes)
    check_limits(margin, floor)
    return _play_schemes(subject, schemes, list_test_seeds(episodes), margin, floor)


def _play_schemes(
    subject: Subject, schemes: Sequence[Scheme], seeds: Sequence[int], margin: float, floor: float | None
) -> Iterator[SchemeResult]:
    reference = subject.play(Scheme.parse(FP32), seeds)
    for scheme in schemes:
        measured = subject.play(scheme, seeds)
        verdict = judge_retention(reference, measured, margin=margin, cap=subject.environment.cap, floor=floor)
        yield SchemeResult(scheme, reference, measured, verdict, floor)


def build_answer(
    subject: Subject,
    name: str,
    selection: Selection,
    lines: Sequence[SchemeResult],
    margin: float = MARGIN,
    floor: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
    builder: ArtefactBuilder | None = None,
) -> Answer:
    """The answer about the policy called `name`: what was played, and its layers and artefacts, measured now.

    `tell` hears of each of `PARTS` when it is done. A `builder` of the subject may have begun with artefacts.
    """
    priced = [*dict.fromkeys((FP32, *choose_schemes(lines, selection.asked)))]
    with open_builder(subject) if builder is None else nullcontext(builder) as building:
        artefacts = building.build(priced)
        random = subject.play_randomly(lines[0].reference.environment_seeds)
        tell(RANDOM)
        layers = measure_sensitivity(subject.stored.policy, LAYER_BITS, subject.calibration[:STATES])
        tell(LAYERS)
        targets = tuple(estimate_targets(subject, priced))
        tell(TARGETS)
        costs = tuple(time_artefacts(artefacts))
        tell(ARTEFACTS)
    return Answer(
        name=name,
        asked=selection.asked,
        stored=subject.stored,
        environment=subject.environment,
        reference=lines[0].reference,
        random=random,
        lines=tuple(lines),
        layers=layers,
        costs=costs,
        margin=margin,
        floor=floor,
        refused=selection.refused,
        targets=targets,
    )
