"""Recipes of training many seeds in one process (LQCC, its tables 4 and 5), and what a run may change in them."""

import hashlib
import importlib.resources
import json
import re
import tomllib
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Self

from quarl_bench.errors import SpecError
from quarl_bench.quantization.scheme import WIDTHS, Family, Scheme
from quarl_bench.spec import PolicySpec
from quarl_bench.training.recipes import Published


@cache
def _read_tables(file: str) -> dict[str, Any]:
    return tomllib.loads(importlib.resources.files(__package__).joinpath(file).read_text())


PRECISIONS = ("fp32", "bf16")  # of matrix products in training; parameters and the quantized forward are always fp32
ORIGIN: str = _read_tables("recipes.toml")["origin"]  # of every policy trained so
ARM = re.compile(rf"{ORIGIN}(raw)?({'|'.join(PRECISIONS[1:])})?(?:h(\d+))?")
SOURCE = "Kresse and Lampert 2025, tables 4 and 5"


@dataclass(frozen=True)
class MultiSeedRecipe:
    """One algorithm's hyperparameters; steps are environment steps of one seed."""

    algo: str
    timesteps: int
    replay: int
    gamma: float
    tau: float
    batch: int
    learning_starts: int
    actor_rate: float
    critic_rate: float
    actor_every: int  # critic updates between updates of the actor
    width: int  # of hidden layers: the critics', and the actor's unless `actor_width` says otherwise
    normalize: bool
    actor_width: int = 0
    exploration: float = 0.0  # SD of DDPG's noise, as a share of the action range's half
    precision: str = "fp32"
    scheme: str = "fp32"

    @property
    def quantizer(self) -> Scheme | None:
        """The scheme the actor is trained with; None in full precision."""
        scheme = Scheme.parse(self.scheme)
        return scheme if scheme.family is Family.LEARNED else None

    @property
    def hidden(self) -> int:
        """Width of the actor's hidden layers."""
        return self.actor_width or self.width

    @property
    def sha256(self) -> str:
        """Hash of everything that changes the trained policies."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def quantize(self, scheme: str) -> Self:
        """This recipe with the actor under `scheme`: fp32, or i<bits>c<bits>o<bits>."""
        parsed = Scheme.parse(scheme)
        if parsed.after or parsed.family not in (Family.FP32, Family.LEARNED):
            raise SpecError(f"scheme {scheme!r} is not trained with many seeds; use fp32 or i<bits>c<bits>o<bits>")
        named = replace(parsed, width=0) if parsed.width == self.width else parsed
        return replace(self, scheme=named.name, actor_width=named.width)

    def override(self, **changes: Any) -> Self:
        """This recipe with other values; SpecError for one that cannot be trained."""
        recipe = replace(self, **changes)
        if recipe.actor_width == recipe.width:
            recipe = replace(recipe, actor_width=0)  # one name for one thing, and one hash
        if recipe.timesteps <= recipe.learning_starts:
            raise SpecError(
                f"{recipe.timesteps:,} steps: learning starts after {recipe.learning_starts:,}; train longer"
            )
        if recipe.precision not in PRECISIONS:
            raise SpecError(f"precision {recipe.precision!r}: known are {', '.join(PRECISIONS)}")
        if recipe.hidden not in WIDTHS:
            raise SpecError(f"width {recipe.hidden}: a hidden width is {WIDTHS[0]}..{WIDTHS[-1]}")
        return recipe


def find_recipe(algo: str) -> MultiSeedRecipe:
    """The recipe of an algorithm; SpecError where it has none."""
    tables = _read_tables("recipes.toml")["algorithms"]
    if algo not in tables:
        raise SpecError(f"{algo} is not trained with many seeds in one process; known are {', '.join(tables)}")
    return MultiSeedRecipe(algo, **tables[algo])


def name_policy(recipe: MultiSeedRecipe, environment: str, seed: int) -> PolicySpec:
    """What one seed's policy is called; its origin says what is not as in the paper, so that no arm replaces another.

    Raw observations, bf16, and the width of an fp32 actor's hidden layers: <origin>raw, <origin>bf16, <origin>h16.
    """
    quantized = recipe.quantizer is not None
    parts = (
        ORIGIN,
        "" if recipe.normalize else "raw",
        "" if recipe.precision == PRECISIONS[0] else recipe.precision,
        "" if quantized or recipe.hidden == recipe.width else f"h{recipe.hidden}",
    )
    return PolicySpec(recipe.algo, environment, seed, "".join(parts), recipe.scheme if quantized else "")


def list_options(origin: str, scheme: str) -> list[str]:
    """What `quarl train --seeds LIST` has to be told for a policy of this origin, the inverse of `name_policy`."""
    arm = ARM.fullmatch(origin)
    raw, precision, width = (None, None, None) if arm is None else arm.groups()
    parts = (
        "--raw" if raw else "",
        f"--precision {precision}" if precision else "",
        f"--width {width}" if width else "",
        f"--scheme {scheme}" if scheme else "",
    )
    return [part for part in parts if part]


def find_published(policy: PolicySpec) -> Published | None:
    """What the paper or its authors' runs report of such policies, over ten training seeds; None where they do not."""
    found = _read_tables("published.toml").get(policy.name.removesuffix(f"-seed{policy.seed}"))
    return None if found is None else Published(**found)
