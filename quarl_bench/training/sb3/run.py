"""One training run of a recipe through stable-baselines3: its model, its checkpoints, its account of itself.

A run goes on where its last checkpoint was: model, optimizer, statistics, replay buffer and learning curve are
restored; the random stream is not, so a resumed run is a valid run of the recipe, not the same one. A buffer of images
is gigabytes: it is not saved but filled again, as at the start of a run, before learning goes on. DQN's model may be
missing too, from a checkpoint that has to be small: the policy kept holds all its values, and it goes on from there.
The policy kept is the one with the best mean return on validation seeds, which never score it.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.errors import QuarlError, StoreError
from quarl_bench.evaluation.batches.episodes import start_episodes
from quarl_bench.evaluation.episode_bars import show_episodes
from quarl_bench.evaluation.protocol import TEST_SEEDS, VALIDATION_SEEDS, list_test_seeds, list_validation_seeds
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.algorithm import find_algorithm, is_sampled
from quarl_bench.policies.policy import Policy, PolicyNet
from quarl_bench.policies.sources.sb3.model import install
from quarl_bench.policies.storage.folder import load_stored, save_stored
from quarl_bench.spec import PolicySpec
from quarl_bench.system.atomic import check_replaceable, new_folder
from quarl_bench.system.extras import list_requirements
from quarl_bench.system.interruption import Interrupted
from quarl_bench.system.machine import describe_run, describe_versions
from quarl_bench.training.recipes import Recipe
from quarl_bench.training.sb3.atari_workers import WorkerVector
from quarl_bench.training.sb3.checkpoints import Best, Checkpoints, Curve
from quarl_bench.training.sb3.models import choose_device, load_model, make_model
from quarl_bench.training.sb3.vector import make_vector

VALIDATION_EPISODES = 20
GAMES = 8  # the same for Atari, where an episode takes seconds
SCORE_EPISODES = 100
STATE = "state.json"
MODEL, REPLAY = "model.zip", "replay.pkl"
BEST = "best"
LIBRARIES = ("torch", "stable-baselines3", "gymnasium", "numpy")


@dataclass(frozen=True)
class TrainingOptions:
    """What a caller may decide about a run; nothing here changes what a recipe trains."""

    resume: bool = False
    progress: bool = False
    should_stop: Callable[[], bool] = lambda: False
    workers: int = 1  # threads of torch, and processes that step Atari games


@dataclass(frozen=True)
class TrainingRun:
    """What is trained, where its checkpoint is, and how the caller wants it done."""

    spec: PolicySpec
    recipe: Recipe
    environment: Environment
    checkpoint: Path
    options: TrainingOptions
    began: float  # on the monotonic clock; earlier than it did, by what was trained before a resume

    @classmethod
    def start(cls, spec: PolicySpec, recipe: Recipe, checkpoint: Path, options: TrainingOptions) -> Self:
        """The run of a recipe in its environment; a missing extra ends it here, in one line."""
        environment = replace(find_environment(spec.environment), time_feature=recipe.time_feature)
        start_episodes(environment, [VALIDATION_SEEDS]).close()
        return cls(spec, recipe, environment, checkpoint, options, time.monotonic() - read_seconds(checkpoint))

    def learn(self, until: int | None = None) -> tuple[BaseAlgorithm, Checkpoints]:
        """Go on from the checkpoint, if there is one, to the end or to a checkpoint at `until` environment steps.

        Raises Interrupted when asked to stop, StoreError for a checkpoint that is none or is damaged.
        """
        check_replaceable(self.checkpoint, STATE)
        resumed = (self.checkpoint / STATE).exists()
        model, curve = self.load() if resumed else (self.new(), [])
        torch.set_num_threads(self.options.workers)
        callback = Checkpoints(self, curve, until)
        remaining = self.recipe.timesteps - model.num_timesteps
        if remaining > 0:
            model.learn(remaining, callback=callback, reset_num_timesteps=not resumed)
        if callback.stopped:
            raise Interrupted(
                f"stopped at {model.num_timesteps:,} of {self.recipe.timesteps:,} steps; --resume goes on"
            )
        return model, callback

    def new(self) -> BaseAlgorithm:
        """A new SB3 model of the recipe, with the run's seed and its vectorised environment."""
        return make_model(self.recipe, self._vector(), self.spec.seed)

    def save(self, model: BaseAlgorithm, curve: Curve, best: Best) -> None:
        """Replace the checkpoint by the present state."""
        with new_folder(self.checkpoint, STATE) as work:
            model.save(work / MODEL)
            if isinstance(model, OffPolicyAlgorithm) and not self.environment.atari:
                model.save_replay_buffer(work / REPLAY)
            vector = model.get_vec_normalize_env()
            if vector is not None:
                vector.save(str(work / "normalize.pkl"))
            save_stored(best.policy, work / BEST, {"timesteps": best.timesteps})
            state = {"recipe": self.recipe.sha256, "seed": self.spec.seed, "curve": curve}
            state |= {"timesteps": model.num_timesteps, "seconds": time.monotonic() - self.began}
            (work / STATE).write_text(json.dumps(state | self.describe_machine(model.num_timesteps)))

    def read_state(self) -> dict[str, Any]:
        """What the checkpoint says of itself; StoreError when it is damaged, or of another recipe or seed."""
        with self._told_in_one_line():
            state: dict[str, Any] = json.loads((self.checkpoint / STATE).read_text())
            recipe, _ = state["recipe"], state["curve"]
        if recipe != self.recipe.sha256:
            raise StoreError(f"{self.checkpoint} was made with another recipe; delete it to start over")
        if state.get("seed", self.spec.seed) != self.spec.seed:  # older ones do not say
            raise StoreError(f"{self.checkpoint} is of seed {state['seed']}; pass --seed {state['seed']}, or delete it")
        return state

    def load(self) -> tuple[BaseAlgorithm, Curve]:
        """The model and curve of the checkpoint; StoreError as `read_state`, or when a file of it is damaged."""
        state = self.read_state()
        with self._told_in_one_line():
            self.load_best()  # missed now, not when the run ends
            return self._load_model(state)

    def _load_model(self, state: dict[str, Any]) -> tuple[BaseAlgorithm, Curve]:
        # Streams begin anew, but not as they began: episodes and noise behind a resume are others.
        streams = np.random.SeedSequence([self.spec.seed, state.get("timesteps", 0)])
        seed, curve = int(streams.generate_state(1)[0] >> 1), state["curve"]
        vector = self._vector(self.checkpoint / "normalize.pkl", seed)
        if (self.checkpoint / MODEL).exists():
            model = load_model(self.recipe, self.checkpoint / MODEL, vector)
        else:
            model = self._load_best_policy(vector)
            curve = [point for point in curve if point["timesteps"] <= model.num_timesteps]
        if isinstance(model, OffPolicyAlgorithm):
            if (self.checkpoint / REPLAY).exists():
                with (self.checkpoint / REPLAY).open("rb") as stream:
                    model.load_replay_buffer(stream)
            else:
                model.learning_starts = model.num_timesteps + self.recipe.hyperparameters["learning_starts"]
        model.set_random_seed(seed)
        return model, curve

    def _load_best_policy(self, vector: VecEnv) -> BaseAlgorithm:
        """A model that begins with the policy of the checkpoint, and at its step."""
        model, best = make_model(self.recipe, vector, self.spec.seed), self.load_best()
        if not isinstance(model, DQN) or not isinstance(best.policy, PolicyNet) or self.recipe.scheme:
            raise StoreError(f"{self.checkpoint} has no {MODEL}, without which only DQN goes on; delete it")
        install(best.policy, model)
        model.num_timesteps = best.timesteps
        return model

    def load_best(self) -> Best:
        """The policy that the checkpoint keeps."""
        kept = load_stored(self.checkpoint / BEST)
        return Best(kept.policy, kept.metadata["timesteps"])

    @contextlib.contextmanager
    def _told_in_one_line(self) -> Iterator[None]:
        """StoreError for whatever a damaged file of the checkpoint makes its reader say."""
        try:
            yield
        except QuarlError:
            raise
        except Exception as error:
            raise StoreError(f"{self.checkpoint} cannot be read ({error!r}); delete it to start over") from error

    @property
    def sampled(self) -> bool:
        """Whether validation episodes are sampled, as they are in training."""
        return is_sampled(self.spec.algo, atari=self.environment.atari)

    @property
    def validation_seeds(self) -> range:
        """Environment seeds that select the policy."""
        return list_validation_seeds(GAMES if self.environment.atari else VALIDATION_EPISODES)

    def describe_machine(self, timesteps: int) -> dict[str, Any]:
        """What the run was trained with, where, how long, and how far."""
        libraries = {*LIBRARIES, *(one.name for one in list_requirements(find_algorithm(self.spec.algo).extra))}
        run = describe_run(time.monotonic() - self.began) | {"timesteps": timesteps}
        if choose_device(self.recipe) == "cuda":
            run["device"] = torch.cuda.get_device_name()
        return {"versions": describe_versions(*sorted(libraries)), "run": run}

    def describe(self, best: Best, curve: Curve) -> dict[str, Any]:
        """The manifest's account of the policy but for its machine: recipe, budget, curve, return, published return."""
        published = self.recipe.published
        modes = {"return": False} | ({"sampled_return": True} if self.sampled else {})
        return {
            "algo": self.spec.algo,
            "environment": self.environment.id,
            "time_feature": self.environment.time_feature,
            "seed": self.spec.seed,
            "origin": "trained by quarl_bench",
            "recipe": {
                "source": self.recipe.source,
                "sha256": self.recipe.sha256,
                "timesteps": self.recipe.timesteps,
                "environments": self.recipe.environments,
                "normalize": self.recipe.normalize,
                "precision": self.recipe.precision,
                "noise": None if self.recipe.noise is None else list(self.recipe.noise),
                "hyperparameters": self.recipe.hyperparameters,
            }
            | ({"scheme": self.recipe.scheme, "quant_delay": self.recipe.quant_delay} if self.recipe.scheme else {}),
            "published": None if published is None else vars(published),
            "selection": {
                "rule": f"best mean return on validation seeds, {'sampled' if self.sampled else 'deterministic'}",
                "episodes": len(self.validation_seeds),
                "timesteps": best.timesteps,
            },
            "curve": curve,
            **{
                name: score_policy(best.policy, self.environment, sampled=sampled, shown=self.options.progress)
                for name, sampled in modes.items()
            },
        }

    def _vector(self, statistics: Path | None = None, seed: int | None = None) -> VecEnv:
        count, workers, seed = self.recipe.environments, self.options.workers, self.spec.seed if seed is None else seed
        if self.environment.atari and workers > 1:
            vector: VecEnv = WorkerVector(self.environment, count, seed, workers)
        else:
            vector = make_vector(self.environment, count, seed)
        if not self.recipe.normalize:
            return vector
        if statistics is not None:
            return VecNormalize.load(str(statistics), vector)
        return VecNormalize(vector, gamma=self.recipe.hyperparameters.get("gamma", 0.99))


def read_seconds(checkpoint: Path) -> float:
    """Wall time behind a checkpoint; 0 where there is none, or it does not say."""
    try:
        return float(json.loads((checkpoint / STATE).read_text()).get("seconds", 0))
    except (OSError, ValueError, TypeError, AttributeError):  # `TrainingRun.load` refuses what is damaged
        return 0.0


def score_policy(
    policy: Policy, environment: Environment, *, sampled: bool = False, shown: bool = False
) -> dict[str, Any]:
    """The return on test seeds, as a manifest states it; `shown` says whether a bar of the episodes is."""
    seeds = list_test_seeds(SCORE_EPISODES)
    with show_episodes(policy, environment, seeds, "scoring", sampled=sampled, shown=shown) as playing:
        rollouts = roll_out(playing, environment, seeds, sampled=sampled)
    return {
        "mean": float(rollouts.returns.mean()),
        "sd": float(rollouts.returns.std(ddof=1)),
        "episodes": SCORE_EPISODES,
        "first_environment_seed": TEST_SEEDS,
        "deterministic": not sampled,
    }


def close_environments(model: BaseAlgorithm) -> None:
    """End what steps the environments of a model."""
    vector = model.get_env()
    if vector is not None:
        vector.close()
