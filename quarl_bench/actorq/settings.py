"""What one run of ActorQ is: algorithm, task, network, and every option that the original has."""

import importlib.resources
import math
import tomllib
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import Any

from quarl_bench.errors import SpecError
from quarl_bench.policies.algorithm import ALGORITHMS, is_actor_critic
from quarl_bench.quantization.activations import Activation

PRECISIONS = ("fp32", "fp16", "int8")  # of actors, and of what is broadcast to them
RUNTIMES = ("c", "litert", "torch")  # what an actor infers with
LEARNER_PRECISIONS = ("fp32", "bf16")
GPU = "cuda"
DEVICES = ("cpu", GPU)  # of the learner
COUNTS = ("actors", "steps", "batch", "n_step", "replay", "points", "update_period", "publish_period", "chunk")
# What weights depend on.
NETWORK = ("algo", "environment", "widths", "activation", "critic", "atoms", "support", "scaled")
# What else a run that goes on must not change, or it learns otherwise than it began. It may be longer, or faster.
LEARNING = (
    "seed", "precision", "batch", "n_step", "discount", "rate", "replay", "warmup", "samples_per_insert",
    "target_period", "exploration", "log_probs", "entropy", "anneal", "correlation",
)  # fmt: skip


@dataclass(frozen=True)
class RunSettings:
    """One run; `steps` are environment steps of all actors together. Built from a recipe by `choose_settings`."""

    algo: str
    environment: str
    widths: tuple[int, ...]  # of the policy's hidden layers
    activation: str
    steps: int
    batch: int
    n_step: int
    discount: float
    rate: float
    replay: int  # transitions
    warmup: int  # transitions before learning starts
    samples_per_insert: float  # transitions sampled per transition inserted
    target_period: int  # updates between two copies into the target networks
    exploration: tuple[float, float]  # ends of the actors' ladder
    log_probs: bool = False  # actors state the probability of what they did: a2c needs it, the others do not
    entropy: float = 0.0  # weight of a2c's entropy bonus
    anneal: int = 0  # steps, of all actors together, in which dqn's epsilon falls from 1 to its rung
    decay: bool = False  # the rate falls linearly to 0
    scaled: bool = False  # observations from the bounds of their space to [-1, 1], for all networks
    correlation: float = 0.0  # of d4pg's noise from step to step
    critic: tuple[int, ...] = ()  # hidden layers of d4pg's and a2c's
    support: tuple[float, float] = (0.0, 0.0)  # least and highest return that d4pg's critic tells apart
    atoms: int = 0
    seed: int = 0
    actors: int = 1
    precision: str = "int8"  # in which actors compute
    communication: str = ""  # in which weights are shipped; empty: as actors compute
    compress: bool = False  # zstd
    delta: bool = False  # what changed since the last whole message, exactly
    update_period: int = 100  # steps of an actor between two pulls
    publish_period: int = 100  # updates of the learner between two broadcasts
    chunk: int = 64  # transitions that an actor sends at once
    points: int = 20  # policies that are kept for the evaluator
    runtime: str = "c"
    learner_precision: str = "fp32"
    device: str = "cpu"  # of the learner; actors are on CPUs
    pin: bool = False  # learner and parameter server on the first core, actors on the others

    def __post_init__(self) -> None:
        self._check_words()
        for name in COUNTS:
            if getattr(self, name) < 1:
                raise SpecError(f"{name.replace('_', ' ')} {getattr(self, name)}: at least 1 is needed")
        if not self.widths or min(self.widths) < 1:
            raise SpecError(f"widths {list(self.widths)}: give at least one hidden layer, as 256,256")
        if not 0 <= self.discount < 1:
            raise SpecError(f"discount {self.discount:g}: must be from 0 on and below 1")
        for name in ("samples_per_insert", "rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise SpecError(f"{name.replace('_', ' ')} {getattr(self, name):g}: must be above 0, and finite")
        if self.warmup < self.batch or self.replay < self.warmup:
            raise SpecError(
                f"warmup {self.warmup}: must lie between the batch ({self.batch}) and the replay ({self.replay})"
            )
        if self.log_probs:
            self._check_runs()
        if self.steps <= self.warmup:
            raise SpecError(f"{self.steps:,} steps: learning starts after {self.warmup:,}; train longer")

    def _check_runs(self) -> None:
        """Where steps are learned from in the order in which they were taken."""
        if self.n_step > 1:
            raise SpecError(f"n-step {self.n_step}: with behaviour log-probabilities returns are summed behind; use 1")
        for name in ("batch", "replay"):
            if getattr(self, name) % self.chunk:
                raise SpecError(f"{name} {getattr(self, name)}: must be a multiple of the chunk, {self.chunk}")

    def _check_words(self) -> None:
        for name, known in (
            ("precision", PRECISIONS),
            ("communication", ("", *PRECISIONS)),
            ("runtime", RUNTIMES),
            ("learner_precision", LEARNER_PRECISIONS),
            ("device", DEVICES),
            ("activation", (Activation.RELU, Activation.TANH)),
        ):
            value = getattr(self, name)
            if value not in known:
                what = name.replace("_", " ")
                raise SpecError(f"unknown {what} {value!r}; known are {', '.join(word for word in known if word)}")
        if self.runtime == "torch" and self.precision == "int8":
            raise SpecError("int8 actors need runtime c or litert: torch's eager mode has no integer kernels here")

    @property
    def shipped(self) -> str:
        """The precision that weights travel in: `communication` where it is set, else the actors' own."""
        return self.communication or self.precision

    @property
    def updates(self) -> int:
        """About how many gradient updates a whole run has, at least 1; the rates decay over so many."""
        return max(int((self.steps - self.warmup) * self.samples_per_insert / self.batch), 1)

    @property
    def network(self) -> dict[str, Any]:
        """What decides the shapes of all weights, and what they mean."""
        return {name: _to_builtin(getattr(self, name)) for name in NETWORK}

    @property
    def learning(self) -> dict[str, Any]:
        """What else a checkpoint holds fast."""
        return {name: _to_builtin(getattr(self, name)) for name in LEARNING}

    @property
    def name(self) -> str:
        """`dqn-cartpole-int8-seed0`, an id of the run for folders."""
        return f"{self.algo}-{self.environment}-{self.precision}-seed{self.seed}"

    def as_dict(self) -> dict[str, Any]:
        """Every setting under its field's name in built-in types, as records and checkpoints keep them."""
        return {name: _to_builtin(value) for name, value in asdict(self).items()}


def list_defaults() -> dict[str, Any]:
    """The settings that have a default, by name, in built-in types."""
    return {field.name: _to_builtin(field.default) for field in fields(RunSettings) if field.default is not MISSING}


def choose_settings(algo: str, environment: str, **changes: Any) -> RunSettings:
    """The recipe of a pair with `changes` (None: the recipe's own); SpecError for what ActorQ cannot train."""
    log_probs = bool(changes.get("log_probs"))
    _check_algorithm(algo, log_probs=log_probs)
    table = dict(_read_recipes()[algo])
    special = table.pop("environments").get(environment, {})
    known = {field.name for field in fields(RunSettings)}
    values = table | special | {name: value for name, value in changes.items() if value is not None}
    for name in values.keys() - known:
        raise SpecError(f"unknown option {name!r} of ActorQ; known are {', '.join(sorted(known))}")
    return RunSettings(algo, environment, **{name: _to_tuple(value) for name, value in values.items()})


def _check_algorithm(algo: str, *, log_probs: bool) -> None:
    if is_actor_critic(algo) and not log_probs:
        raise SpecError(
            f"{algo} is on-policy: its gradient holds for data of the learner's own policy; a quantized, late actor "
            "is another policy; use dqn or d4pg, which learn from any data, or a2c with --behaviour-log-probs, which "
            "corrects for it"
        )
    if algo not in _read_recipes():
        known = ", ".join(_read_recipes())
        reason = "has no distributed form here" if algo in ALGORITHMS else "is unknown"
        raise SpecError(f"algorithm {algo!r} {reason}; ActorQ trains {known}")
    if log_probs and not is_actor_critic(algo):
        raise SpecError(f"{algo} learns from any data and needs no behaviour log-probabilities; leave them out")


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _to_builtin(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@cache
def _read_recipes() -> dict[str, dict[str, Any]]:
    return tomllib.loads(importlib.resources.files(__package__).joinpath("recipes.toml").read_text())
