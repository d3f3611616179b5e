"""Training recipes: tables of an algorithm, one per environment; ours are a TOML file each.

A table `<environment>-<origin>` is another arm of a comparison, trained as that origin: "control" has the network of
the algorithm it is compared with, "layernorm" normalizes its hidden layers. A table with `like` takes what it does not
say, the published score excepted, from the table of that name. What ends in "-aware" is how the same is trained with a
quantizer in place, where that is another way; without one it is an arm as well, of the origin "aware". The origins
"fp32", "bf16" and "fp16" need no table: they are the environment's own recipe in another precision.
"""

import hashlib
import importlib.resources
import json
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from typing import Any, Self

from quarl_bench.errors import SpecError
from quarl_bench.policies.algorithm import ALGORITHMS as ALGORITHMS  # those who read recipes ask for their names
from quarl_bench.policies.algorithm import find_algorithm
from quarl_bench.quantization.scheme import Scheme

FP32, BF16, FP16 = PRECISIONS = ("fp32", "bf16", "fp16")  # of training's matrix products
AWARE = "aware"  # the origin of fp32 policies that are trained as those with a quantizer are


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
    precision: str = FP32  # of training's hidden layers; in half precision with fp32 master weights
    normalize: bool = False
    layer_norm: bool = False  # between every hidden layer and its activation
    time_feature: bool = False  # the remaining time is appended to the observations
    noise: tuple[str, float] | None = None  # exploration of DDPG and TD3: (normal or ou, SD)
    published: Published | None = None
    scheme: str = ""  # qat<bits>: trained with the quantizer in place
    quant_delay: int = 0  # environment steps in full precision before it rounds; 0: half of all

    def train_aware(self, scheme: str, quant_delay: int | None = None) -> Self:
        """This recipe with a quantizer, which rounds behind `quant_delay` environment steps (by default its own).

        SpecError for a scheme that is not trained, and for a delay that leaves nothing to train.
        """
        if not Scheme.parse(scheme).trained:
            raise SpecError(f"scheme {scheme!r} is applied to trained policies; train with one of qat2..qat8")
        own = self.quant_delay or self.timesteps // 2
        delay = own if quant_delay is None else quant_delay
        if not 0 < delay < self.timesteps:
            raise SpecError(
                f"quant_delay {delay:,}: the run has {self.timesteps:,} steps, and the quantizer needs some to watch "
                "and some to round"
            )
        return replace(self, scheme=scheme, quant_delay=delay, published=None)

    def train_for(self, timesteps: int) -> Self:
        """This recipe with other environment steps, over which its schedules then fall; SpecError for too few."""
        first: int = self.hyperparameters.get("learning_starts", 0)
        if timesteps <= first:
            what = f"{self.algo} {self.environment}: {timesteps:,} steps"
            raise SpecError(f"{what}, and learning starts after {first:,}; train longer")
        return replace(self, timesteps=timesteps)

    def train_in(self, precision: str) -> Self:
        """This recipe with hidden layers in another precision; SpecError where that is not to be had."""
        what = f"{self.algo} {self.environment}: precision {precision!r}"
        if precision not in PRECISIONS:
            raise SpecError(f"{what} is unknown; known are {', '.join(PRECISIONS)}")
        if precision == self.precision:
            raise SpecError(f"{what} is the recipe's own; leave it out")
        if precision != FP32 and (not find_algorithm(self.algo).half or self.layer_norm):
            known = ", ".join(algorithm.name for algorithm in ALGORITHMS.values() if algorithm.half)
            raise SpecError(f"{what} is for recipes of {known} without layer normalization")
        return replace(self, precision=precision, published=None)

    @property
    def sha256(self) -> str:
        """Hash of everything that changes the trained policy."""
        facts: list[Any] = [self.algo, self.environment, self.timesteps, self.environments, self.policy, self.normalize]
        facts += self.noise or ()
        facts += [] if self.precision == FP32 else [self.precision]
        facts += ["time_feature"] if self.time_feature else []
        facts += ["layer_norm"] if self.layer_norm else []
        facts += [self.scheme, self.quant_delay] if self.scheme else []
        return hashlib.sha256(json.dumps([facts, self.hyperparameters], sort_keys=True).encode()).hexdigest()


def name_reference(algo: str, environment: str, origin: str) -> str:
    """The origin of the fp32 policies with which those trained with a quantizer are compared.

    It is `AWARE` where these are trained for other steps than the recipe without one.
    """
    recipes, name = _read_recipes(algo), f"{environment}-{AWARE}"
    if origin or not {environment, name} <= recipes.keys():
        return origin
    steps = [_complete(recipes, each, each).get("timesteps") for each in (environment, name)]
    return AWARE if steps[0] != steps[1] else origin


def find_recipe(
    algo: str,
    environment: str,
    origin: str = "",
    scheme: str = "",
    *,
    timesteps: int | None = None,
    quant_delay: int | None = None,
) -> Recipe:
    """The recipe of a pair; for an origin ("control", "bf16") that arm's, for a scheme its trained form.

    Other environment steps, and others before the quantizer rounds, take the place of the recipe's own.

    SpecError with what exists when there is none.
    """
    recipes = _read_recipes(algo)
    if origin in PRECISIONS:
        if scheme:
            raise SpecError(f"{algo} {environment}: a scheme is trained in the recipe's own precision, not in {origin}")
        return find_recipe(algo, environment, timesteps=timesteps).train_in(origin)
    name = f"{environment}-{origin}" if origin else environment
    aware = f"{name}-{AWARE}"
    name = aware if scheme and aware in recipes else name
    if name not in recipes:
        known = ", ".join(sorted(recipes)) or "none yet"
        raise SpecError(f"no {algo} recipe for environment {name!r}; known are {known}")
    where = f"{_name_recipes(algo)}, table [{name}]"
    entry = _complete(recipes, name, where)
    elsewhere = ("algo", "environment", "scheme")
    _check_keys(entry, {f.name: _is_required(f) for f in fields(Recipe) if f.name not in elsewhere}, where)
    if (noise := entry.get("noise")) is not None:
        _check_keys(noise, {"kind": True, "sd": True}, f"{where}, noise")
        entry["noise"] = str(noise["kind"]), float(noise["sd"])
    if (published := entry.get("published")) is not None:
        _check_keys(published, {f.name: _is_required(f) for f in fields(Published)}, f"{where}, published")
        entry["published"] = Published(**published)
    recipe = Recipe(algo, environment, **entry)
    recipe = recipe if timesteps is None else recipe.train_for(timesteps)
    return recipe.train_aware(scheme, quant_delay) if scheme else recipe


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


def _check_keys(table: Any, keys: dict[str, bool], where: str) -> None:
    """SpecError for a key that is not among `keys`, or one of them that is required and missing."""
    if not isinstance(table, dict):
        raise SpecError(f"{where}: {table!r} is not a table; its keys are {', '.join(keys)}")
    for key in table.keys() - keys.keys():
        raise SpecError(f"{where}: unknown key {key!r}; known are {', '.join(keys)}")
    for key, required in keys.items():
        if required and key not in table:
            raise SpecError(f"{where}: the key {key!r} is missing")


def _is_required(member: Field[Any]) -> bool:
    return member.default is MISSING and member.default_factory is MISSING


def _complete(recipes: dict[str, dict[str, Any]], name: str, where: str) -> dict[str, Any]:
    """The table `name` with what it takes from the one it is like."""
    entry = dict(recipes[name])
    if "like" not in entry:
        return entry
    model = entry.pop("like")
    if model not in recipes:
        raise SpecError(f"{where}: there is no table {model!r} to be like")
    base = dict(recipes[model])
    base.pop("published", None)
    hyperparameters = base.get("hyperparameters", {}) | entry.get("hyperparameters", {})
    return base | entry | {"hyperparameters": hyperparameters}


@cache
def _read_recipes(algo: str) -> dict[str, Any]:
    recipes = find_algorithm(algo).recipes
    if not isinstance(recipes, str):
        return dict(recipes)
    package, _, name = recipes.partition(":")
    file = importlib.resources.files(package).joinpath(name)
    return tomllib.loads(file.read_text()) if file.is_file() else {}


def _name_recipes(algo: str) -> str:
    recipes = find_algorithm(algo).recipes
    return f"recipes/{recipes.partition(':')[2]}" if isinstance(recipes, str) else f"recipes of {algo}"
