"""What one training of many seeds is, and where it leaves what it has."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.errors import SpecError, StoreError
from quarl_bench.spec import PolicySpec
from quarl_bench.training.multi_seed.recipe import MultiSeedRecipe, name_policy
from quarl_bench.training.sb3.run import TrainingOptions

STATE = "state.pt"


LONGEST = 60  # characters for the seeds in the name of a checkpoint


@dataclass(frozen=True)
class MultiSeedRun:
    """What is trained, where it goes, and what the caller decided."""

    recipe: MultiSeedRecipe
    environment: Environment
    seeds: tuple[int, ...]
    folder: Path
    options: TrainingOptions

    @classmethod
    def plan(
        cls,
        recipe: MultiSeedRecipe,
        environment: str,
        seeds: Sequence[int],
        folder: Path,
        options: TrainingOptions | None,
    ) -> Self:
        """SpecError for seeds or environments that cannot be trained on."""
        if not seeds or len(set(seeds)) != len(seeds):
            raise SpecError(f"seeds {list(seeds)}: name at least one, and each once")
        return cls(recipe, find_environment(environment), tuple(seeds), folder, options or TrainingOptions())

    @property
    def specs(self) -> list[PolicySpec]:
        """What the policies of the run are called, seed by seed."""
        return [name_policy(self.recipe, self.environment.slug, seed) for seed in self.seeds]

    @property
    def name(self) -> str:
        """Of all seeds together: the common part of their policies' names."""
        return self.specs[0].name.removesuffix(f"-seed{self.seeds[0]}")

    @property
    def checkpoint(self) -> Path:
        """The folder of an unfinished run's checkpoint; it names the seeds, or a hash of many."""
        numbers = "-".join(map(str, self.seeds))
        if len(numbers) > LONGEST:  # of what a file's name may hold
            numbers = f"-{len(self.seeds)}-{hashlib.sha256(numbers.encode()).hexdigest()[:12]}"
        return self.folder / f"{self.name}-seeds{numbers}.checkpoint"

    @property
    def unfinished(self) -> bool:
        """Whether there is something to go on from."""
        return (self.checkpoint / STATE).exists()

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint has to agree with."""
        return {"recipe": self.recipe.sha256, "environment": self.environment.id, "seeds": list(self.seeds)}

    def read_checkpoint(self) -> dict[str, Any]:
        """What `TrainingLoop` goes on from; StoreError when it is another run's or damaged, and nothing was touched."""
        path = self.checkpoint / STATE
        try:
            state: dict[str, Any] = torch.load(path, weights_only=True)
            state["facts"] = json.loads(state["facts"])
            identity = state["facts"]["identity"]
        except Exception as error:
            raise StoreError(f"{path} cannot be read ({error!r}); delete its folder to start over") from error
        if identity != self.identity:
            raise StoreError(f"{path} was made by another run (recipe, environment or seeds); delete its folder")
        return state
