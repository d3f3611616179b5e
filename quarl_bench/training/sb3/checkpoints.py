"""The points at which a training run is evaluated and saved, and the policy that it keeps."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback

from quarl_bench.evaluation.episode_bars import show_episodes
from quarl_bench.evaluation.exploration import collect_random_states, describe_exploration, state_interval
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.algorithm import is_actor_critic
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.policies.sources.sb3.model import extract, extract_quantized
from quarl_bench.system.bars import INSIDE, open_bar
from quarl_bench.training.sb3.aware import freeze, is_frozen

if TYPE_CHECKING:
    from quarl_bench.training.sb3.run import TrainingRun

CURVE_POINTS = 20  # evaluations, and checkpoints, per run
Curve = list[dict[str, Any]]  # points of timesteps, mean and sd; `quantized` once a quantizer rounds


@dataclass(frozen=True)
class Best:
    """The policy to keep, and the environment steps behind it."""

    policy: PolicyNet | IntegerPolicy
    timesteps: int


class Checkpoints(BaseCallback):
    """Evaluates on validation seeds and saves, `CURVE_POINTS` times a run, between two rollouts."""

    def __init__(self, run: "TrainingRun", curve: Curve, until: int | None) -> None:
        super().__init__()
        self.run, self.curve, self.until = run, curve, until
        self.stopped, self.arrived = False, False  # because it was asked to; because that was all
        self.interval = max(run.recipe.timesteps // CURVE_POINTS, 1)
        self.bar = open_bar(run.recipe.timesteps, "step", run.spec.name, shown=run.options.progress)

    def _on_training_start(self) -> None:
        evaluated = self.curve[-1]["timesteps"] if self.curve else 0
        self.next = (evaluated // self.interval + 1) * self.interval

    def _on_rollout_start(self) -> None:
        if self.until is not None and self.num_timesteps >= self.until:
            self.arrived = True
            best = self.run.load_best() if self.curve else Best(extract(self.model), self.num_timesteps)
            self.run.save(self.model, self.curve, best)
            return
        if self.run.recipe.scheme and self.num_timesteps >= self.run.recipe.quant_delay:
            freeze(self.model)
        if self.num_timesteps >= self.next:
            self.evaluate()
            self.next += self.interval
        if self.run.options.should_stop():
            if not self.curve or self.curve[-1]["timesteps"] < self.num_timesteps:
                self.evaluate()
            self.stopped = True

    def _on_step(self) -> bool:
        self.bar.update(self.num_timesteps - self.bar.n)
        return not (self.stopped or self.arrived)

    def _on_training_end(self) -> None:
        self.bar.close()

    @cached_property
    def states(self) -> NDArray[Any]:
        """The states in which every run on this environment states its variance."""
        return collect_random_states(extract(self.model), self.run.environment)

    def evaluate(self) -> None:
        """One point of the curve; the best policy so far, ties going to the later one, is kept with it.

        Of a quantization-aware run the best is one that is quantized, once there is one.
        """
        run, quantized = self.run, bool(self.run.recipe.scheme) and is_frozen(self.model)
        policy = extract_quantized(self.model).to_integer() if quantized else extract(self.model)
        explores = is_actor_critic(run.spec.algo) and not policy.recurrent  # which would take whole episodes
        keep_every = state_interval(run.environment) if explores else 0
        seeds, sampled, shown = run.validation_seeds, run.sampled, run.options.progress
        with show_episodes(
            policy, run.environment, seeds, "validation", sampled=sampled, shown=shown, delay=INSIDE
        ) as playing:
            rollouts = roll_out(playing, run.environment, seeds, sampled=sampled, keep_every=keep_every)
        returns = rollouts.returns
        point: dict[str, Any] = {
            "timesteps": int(self.model.num_timesteps),
            "mean": float(returns.mean()),
            "sd": float(np.std(returns, ddof=1)),
        } | ({"quantized": True} if quantized else {})
        if rollouts.observations is not None:
            states = {"visited": rollouts.observations, "fixed": self.states}
            point["variance"] = describe_exploration(self.model, policy, states)
        self.curve.append(point)
        self.bar.set_postfix_str(f"return {point['mean']:.1f}")
        rivals = [p["mean"] for p in self.curve if p.get("quantized", False) == quantized]
        best = Best(policy, point["timesteps"]) if point["mean"] >= max(rivals) else run.load_best()
        run.save(self.model, self.curve, best)
