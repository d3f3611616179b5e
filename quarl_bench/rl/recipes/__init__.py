"""Training recipes: one TOML file per algorithm, one table per environment.

A table `<environment>-control` is the arm of a controlled comparison, trained as the origin "control".
"""

import hashlib
import importlib.resources
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from quarl_bench.errors import SpecError

ALGORITHMS = ("a2c", "ddpg", "dqn", "ppo", "sac", "td3")


@dataclass(frozen=True)
class Published:
    """A score from the literature: mean, SD over episodes where it is given, and where it stands."""

    mean: float
    source: str
    sd: float | None = None


@dataclass(frozen=True)
class Recipe:
    """How one algorithm is trained on one environment."""

    algo: str
    environment: str
    source: str
    timesteps: int
    environments: int
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    policy: str = "MlpPolicy"
    precision: str = "fp32"  # of training's convolutions: fp32, or bf16 with fp32 master weights
    normalize: bool = False
    noise: tuple[str, float] | None = None  # exploration of DDPG and TD3: (normal or ou, SD)
    published: Published | None = None

    @property
    def sha256(self) -> str:
        """Hash of everything that changes the trained policy."""
        facts: list[Any] = [self.algo, self.environment, self.timesteps, self.environments, self.policy, self.normalize]
        facts += self.noise or ()
        facts += [] if self.precision == "fp32" else [self.precision]
        return hashlib.sha256(json.dumps([facts, self.hyperparameters], sort_keys=True).encode()).hexdigest()


def find_recipe(algo: str, environment: str, origin: str = "") -> Recipe:
    """The recipe of a pair, for origin "control" its variant; SpecError with what exists when there is none."""
    if algo not in ALGORITHMS:
        raise SpecError(f"unknown algorithm {algo!r}; known are {', '.join(ALGORITHMS)}")
    recipes = _read_recipes(algo)
    name = f"{environment}-{origin}" if origin else environment
    if name not in recipes:
        known = ", ".join(sorted(recipes)) or "none yet"
        raise SpecError(f"no {algo} recipe for environment {name!r}; known are {known}")
    entry = dict(recipes[name])
    published, noise = entry.pop("published", None), entry.pop("noise", None)
    return Recipe(
        algo,
        environment,
        **entry,
        noise=None if noise is None else (str(noise["kind"]), float(noise["sd"])),
        published=None if published is None else Published(**published),
    )


def schedule(value: Any) -> Any:
    """`lin_x` becomes a schedule that falls linearly from x to 0, as in rl-baselines3-zoo.

    An array becomes a tuple (`train_freq = [1, "episode"]`); anything else is itself.
    """
    if isinstance(value, str) and value.startswith("lin_"):
        return _linear(float(value.removeprefix("lin_")))
    return tuple(value) if isinstance(value, list) else value


def _linear(start: float) -> Callable[[float], float]:
    def remaining(progress: float) -> float:
        return progress * start

    return remaining


@cache
def _read_recipes(algo: str) -> dict[str, dict[str, Any]]:
    file = importlib.resources.files(__package__).joinpath(f"{algo}.toml")
    return tomllib.loads(file.read_text()) if file.is_file() else {}
