"""ActorQ's judgements, on records of runs that are paired by seed and differ in the actors' precision alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from quarl_bench.judging.rules.judgement import Domain, Judgement

if TYPE_CHECKING:
    from quarl_bench.actorq.record import Record
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.papers.actorq.sentences import Pair
    from quarl_bench.spec import Verdict

STEP = ("environment", "inference")
PULL = ("pull", "decompress", "deserialize")
LOAD = ("load",)


@dataclass(frozen=True)
class Regime:
    """Which runs of a task are judged: what decides how much of the time is the actors'."""

    actors: int
    widths: tuple[int, ...] | None = None  # of the hidden layers of an actor's net; None: any

    @property
    def options(self) -> str:
        """With which a run is like that."""
        sizes = "" if self.widths is None else f" --widths {','.join(map(str, self.widths))}"
        return f"{sizes} --actors {self.actors}"

    def holds(self, record: "Record") -> bool:
        """Whether a run was like that."""
        settings = record["settings"]
        return settings["actors"] == self.actors and self.widths in {None, tuple(settings["widths"])}


@dataclass(frozen=True)
class OnPairs(Judgement):
    """Decided from pairs of records: fp32's, and that of the judged precision."""

    regime: Regime | None = field(default=None, kw_only=True)  # of the runs that are judged; None: of any

    domain = Domain.RATIO

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":  # noqa: ARG002
        """The committed records of the item's runs; MissingBaseline, with the command, where there are none."""
        from quarl_bench.papers.actorq.sentences import collect_pairs

        return collect_pairs(item, self.regime)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """The verdict over pairs."""
        return self.judge(evidence.own)

    def judge(self, pairs: "Sequence[Pair]") -> "Verdict":
        """The verdict on these pairs."""
        raise NotImplementedError


@dataclass(frozen=True)
class ReachesSooner(OnPairs):
    """The judged run reaches 95% of its twin's best return within `threshold` of the twin's seconds."""

    name = "reaches_sooner"
    meaning = "ratio of seconds to 95% of the twin's best return; supported up to the threshold"
    clock: ClassVar[str] = "elapsed"

    def judge(self, pairs: "Sequence[Pair]") -> "Verdict":
        """Student's t over seeds, of logarithms."""
        from quarl_bench.papers.actorq.sentences import judge_time

        return judge_time(pairs, self.threshold, self.clock)


@dataclass(frozen=True)
class TakesLess(ReachesSooner):
    """The same in seconds of CPU time: a proxy of energy, never power, and never CO2."""

    name = "takes_less"
    meaning = "ratio of CPU seconds to 95% of the twin's best return; supported up to the threshold"
    clock = "cpu"


@dataclass(frozen=True)
class StepsSooner(OnPairs):
    """An environment step of the judged run takes at most `threshold` of the twin's seconds, end to end."""

    name = "steps_sooner"
    meaning = "ratio of seconds per environment step of whole runs; supported up to the threshold"
    clock: ClassVar[str] = "elapsed"

    def judge(self, pairs: "Sequence[Pair]") -> "Verdict":
        """Student's t over seeds, of logarithms."""
        from quarl_bench.papers.actorq.sentences import judge_rate

        return judge_rate(pairs, self.threshold, self.clock)


@dataclass(frozen=True)
class StepsForLess(StepsSooner):
    """The same in seconds of CPU time, of all processes: a proxy of energy, as above."""

    name = "steps_for_less"
    meaning = "ratio of CPU seconds per environment step of whole runs; supported up to the threshold"
    clock = "cpu"


@dataclass(frozen=True)
class LearnsAsWell(OnPairs):
    """What is learned keeps 1 - `threshold` of the twin's return."""

    name = "learns_as_well"
    meaning = "ratio of mean returns on the same test episodes; supported above 1 - threshold"
    domain = Domain.SHARE

    def judge(self, pairs: "Sequence[Pair]") -> "Verdict":
        """As for any cell."""
        from quarl_bench.papers.actorq.sentences import judge_return

        return judge_return(pairs, self.threshold)


@dataclass(frozen=True)
class StageTakes(OnPairs):
    """An actor's CPU time in these stages, per step, is at most `threshold` of the twin's."""

    stages: tuple[str, ...]

    name = "stage_takes"
    meaning = "ratio of an actor's CPU time in some stages of a step; supported up to the threshold"

    def judge(self, pairs: "Sequence[Pair]") -> "Verdict":
        """Student's t over seeds, of logarithms."""
        from quarl_bench.papers.actorq.sentences import judge_stages

        return judge_stages(pairs, self.stages, self.threshold)


@dataclass(frozen=True)
class TwinTakes(StageTakes):
    """The twin's time in these stages is at most `threshold` of the judged run's."""

    name = "twin_takes"
    meaning = "ratio of the twin's CPU time in some stages of a step to the judged run's; supported up to the threshold"

    def judge(self, pairs: "Sequence[Pair]") -> "Verdict":
        """With the sides exchanged."""
        return super().judge([pair[::-1] for pair in pairs])
