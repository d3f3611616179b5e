"""How long a run will take, and whether actors or learner decide it: from stage times of its first seconds."""

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.actorq.breakdown import QUANTIZED, Breakdown, find_ceiling, find_share
from quarl_bench.actorq.scaling import Costs, read_costs, size_transition
from quarl_bench.actorq.settings import RunSettings
from quarl_bench.errors import EngineError

if TYPE_CHECKING:
    from quarl_bench.actorq.training import RunOptions

BASE = "fp32"


@dataclass(frozen=True)
class Prediction:
    """Seconds that a step of the environment costs: `acting` of all actors side by side, `learning` of the learner."""

    settings: RunSettings
    acting: float
    learning: float
    quantized: float  # share of `acting` that a precision can change
    costs: Costs | None = None  # in CPU time, for the model of more actors
    measured: float = 0.0  # steps per second of that run, behind its first update
    cores: float = 0.0  # CPU seconds per second that it had

    @property
    def seconds(self) -> float:
        """Of the whole run: the slower of the two sides decides."""
        return self.settings.steps * max(self.acting, self.learning)

    @property
    def share(self) -> float:
        """Of the run's time in which actors work; 1 where the learner waits for them."""
        return min(1.0, self.acting / self.learning) if self.learning else 1.0

    @property
    def ceiling(self) -> float:
        """The speed-up of the run if what a precision changes took no time; infinite where nothing else takes any."""
        left = max(self.acting / find_ceiling(self.quantized), self.learning)
        return max(self.acting, self.learning) / left if left else math.inf


def predict(settings: RunSettings, report: dict[str, Any], sent: float = 0.0) -> Prediction:
    """From what a run of a few seconds reported; EngineError where it did not come so far that the learner learned.

    `sent` are the bytes of one transition.
    """
    acting, learning = Breakdown.from_dict(report["acting"]), Breakdown.from_dict(report["breakdown"])
    if not acting.steps or not learning.steps:
        raise EngineError(f"{settings.name}: nothing was learned in the time that was given; calibrate for longer")
    working = {stage: seconds for stage, seconds in acting.wall.items() if stage != "wait"}
    busy = sum(seconds for stage, seconds in learning.wall.items() if stage not in ("idle", "save"))
    updates = settings.samples_per_insert / settings.batch  # for each step of the environment
    return Prediction(
        settings,
        acting=sum(working.values()) / acting.steps / settings.actors,
        learning=busy / learning.steps * updates,
        quantized=find_share(working, QUANTIZED),
        costs=read_costs(settings, report, sent) if "server" in report else None,
        measured=acting.steps / (sum(acting.wall.values()) / settings.actors),
        cores=report["cpu"] / report["elapsed"] if "server" in report else 0.0,
    )


def calibrate(settings: RunSettings, seconds: float, options: "RunOptions | None" = None) -> Prediction:
    """Train for so many seconds behind the first update, in a folder that is thrown away; EngineError as `train`."""
    from quarl_bench.actorq.acting.task import open_task
    from quarl_bench.actorq.training import RunOptions, observe

    began: list[float] = []

    def is_over(steps: int) -> bool:
        if steps > settings.warmup and not began:
            began.append(time.monotonic())
        return bool(began) and time.monotonic() - began[0] > seconds

    task = open_task(settings)
    sent = size_transition(task.inputs, task.outputs, discrete=task.head.discrete)
    with tempfile.TemporaryDirectory(prefix="quarl-calibrate-") as scratch:
        return predict(settings, observe(settings, Path(scratch), options or RunOptions(), is_over), sent)


def list_predictions(predictions: Sequence[Prediction]) -> list[list[str]]:
    """A header and a line of cells per run, ready to be printed as columns."""
    header = ["run", "actors us", "learner us", "actors' share", "ceiling", "predicted", "x fp32"]
    bases = {_name(one.settings): one.seconds for one in predictions if one.settings.precision == BASE}
    return [header, *(_format(one, bases.get(_name(one.settings))) for one in predictions)]


def name_run(settings: RunSettings) -> str:
    """What tells runs of one command apart."""
    return f"{settings.precision}-{_name(settings)}"


def _name(settings: RunSettings) -> str:
    """What runs share that differ in the precision alone."""
    return f"a{settings.actors}-u{settings.update_period}-s{settings.seed}"


def _format(one: Prediction, base: float | None) -> list[str]:
    minutes, seconds = divmod(round(one.seconds), 60)
    return [
        name_run(one.settings),
        f"{1e6 * one.acting:,.0f}",
        f"{1e6 * one.learning:,.0f}",
        f"{one.share:.0%}",
        f"{one.ceiling:.2f}",
        f"{minutes} min {seconds:02d} s",
        "-" if base is None else f"{base / one.seconds:.2f}",
    ]
