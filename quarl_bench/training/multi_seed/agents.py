"""SAC and DDPG on a stack of seeds: networks, and one update from one batch.

Critics are fp32 and SAC's standard deviations come from a small fp32 net of their own, so that neither is deployed.
Every random number is drawn from the stream of its seed.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from quarl_bench.quantization.learned import LearnedNet
from quarl_bench.quantization.training.stacked_nets import StackedNet, Tensor, chain, draw_layer
from quarl_bench.training.multi_seed.recipe import MultiSeedRecipe
from quarl_bench.training.multi_seed.replay import Batch
from quarl_bench.training.multi_seed.running_statistics import RunningStatistics

SIGMA_WIDTH = 64
LOG_SIGMA = (-5.0, 2.0)  # CleanRL's limits
INIT_STREAM, NOISE_STREAM = 101, 102  # of a seed's generators


def make_generators(seeds: Sequence[int], stream: int) -> list[torch.Generator]:
    """A generator per seed, apart from those of other streams."""
    roots = [int(np.random.SeedSequence([seed, stream]).generate_state(1)[0]) for seed in seeds]
    return [torch.Generator().manual_seed(root) for root in roots]


class Critics(nn.Module):
    """`copies` action values per seed; parameters of all copies of a seed stand side by side."""

    def __init__(self, inputs: int, width: int, copies: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.copies, self.dtype = copies, torch.float32
        each = [generator for generator in generators for _ in range(copies)]
        widths = (inputs, width, width, 1)
        layers = [draw_layer(i, o, each) for i, o in pairwise(widths)]
        self.layers = nn.ParameterList([parameter for layer in layers for parameter in layer])

    def forward(self, observations: Tensor, actions: Tensor, *, frozen: bool = False) -> Tensor:
        """Values (seeds, copies, n); `frozen` weights pass gradients to the actions alone."""
        layers = [parameter.detach() if frozen else parameter for parameter in self.layers]
        values = chain(observations, layers, beside=actions, copies=self.copies, dtype=self.dtype)
        return values.view(-1, self.copies, values.shape[1])


class SigmaHead(nn.Module):
    """Log standard deviations of SAC's actions: one hidden layer of tanh."""

    def __init__(self, inputs: int, actions: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.hidden_weight, self.hidden_bias = draw_layer(inputs, SIGMA_WIDTH, generators)
        self.weight, self.bias = draw_layer(SIGMA_WIDTH, actions, generators)

    def forward(self, observations: Tensor) -> Tensor:
        """(seeds, n, actions) within `LOG_SIGMA`."""
        hidden = torch.baddbmm(self.hidden_bias[:, None], observations, self.hidden_weight.mT).tanh()
        raw = torch.baddbmm(self.bias[:, None], hidden, self.weight.mT).tanh()
        low, high = LOG_SIGMA
        return low + 0.5 * (high - low) * (raw + 1)


class SeedAgents(ABC):
    """What SAC and DDPG share: an actor, critics with targets, the observations' statistics, streams of noise."""

    copies: int
    own_parts: tuple[str, ...]  # of checkpoints, beside those that both have
    actor_optimizer: torch.optim.Adam

    def __init__(
        self, recipe: MultiSeedRecipe, seeds: Sequence[int], low: NDArray[Any], high: NDArray[Any], width: int
    ) -> None:
        self.recipe, self.seeds, actions = recipe, tuple(seeds), len(low)
        self.scale, self.middle = (torch.from_numpy(v.astype(np.float32)) for v in ((high - low) / 2, (high + low) / 2))
        self.statistics = RunningStatistics(len(seeds), width, active=recipe.normalize)
        self.generators = make_generators(seeds, NOISE_STREAM)
        drawing = make_generators(seeds, INIT_STREAM)
        widths, dtype = (width, recipe.hidden, recipe.hidden, actions), torch.float32
        if recipe.precision == "bf16":
            dtype = torch.bfloat16
        scheme = recipe.quantizer
        self.actor: StackedNet | LearnedNet = (
            StackedNet(widths, drawing, dtype) if scheme is None else LearnedNet(widths, scheme, drawing)
        )
        self.critics = Critics(width + actions, recipe.width, self.copies, drawing)
        self.critics.dtype = dtype
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(requires_grad=False)
        self.critic_optimizer = _adam(self.critics.parameters(), recipe.critic_rate)
        self.updates, self.drawing = 0, drawing

    @abstractmethod
    def explore(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Actions (seeds, actions) with noise, for raw observations (seeds, width)."""

    @abstractmethod
    def update(self, batch: Batch) -> None:
        """Take one gradient step per seed on `batch`, whose first axis is the seed."""

    def parts(self) -> dict[str, Any]:
        """Modules and optimizers by name: what a checkpoint holds."""
        names = ("actor", "critics", "target_critics", "critic_optimizer", "actor_optimizer", *self.own_parts)
        return {name: getattr(self, name) for name in names}

    def act(self, observations: Tensor) -> Tensor:
        """Deterministic actions (seeds, n, actions) of normalized observations."""
        return self.squash(self.actor(observations))

    def squash(self, outputs: Tensor) -> Tensor:
        """Squash the net's outputs by tanh into the action space's bounds."""
        return outputs.tanh() * self.scale + self.middle

    def draw(self, n: int) -> Tensor:
        """Standard normal numbers (seeds, n, actions)."""
        noise = torch.empty(len(self.seeds), n, len(self.scale))
        for row, generator in zip(noise, self.generators, strict=True):
            row.normal_(generator=generator)
        return noise

    def normalize_one(self, observations: NDArray[Any]) -> Tensor:
        """One raw observation per seed, as a batch of one."""
        return self.statistics.normalize(torch.from_numpy(observations.astype(np.float32))[:, None])

    def state(self) -> dict[str, Any]:
        """Everything that learning changes, as tensors and built-in types."""
        return {name: part.state_dict() for name, part in self.parts().items()} | {
            "updates": self.updates,
            "statistics": self.statistics.state(),
            "generators": [generator.get_state() for generator in self.generators],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Load networks, optimizers, statistics and random generators of a checkpoint into this learner, in place."""
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        self.updates = int(state["updates"])
        self.statistics.restore(state["statistics"])
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)

    def _learn_values(self, values: Tensor, targets: Tensor) -> None:
        """Squared error of (seeds, copies, n) values: a mean over the batch, a sum over everything else."""
        loss = (values - targets).square().mean(2).sum()
        self.critic_optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.critic_optimizer.step()

    def _learn_actor(self, loss: Tensor) -> None:
        """One step of the actor; while its scales are being watched, they are not learned (section 2.2)."""
        self.actor_optimizer.zero_grad()
        torch.autograd.backward(loss)
        if isinstance(self.actor, LearnedNet) and self.actor.scales[0].observes:
            self.actor.scales.zero_grad()
        self.actor_optimizer.step()

    def _update_target(self, target: nn.Module, source: nn.Module) -> None:
        parameters = [parameter.detach() for parameter in source.parameters()]
        torch._foreach_lerp_(list(target.parameters()), parameters, self.recipe.tau)


class Sac(SeedAgents):
    """Soft actor-critic with a learned temperature."""

    copies = 2
    own_parts = ("sigma", "temperature", "temperature_optimizer")

    def __init__(
        self, recipe: MultiSeedRecipe, seeds: Sequence[int], low: NDArray[Any], high: NDArray[Any], width: int
    ) -> None:
        super().__init__(recipe, seeds, low, high, width)
        actions = len(self.scale)
        self.sigma = SigmaHead(width, actions, self.drawing)
        self.temperature = nn.ParameterDict({"log": torch.zeros(len(self.seeds))})
        self.target_entropy = -float(actions)
        self.actor_optimizer = _adam([*self.actor.parameters(), *self.sigma.parameters()], self.recipe.actor_rate)
        self.temperature_optimizer = _adam(self.temperature.parameters(), self.recipe.critic_rate)

    @torch.no_grad()
    def explore(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """With noise of its own standard deviations."""
        seen = self.normalize_one(observations)
        raw = self.actor(seen) + self.sigma(seen).exp() * self.draw(1)
        return np.asarray(self.squash(raw)[:, 0].numpy())

    def update(self, batch: Batch) -> None:
        """Critics, then the actor on every second batch."""
        seen = self.statistics.normalize(batch.observations)
        with torch.no_grad():
            after = self.statistics.normalize(batch.next_observations)
            actions, log_density = self._sample(after)
            best = self.target_critics(after, actions).amin(1) - self._alpha * log_density
            goal = batch.rewards[..., 0] + self.recipe.gamma * (1 - batch.terminated[..., 0]) * best
        self._learn_values(self.critics(seen, batch.actions), goal[:, None])
        if self.updates % self.recipe.actor_every == 0:
            for _ in range(self.recipe.actor_every):  # as often as the critics, all at once
                self._learn_actions(seen)
        self._update_target(self.target_critics, self.critics)
        self.updates += 1

    @property
    def _alpha(self) -> Tensor:
        log: Tensor = self.temperature["log"]
        return log.detach().exp()[:, None]

    def _learn_actions(self, seen: Tensor) -> None:
        actions, log_density = self._sample(seen)
        best = self.critics(seen, actions, frozen=True).amin(1)
        loss = (self._alpha * log_density - best).mean(1).sum()
        self._learn_actor(loss)
        surplus = (log_density.detach() + self.target_entropy).mean(1)
        self.temperature_optimizer.zero_grad()
        torch.autograd.backward((-self.temperature["log"].exp() * surplus).sum())
        self.temperature_optimizer.step()

    def _sample(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (seeds, n, actions) and their log densities (seeds, n)."""
        mean, log_sigma, noise = self.actor(seen, observe=True), self.sigma(seen), self.draw(seen.shape[1])
        squashed = (mean + log_sigma.exp() * noise).tanh()
        density = -0.5 * noise.square() - log_sigma - 0.5 * np.log(2 * np.pi)
        density = density - (self.scale * (1 - squashed.square()) + 1e-6).log()
        return squashed * self.scale + self.middle, density.sum(2)


class Ddpg(SeedAgents):
    """Deep deterministic policy gradient; the target actor has the actor's scales, and its own moving weights."""

    copies = 1
    own_parts = ("target_actor",)

    def __init__(
        self, recipe: MultiSeedRecipe, seeds: Sequence[int], low: NDArray[Any], high: NDArray[Any], width: int
    ) -> None:
        super().__init__(recipe, seeds, low, high, width)
        self.target_actor = copy.deepcopy(self.actor)
        self.target_actor.layers.requires_grad_(requires_grad=False)
        if isinstance(self.actor, LearnedNet) and isinstance(self.target_actor, LearnedNet):
            self.target_actor.scales = self.actor.scales
        self.actor_optimizer = _adam(self.actor.parameters(), self.recipe.actor_rate)

    @torch.no_grad()
    def explore(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """With noise of one standard deviation, clipped to the action space."""
        actions = self.act(self.normalize_one(observations)) + self.draw(1) * self.scale * self.recipe.exploration
        limited = torch.minimum(torch.maximum(actions, self.middle - self.scale), self.middle + self.scale)
        return np.asarray(limited[:, 0].numpy())

    def update(self, batch: Batch) -> None:
        """Critics, then the actor on every second batch."""
        seen = self.statistics.normalize(batch.observations)
        with torch.no_grad():
            after = self.statistics.normalize(batch.next_observations)
            actions = self.squash(self.target_actor(after))
            value = self.target_critics(after, actions)[:, 0]
            goal = batch.rewards[..., 0] + self.recipe.gamma * (1 - batch.terminated[..., 0]) * value
        self._learn_values(self.critics(seen, batch.actions), goal[:, None])
        if self.updates % self.recipe.actor_every == 0:
            actions = self.squash(self.actor(seen, observe=True))
            self._learn_actor(-self.critics(seen, actions, frozen=True)[:, 0].mean(1).sum())
            self._update_target(self.target_actor.layers, self.actor.layers)
            self._update_target(self.target_critics, self.critics)
        self.updates += 1


AGENTS: dict[str, type[SeedAgents]] = {"sac": Sac, "ddpg": Ddpg}


def _adam(parameters: Any, rate: float) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=rate, fused=True)
