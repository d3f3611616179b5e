"""Training every seed of a configuration in one process, with checkpoints that survive `kill -9`.

A run goes on where its last checkpoint was: parameters, optimizers, statistics, replay and all random streams are
restored; episodes begin anew, because a simulator's inner state is not kept. The policy kept is the last one, as in the
paper; validation episodes draw the learning curve and select nothing.
"""

import io
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment, make_environment
from quarl_bench.errors import SpecError, StoreError
from quarl_bench.evaluation.episode_bars import show_episodes, show_states
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS, list_validation_seeds
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.clipping import count_clipped
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.policies.storage.folder import Stored, save_stored
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.spec import PolicySpec
from quarl_bench.system.atomic import lock_run, remove_folder, write_file
from quarl_bench.system.bars import INSIDE, open_bar
from quarl_bench.system.interruption import Interrupted
from quarl_bench.system.machine import describe_run, describe_versions
from quarl_bench.training.multi_seed.agents import AGENTS, SeedAgents
from quarl_bench.training.multi_seed.recipe import SOURCE, MultiSeedRecipe, find_published
from quarl_bench.training.multi_seed.replay import SeedReplay
from quarl_bench.training.multi_seed.run import STATE, MultiSeedRun
from quarl_bench.training.sb3.checkpoints import CURVE_POINTS
from quarl_bench.training.sb3.run import TrainingOptions, score_policy
from quarl_bench.training.schemes import ELSEWHERE, check_unfinished, load_finished_policy

CURVE_EPISODES = 10  # of a point of the learning curve, as the paper's
EXPORT_STATES = 10_000  # on which exported integers are compared with the live net
ACTION_STREAM, REPLAY_STREAM = 103, 104  # of a seed's generators
STEPS_BETWEEN_CHECKS = 500  # steps between two questions whether to stop, or to save
SAVE_SECONDS = 180.0  # between two checkpoints, at most about
LIBRARIES = ("torch", "gymnasium", "mujoco", "numpy")


def train_seeds(
    recipe: MultiSeedRecipe,
    environment: str,
    seeds: Sequence[int],
    folder: Path,
    options: TrainingOptions | None = None,
) -> list[tuple[PolicySpec, Stored]]:
    """Train all `seeds` at once; each becomes a policy in `folder`, fp32 or integers, replaced only in the end.

    Raises SpecError for seeds or environments that cannot be trained on, StoreError when an unfinished run is there and
    `options.resume` is not set, when it is another run or another process trains it, Interrupted when asked to stop.
    """
    run = MultiSeedRun.plan(recipe, environment, seeds, folder, options)
    check_unfinished(run.checkpoint, run.options)
    torch.set_num_threads(run.options.workers)
    with lock_run(run.checkpoint, ELSEWHERE):
        loop = TrainingLoop(run, run.read_checkpoint() if run.unfinished else None)
        loop.learn()
        stored = [(spec, loop.publish(index, spec)) for index, spec in enumerate(run.specs)]
        remove_folder(run.checkpoint)
    return stored


def complete_seeds(
    recipe: MultiSeedRecipe,
    environment: str,
    seeds: Sequence[int],
    folder: Path,
    options: TrainingOptions | None = None,
) -> list[tuple[PolicySpec, Stored]]:
    """Policies of all `seeds`: an unfinished run of theirs goes on, else those in `folder` are kept, others trained.

    StoreError, before anything is trained, where one of them is there and was trained by another recipe; otherwise as
    `train_seeds`.
    """
    run = MultiSeedRun.plan(recipe, environment, seeds, folder, options)
    there = [spec for spec in run.specs if (folder / spec.name).exists()]
    kept = [(spec, load_finished_policy(spec, recipe.sha256, folder / spec.name)) for spec in there]
    done = {} if run.unfinished else {spec.seed: (spec, stored) for spec, stored in kept}
    missing = [seed for seed in run.seeds if seed not in done]
    if missing:
        begun = _find_started_seeds(run, missing)
        done |= {new[0].seed: new for new in train_seeds(recipe, environment, begun, folder, options)}
    return [done[seed] for seed in run.seeds]


def _find_started_seeds(run: "MultiSeedRun", missing: list[int]) -> list[int]:
    """Seeds of an unfinished run that holds the `missing` ones, which was killed while it published; else those."""
    wanted = {name: value for name, value in run.identity.items() if name != "seeds"}
    for path in sorted(run.folder.glob(f"{run.name}-seeds*.checkpoint/{STATE}")):
        try:
            found = json.loads(torch.load(path, weights_only=True)["facts"])["identity"]
            seeds: list[int] = found.pop("seeds")
        except Exception:  # noqa: BLE001, S112 (whose checkpoint it is, and what is wrong, tells who goes on from it)
            continue
        if found == wanted and set(missing) <= set(seeds) <= set(run.seeds):
            return seeds
    return missing


class TrainingLoop:
    """Acting and learning, one environment step of every seed at a time; it goes on from `state`, if there is one."""

    def __init__(self, run: MultiSeedRun, state: dict[str, Any] | None = None) -> None:
        self.run, recipe, seeds = run, run.recipe, run.seeds
        made = [make_controlled(run.environment, recipe.algo) for _ in seeds]
        self.environments, self.limit = [bare for bare, _ in made], made[0][1]
        acted = self.environments[0].action_space
        self.low, self.high, self.width = acted.low, acted.high, self.environments[0].observation_space.shape[0]
        self.agent: SeedAgents = AGENTS[recipe.algo](recipe, seeds, self.low, self.high, self.width)
        self.drawing = [np.random.default_rng([seed, ACTION_STREAM]) for seed in seeds]
        self.sampling = [np.random.default_rng([seed, REPLAY_STREAM]) for seed in seeds]
        capacity = min(recipe.replay, recipe.timesteps)
        self.replay = SeedReplay(
            run.checkpoint, len(seeds), capacity, self.width, len(self.low), resume=state is not None
        )
        self.curves: list[list[dict[str, Any]]] = [[] for _ in seeds]
        self.steps, self.began = 0, time.monotonic()
        self._observations: NDArray[Any] | None = None
        self._ages = np.zeros(len(seeds), dtype=np.int64)  # steps into the episodes
        if state is not None:
            try:
                self._restore(state)
            except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
                where = run.checkpoint / STATE
                raise StoreError(f"{where} has another form ({error!r}); delete its folder to start over") from error

    def learn(self) -> None:
        """Go on to the end, evaluating `CURVE_POINTS` times, and saving then and every `SAVE_SECONDS`."""
        recipe, options = self.run.recipe, self.run.options
        interval = max(recipe.timesteps // CURVE_POINTS, 1)
        saved = time.monotonic()
        with open_bar(recipe.timesteps, "step", self.run.name, shown=options.progress, initial=self.steps) as bar:
            while self.steps < recipe.timesteps:
                self.advance()
                bar.update()
                if self.steps % interval == 0 or self.steps == recipe.timesteps:
                    self._evaluate()
                    bar.set_postfix_str("returns " + " ".join(f"{curve[-1]['mean']:.0f}" for curve in self.curves))
                elif self.steps % STEPS_BETWEEN_CHECKS or not (
                    options.should_stop() or time.monotonic() - saved > SAVE_SECONDS
                ):
                    continue
                self.save()
                saved = time.monotonic()
                if self.steps < recipe.timesteps and options.should_stop():
                    raise Interrupted(f"stopped at {self.steps:,} of {recipe.timesteps:,} steps; --resume goes on")

    def advance(self) -> None:
        """One step of every environment and, behind the random phase, one update of every seed."""
        if self._observations is None:
            self._observations = self._reset()
        self._observations = self._step(self._observations)
        if self.steps > self.run.recipe.learning_starts:
            self.agent.update(self.replay.sample(self.sampling, self.run.recipe.batch))

    def _reset(self) -> NDArray[Any]:
        """First observations; a seed's episodes depend on it and, behind a resume, on the step."""
        first = [[seed] if not self.steps else [seed, self.steps] for seed in self.run.seeds]
        numbers = [int(np.random.SeedSequence(parts).generate_state(1)[0]) for parts in first]
        pairs = zip(self.environments, numbers, strict=True)
        return np.stack([environment.reset(seed=number)[0] for environment, number in pairs])

    def _step(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Observations behind one step; where an episode ended, the first one of the next."""
        self.agent.statistics.update(observations)
        if self.steps < self.run.recipe.learning_starts:
            drawn = [generator.uniform(self.low, self.high) for generator in self.drawing]
            actions = np.stack(drawn).astype(np.float32)
        else:
            actions = self.agent.explore(observations)
        results = [environment.step(action) for environment, action in zip(self.environments, actions, strict=True)]
        after, rewards, terminated, truncated, _ = (np.array(part) for part in zip(*results, strict=True))
        self.replay.add(observations, actions, rewards, terminated, after)
        self.steps += 1
        self._ages += 1
        for index in np.flatnonzero(terminated | truncated | (self._ages >= self.limit)):
            after[index], self._ages[index] = self.environments[index].reset()[0], 0
        return np.asarray(after)

    def export(self, index: int) -> PolicyNet | IntegerPolicy:
        """The policy of one seed as it is now: fp32, or integers requantized by thresholds (section 2.3)."""
        transform = ObservationTransform((self.width,), normalization=self.agent.statistics.export(index))
        head = ActionHead(HeadKind.TANH, self.low.astype(np.float32), self.high.astype(np.float32))
        net = self.agent.actor.export(index)
        if isinstance(net, Net):
            return PolicyNet(transform, net, head)
        return IntegerPolicy(transform, IntegerNet.from_quantized(net, Requantization.THRESHOLDS), head)

    def compare_export(self, index: int, policy: IntegerPolicy) -> dict[str, int]:
        """In how many states the exported integers do not compute what the live net does, of as many."""
        where, shown = self.run.environment, self.run.options.progress
        observations = np.asarray(show_states(policy, where, EXPORT_STATES, CALIBRATION_SEEDS, "export", shown=shown))
        inputs = policy.transform.apply(observations)
        with torch.no_grad():
            live = self.agent.actor(torch.from_numpy(inputs).expand(len(self.run.seeds), *inputs.shape))[index].numpy()
        differ = (live != policy.net.forward(inputs)).any(axis=1)
        return {"states": len(observations), "differ": int(differ.sum())}

    def _evaluate(self) -> None:
        seeds = list_validation_seeds(CURVE_EPISODES)
        for index, curve in enumerate(self.curves):
            policy, shown = self.export(index), self.run.options.progress
            with show_episodes(
                policy, self.run.environment, seeds, self.run.specs[index].name, shown=shown, delay=INSIDE
            ) as playing:
                returns = roll_out(playing, self.run.environment, seeds).returns
            point = {"mean": float(returns.mean()), "sd": float(returns.std(ddof=1))}
            curve.append({"timesteps": self.steps} | point)

    def publish(self, index: int, spec: PolicySpec) -> Stored:
        """Score the policy of one seed on test seeds and store it with everything a reader needs."""
        exported, recipe = self.export(index), self.run.recipe
        policy, counter = count_clipped(exported)
        published = find_published(spec)
        score = score_policy(policy, self.run.environment, shown=self.run.options.progress)
        about = {
            "algo": recipe.algo,
            "environment": self.run.environment.id,
            "time_feature": False,
            "seed": spec.seed,
            "origin": "trained by quarl_bench, many seeds at once",
            "recipe": {"source": SOURCE, "sha256": recipe.sha256} | asdict(recipe),
            "trained_with": list(self.run.seeds),
            "published": None if published is None else asdict(published),
            "selection": {"rule": "the last policy", "episodes": 0, "timesteps": self.steps},
            "curve": self.curves[index],
            "return": score,
            "clipped": counter.as_dict(),  # of the observed values of those episodes
            "export": self.compare_export(index, exported) if isinstance(exported, IntegerPolicy) else None,
            "versions": describe_versions(*LIBRARIES),
            "run": describe_run(time.monotonic() - self.began),
        }
        return save_stored(policy, self.run.folder / spec.name, about)

    def save(self) -> None:
        """Write the checkpoint from which a run of the same identity goes on."""
        self.replay.flush()
        generators = [generator.bit_generator.state for generator in (*self.drawing, *self.sampling)]
        facts: dict[str, Any] = {"identity": self.run.identity, "curves": self.curves, "generators": generators}
        facts["seconds"] = time.monotonic() - self.began
        state = {
            "facts": json.dumps(facts),
            "steps": self.steps,
            "rows": self.replay.count,
            "agent": self.agent.state(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_file(self.run.checkpoint / STATE, buffer.getvalue())

    def _restore(self, state: dict[str, Any]) -> None:
        facts = state["facts"]
        self.steps, self.replay.count, self.curves = state["steps"], state["rows"], facts["curves"]
        self.began -= facts.get("seconds", 0)
        for generator, saved in zip((*self.drawing, *self.sampling), facts["generators"], strict=True):
            generator.bit_generator.state = saved
        self.agent.restore(state["agent"])


def make_controlled(environment: Environment, algo: str) -> tuple[Any, int]:
    """An environment and its limit of steps; SpecError unless observations and actions are vectors."""
    made, limit = make_environment(environment)
    observed, acted = made.observation_space, made.action_space
    if not isinstance(acted, gymnasium.spaces.Box) or observed.shape is None or len(observed.shape) != 1:
        raise SpecError(f"{environment.slug}: {algo} needs vectors as observations and as actions")
    return made, limit
