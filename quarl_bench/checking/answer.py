"""May this policy be shipped in fewer bits, and what does that cost? One policy, many schemes, one answer.

Every scheme plays the episodes of the fp32 policy (the same environment seeds) and is judged by the rule of the papers'
cases. One policy is checked, so every sentence is about this policy.
"""

import statistics
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quarl_bench.backends.deployed import DeployedPolicy, time_calls
from quarl_bench.backends.export import export_policy
from quarl_bench.backends.registry import list_timed
from quarl_bench.environments.registry import Environment
from quarl_bench.errors import DeploymentError, MissingExtra, QuantizationError, SpecError
from quarl_bench.evaluation.rollouts import TEST_SEEDS, measure
from quarl_bench.evaluation.sensitivity import Sensitivity, measure_sensitivity
from quarl_bench.experiments.cells import FP32, LazyPolicy, calibrate, measure_member
from quarl_bench.experiments.store import Store
from quarl_bench.judging.pairs import align
from quarl_bench.judging.retention import judge_retention
from quarl_bench.judging.statistics import ERROR
from quarl_bench.policies.policy import Observations, Policy, deployable
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement, Outcome, Verdict

SCHEMES = ("fp16", "w8", "int8", "int6", "int4", "int3", "int2")
INT8, WEIGHTS, PER_CHANNEL = "int8", "w8", "int8pc"
DYNAMIC = "w8symnarrowpc"  # whose weights a .tflite file holds in bytes, beside float activations
MARGIN = 0.05
CONFIDENCE = 1 - ERROR  # that a definite verdict is right, for either side
LAYER_BITS = 4  # at which layers are compared
STATES = 2_000
CALLS = 500


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
    def difference(self) -> float:
        """Mean of the paired differences to fp32, in return units; like the verdict, of distinct episodes."""
        _, other = align(self.reference, self.measured)
        return float(other.mean()) - self.base

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
class ArtefactCost:
    """One artefact: bytes of its model, and microseconds of one call from Python, or why there is none."""

    backend: str
    scheme: str
    bytes: int = 0
    median: float = 0.0  # microseconds
    p90: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Answer:
    """All that was found about one policy."""

    stored: StoredPolicy
    environment: Environment
    reference: Measurement
    lines: tuple[SchemeResult, ...]
    layers: tuple[Sensitivity, ...]
    costs: tuple[ArtefactCost, ...]
    margin: float
    floor: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)  # schemes that this policy has no form in, and why

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


class Subject:
    """A policy to be checked, quantized on demand and calibrated once; `store` keeps what was measured, if given."""

    def __init__(self, stored: StoredPolicy, environment: Environment, store: Store | None = None) -> None:
        self.stored, self.environment = stored, environment
        self._store = None if environment.custom else store  # a user's environment may change between two runs
        self._calibration: Observations | None = None
        self._quantized: dict[str, Policy] = {}

    @property
    def calibration(self) -> Observations:
        """States that the fp32 policy visits, on seeds that never score it."""
        if self._calibration is None:
            self._calibration = calibrate(self.stored.policy, self.environment)
        return self._calibration

    def quantize(self, scheme: Scheme) -> Policy:
        """The policy under `scheme`, as integers for int<n>."""
        if scheme.name not in self._quantized:
            calibrated = scheme.integer and scheme.calibrated
            quantized = self.stored.policy.quantize(scheme, self.calibration if calibrated else None)
            self._quantized[scheme.name] = deployable(quantized)
        return self._quantized[scheme.name]

    def find_refused(self, schemes: Sequence[Scheme]) -> dict[str, str]:
        """Those in which the policy has no form, and why; found out before anything is played."""
        refused = {}
        for scheme in schemes:
            try:
                self.quantize(scheme)
            except QuantizationError as error:
                refused[scheme.name] = str(error)
        return refused

    def play(self, scheme: Scheme, seeds: Sequence[int]) -> Measurement:
        """Its returns under `scheme`, one episode per environment seed."""
        if self._store is not None:
            member = LazyPolicy(self.stored, lambda: self.quantize(scheme))
            return measure_member(self._store, member, self.environment, seeds, scheme=scheme.name)
        references = None if scheme.name == FP32 else [self.stored.policy]
        return measure([(self.stored.sha256, self.quantize(scheme))], self.environment, seeds, references)


def name_share(share: float, floor: float | None) -> str:
    """A share of the return, or of what it is above the floor."""
    return f"{share:.0%} of the return{'' if floor is None else f' above {floor:g}'}"


def play_schemes(
    subject: Subject, schemes: Sequence[Scheme], episodes: int, margin: float = MARGIN, floor: float | None = None
) -> Iterator[SchemeResult]:
    """The lines of `schemes`, one by one; fp32 is played first.

    `floor` is a return that counts as nothing, a random policy's for example, for tasks whose returns lie around 0;
    SpecError where fp32's mean return is not above it.
    """
    if not 0 < margin < 1:
        raise SpecError(f"margin {margin:g}: the share of the return that may be lost lies between 0 and 1")
    seeds = range(TEST_SEEDS, TEST_SEEDS + episodes)
    reference = subject.play(Scheme.parse(FP32), seeds)
    for scheme in schemes:
        measured = subject.play(scheme, seeds)
        verdict = judge_retention(reference, measured, margin=margin, cap=subject.environment.cap, floor=floor)
        yield SchemeResult(scheme, reference, measured, verdict, floor)


def measure_layers(subject: Subject) -> tuple[Sensitivity, ...]:
    """Every layer rounded alone."""
    return measure_sensitivity(subject.stored.policy, LAYER_BITS, subject.calibration[:STATES])


def benchmark_artefacts(
    subject: Subject, schemes: Sequence[str], backends: Sequence[str] | None = None
) -> Iterator[ArtefactCost]:
    """Size and time of every artefact; a backend that lacks the scheme or its runtime says so."""
    for backend in list_backends() if backends is None else backends:
        for scheme in schemes:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    yield _benchmark(
                        export(subject, scheme, backend, Path(folder) / "artefact"), backend, scheme, subject
                    )
            except (DeploymentError, MissingExtra) as error:
                yield ArtefactCost(backend, scheme, reason=str(error))


def list_backends() -> list[str]:
    """Whose artefacts are priced and exported: those that run on this machine."""
    return [backend.name for backend in list_timed()]


def export(subject: Subject, scheme: str, backend: str, folder: Path) -> DeployedPolicy:
    """The artefact of one scheme, verified with its golden pairs."""
    policy = subject.quantize(Scheme.parse(scheme))
    sha256 = subject.stored.sha256
    return export_policy(policy, folder, subject.calibration, scheme=scheme, source_sha256=sha256, backend=backend)


def choose_schemes(lines: Sequence[SchemeResult], asked: str) -> tuple[str, ...]:
    """What is worth pricing and exporting: the scheme that was asked for, and the fewest bits that are known to do."""
    best = find_fewest(lines)
    return tuple(dict.fromkeys((asked, *(() if best is None else (best.scheme.name,)))))


def find_fewest(lines: Sequence[SchemeResult]) -> SchemeResult | None:
    """The integer scheme of fewest bits that holds, else the weight-only or half-precision one; or None."""
    kept = [line for line in lines if _holds(line, lines)]
    return min(kept, key=lambda line: (not line.scheme.integer, line.scheme.widest), default=None)


def _holds(line: SchemeResult, lines: Sequence[SchemeResult]) -> bool:
    """Supported; of integer schemes of its kind all wider ones have to be, too.

    One of many that does well where more bits do not is likely to owe it to chance.
    """
    kind, bits = _name_kind(line.scheme), line.scheme.widest
    wider = [
        one for one in lines if line.scheme.integer and _name_kind(one.scheme) == kind and one.scheme.widest > bits
    ]
    return all(one.verdict.outcome is Outcome.SUPPORTED for one in (line, *wider))


def _name_kind(scheme: Scheme) -> str:
    """Its name without bits: `intpc` of int8pc."""
    return "".join(letter for letter in scheme.name if not letter.isdigit())


def recommend(check: Answer) -> str:
    """What to ship, in a sentence, and what might change it in others."""
    kept = find_fewest(check.lines)
    if kept is None:
        found = f"Keep fp32: no scheme is known to keep {check.share}."
    elif kept.scheme.integer:
        found = _recommend_integers(check, kept)
    else:
        found = f"Ship {kept.scheme.name}: it keeps {check.share}; no integer scheme is known to."
        found += _recommend_floats(check, kept)
    return " ".join((found, *_list_remarks(check, kept)))


def _recommend_integers(check: Answer, kept: SchemeResult) -> str:
    """The smallest of the integer schemes that do, beside fp32: runtimes store fewer bits than eight in bytes."""
    known = {line.scheme.name: line.scheme for line in check.lines if _holds(line, check.lines) and line.scheme.integer}
    least, own, full = (_find_least(check.costs, names) for names in (known, {kept.scheme.name}, {FP32}))
    smaller = least is not None and own is not None and least.bytes < own.bytes
    scheme, cost = (known[least.scheme], least) if least and smaller else (kept.scheme, own)
    size = f", in {cost.bytes:,} bytes as {cost.backend}" if cost else ""
    found = f"Ship {scheme.name}: weights and activations in {scheme.widest} bits keep {check.share}{size}."
    if smaller and own:
        found += f" {kept.scheme.name} does too, but takes {own.bytes:,} here: its bits are worth it on hardware alone."
    if cost and full and full.bytes <= cost.bytes:
        found += f" fp32 takes no more, {full.bytes:,} as {full.backend}: integers are for where floats are slow."
    return found


def _recommend_floats(check: Answer, kept: SchemeResult) -> str:
    """What weights that are rounded and stored as floats do not save."""
    own, full = (_find_least(check.costs, {name}) for name in (kept.scheme.name, FP32))
    if own is None or full is None or own.bytes < full.bytes:
        return ""
    return (
        f" Stored here it saves nothing ({own.bytes:,} bytes, fp32 {full.bytes:,}): `quarl deploy --scheme {DYNAMIC} "
        "--backend litert-dynamic` keeps weights in bytes."
    )


def _find_least(costs: Sequence[ArtefactCost], schemes: Collection[str]) -> ArtefactCost | None:
    """The fewest bytes of these schemes' artefacts."""
    return min((c for c in costs if c.scheme in schemes and c.bytes), key=lambda cost: cost.bytes, default=None)


def _list_remarks(check: Answer, kept: SchemeResult | None) -> Iterator[str]:
    """What is open, what is not to be trusted, and what to try."""
    outcomes = {line.scheme.name: line.verdict.outcome for line in check.lines}
    open_ = [name for name, outcome in outcomes.items() if outcome is Outcome.INCONCLUSIVE]
    if open_:
        yield f"{', '.join(open_)}: not decided; more episodes may."
    for line in check.lines:
        if line.verdict.outcome is Outcome.SUPPORTED and not _holds(line, check.lines):
            yield f"{line.scheme.name} may owe it to chance: more bits are not known to do."
    if (kept is not None and kept.scheme.integer) or outcomes.get(INT8) is not Outcome.REFUTED:
        return
    yield "`quarl repair` looks for a form that keeps it in 8 bits, without training."
    touchy, tried = check.most_sensitive_layer, outcomes.keys() | check.refused.keys()
    if outcomes.get(WEIGHTS) is Outcome.SUPPORTED:
        yield f"Its weights do with 8 bits ({WEIGHTS}), its activations do not: train with them, as qat8."
    elif touchy is not None and PER_CHANNEL not in tried:
        yield f"One scale per tensor is what {touchy.name} suffers from: try --scheme {PER_CHANNEL}."


def _benchmark(deployed: DeployedPolicy, backend: str, scheme: str, subject: Subject) -> ArtefactCost:
    one = subject.calibration[:1]
    size = sum(len(content) for content in deployed.artefact.files.values())
    time_calls(deployed, one, CALLS // 10)
    times = time_calls(deployed, one, CALLS)
    return ArtefactCost(backend, scheme, size, statistics.median(times), statistics.quantiles(times, n=10)[-1])
