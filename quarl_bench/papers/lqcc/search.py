"""Selection on policies that are trained as the rule asks for them, and found again when it asks a second time.

A folder may hold searches of several tasks: policies, grids and results have the algorithm and the environment in their
names.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import SpecError, StoreError
from quarl_bench.papers.lqcc.parity import Parity, Returns, Summary
from quarl_bench.papers.lqcc.selection import Configuration, Decision, Selection, Step, list_steps, resample, select
from quarl_bench.system.atomic import write_file
from quarl_bench.training.multi_seed.recipe import MultiSeedRecipe, name_policy
from quarl_bench.training.multi_seed.train import complete_seeds, make_controlled
from quarl_bench.training.sb3.run import SCORE_EPISODES, TrainingOptions


@dataclass(frozen=True)
class Search:
    """Everything that decides a selection, and the folder of its policies."""

    recipe: MultiSeedRecipe  # in fp32
    environment: str
    seeds: tuple[int, ...]
    folder: Path
    rule: Parity = field(default_factory=Parity)
    steps: tuple[Step, ...] = field(default_factory=list_steps)
    full: bool = False

    def run(self, options: TrainingOptions, note: Callable[[str], None] = lambda _: None) -> Selection:
        """Train what is missing, select, and write the result; a killed search goes on where it was.

        SpecError for fewer than two seeds, StoreError when the folder has a search of this task with another grid.
        """
        if len(self.seeds) < 2:
            raise SpecError(f"seeds {list(self.seeds)}: a band of standard deviations needs at least two policies")
        make_controlled(find_environment(self.environment), self.recipe.algo)[0].close()
        self._claim_folder()
        reference = self._find_returns(self.recipe, options, note)
        found: dict[Configuration, Returns] = {}

        def find(configuration: Configuration) -> Returns:
            recipe = self.recipe.quantize(configuration.scheme)
            return found.setdefault(configuration, self._find_returns(recipe, options, note))

        def tell(decision: Decision) -> None:
            note(decision.explain())

        selection = select(reference, find, rule=self.rule, steps=self.steps, full=self.full, tell=tell)
        selection = resample(selection, reference, found.get, self.steps)
        write_result(name_result(self.folder, self.recipe.algo, self.environment), self.describe(selection))
        return selection

    def describe(self, selection: Selection) -> dict[str, Any]:
        """Built-in types only: what was trained, and what was selected."""
        trained = {
            "algo": self.recipe.algo,
            "environment": self.environment,
            "seeds": list(self.seeds),
            "timesteps": self.recipe.timesteps,
            "precision": self.recipe.precision,
            "episodes": SCORE_EPISODES,  # of every mean return
        }
        return trained | describe(selection)

    def _claim_folder(self) -> None:
        grid = {
            "recipe": self.recipe.sha256,
            "environment": self.environment,
            "seeds": list(self.seeds),
            "rule": asdict(self.rule),
            "steps": {step.field: list(step.values) for step in self.steps},
        }
        path = name_grid(self.folder, self.recipe.algo, self.environment)
        if path.exists():
            try:
                found = json.loads(path.read_text())
            except (OSError, ValueError) as error:
                raise StoreError(f"{path} cannot be read ({error}); restore it or choose another --output") from error
            if not isinstance(found, dict):
                raise StoreError(f"{path}: not the grid of a search; restore it or choose another --output")
            if found != grid:
                raise StoreError(f"{path}: {_contrast(found, grid)}; choose another --output")
        else:
            write_file(path, json.dumps(grid, indent=1) + "\n")

    def _find_returns(self, recipe: MultiSeedRecipe, options: TrainingOptions, note: Callable[[str], None]) -> Returns:
        specs = [name_policy(recipe, self.environment, seed) for seed in self.seeds]
        missing = [spec.seed for spec in specs if not (self.folder / spec.name).exists()]
        if missing:
            note(f"training {specs[0].name.rsplit('-', 1)[0]}: {len(missing)} seeds, {recipe.timesteps:,} steps each")
        trained = complete_seeds(recipe, self.environment, self.seeds, self.folder, options)
        return np.array([stored.metadata["return"]["mean"] for _, stored in trained])


def _contrast(found: dict[str, Any], grid: dict[str, Any]) -> str:
    """What another search's grid has otherwise."""
    names = {"recipe": "recipe (--steps is a part of it)", "rule": "parity rule"}
    others = [names.get(key, key) for key in ("recipe", "environment", "rule") if found.get(key) != grid[key]]
    parts = [f"another {' and '.join(others)}"] if others else []
    tried = found.get("steps")
    there = {"seeds": found.get("seeds"), **(tried if isinstance(tried, dict) else {})}
    asked = {"seeds": grid["seeds"], **grid["steps"]}
    parts += [f"{name} {there.get(name)} instead of {own}" for name, own in asked.items() if there.get(name) != own]
    return f"this folder's search has {' and '.join(parts)}"


def name_grid(folder: Path, algo: str, environment: str) -> Path:
    """The file that says what a search tries."""
    return folder / f"grid-{algo}-{environment}.json"


def name_result(folder: Path, algo: str, environment: str) -> Path:
    """The file of what was selected."""
    return folder / f"selection-{algo}-{environment}.json"


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write the result as JSON, whole or not at all."""
    write_file(path, json.dumps(result, indent=1) + "\n")


def describe(selection: Selection) -> dict[str, Any]:
    """Built-in types only: what was selected, by which rule, and every decision."""
    return {
        "scheme": selection.configuration.scheme,
        "matched": selection.matched,
        "rule": selection.rule.name,
        "fp32": _describe_summary(selection.reference),
        "absent": [configuration.scheme for configuration in selection.absent],
        "idle": list(selection.idle),  # steps in which nothing matched: what was chosen before stays
        "stability": None if selection.stability is None else asdict(selection.stability),
        "decisions": [
            {
                "step": decision.step.title,
                "scheme": decision.configuration.scheme,
                **_describe_summary(decision.found),
                "floor": decision.band[0],
                "ceiling": decision.band[1] if math.isfinite(decision.band[1]) else None,
                "matches": decision.matches,
                "difference": decision.difference.estimate,
                "interval": [
                    limit if math.isfinite(limit) else None
                    for limit in (decision.difference.low, decision.difference.high)
                ],
                "below": decision.difference.below,
            }
            for decision in selection.decisions
        ],
    }


def _describe_summary(found: Summary) -> dict[str, Any]:
    return {"mean": found.mean, "sd": None if math.isnan(found.sd) else found.sd, "policies": found.policies}
