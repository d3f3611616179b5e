"""The algorithms that the learner runs on what other policies did, in full precision or under bf16 autocast."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import smooth_l1_loss

from quarl_bench.actorq.acting.task import ActorTask
from quarl_bench.actorq.learning.device import open_device, wait
from quarl_bench.actorq.learning.losses import (
    average,
    find_cross_entropy,
    find_double_q_targets,
    find_v_trace,
    find_value_loss,
    make_atoms,
    project,
)
from quarl_bench.actorq.learning.replay import Transitions
from quarl_bench.actorq.settings import RunSettings
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.agreement import ACTION_TOLERANCE
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Floats, Linear, Net

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
D4PG_GRADIENT_LIMIT = 40.0  # norm, as Acme's D4PG
DQN_GRADIENT_LIMIT = 10.0  # norm, as stable-baselines3's DQN
TINY = 1e-8
A2C_GRADIENT_LIMIT = 0.5  # norm, as stable-baselines3's A2C
CLOSE = 2 * ACTION_TOLERANCE  # by how much actions of [-1, 1] may differ that agree
TARGET = "target_"  # before a network's name: the copy that follows it


class Agent(Protocol):
    """A learning algorithm with its networks."""

    updates: int

    def update(self, batch: Transitions) -> None:
        """Take one gradient step of every network on `batch`; target networks are copied when it is time."""

    def export(self) -> PolicyNet:
        """The policy as it is now; its arrays are copies."""

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint needs."""

    def restore(self, state: dict[str, Any]) -> None:
        """Load networks, optimizers and counters that `state` gave into this agent, in place."""


def make_agent(settings: RunSettings, task: ActorTask) -> Agent:
    """The algorithm of `settings` with fresh networks, drawn from its seed."""
    torch.manual_seed(settings.seed)
    return AGENTS[settings.algo](settings, task)


class _BaseAgent:
    """What both share: networks and optimizers by name, export and checkpoints."""

    networks: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Adam]

    def __init__(self, settings: RunSettings, task: ActorTask) -> None:
        self.settings, self.task, self.updates = settings, task, 0
        self.device = open_device(settings.device)

    def export(self) -> PolicyNet:
        """A copy of the policy's weights as a PolicyNet; PolicyError once a weight is not finite."""
        linears = [module for module in self.networks["policy"] if isinstance(module, nn.Linear)]  # type: ignore[attr-defined]
        hidden = [Activation(self.settings.activation)] * (len(linears) - 1)
        layers = [
            Linear(_copy_array(linear.weight), _copy_array(linear.bias), activation)
            for linear, activation in zip(linears, [*hidden, Activation.NONE], strict=True)
        ]
        net = Net(self.task.transform.input_shape, tuple(layers))
        if not all(np.isfinite(layer.weight).all() for layer in layers):
            raise PolicyError("the learner diverged: its weights are not finite; lower the rate")
        return PolicyNet(self.task.transform, net, self.task.head)

    def state(self) -> dict[str, Any]:
        """Parameters, optimizers and the number of updates."""
        parts = self.networks | self.optimizers
        return {name: part.state_dict() for name, part in parts.items()} | {"updates": self.updates}

    def restore(self, state: dict[str, Any]) -> None:
        """Load networks, optimizers and counters that `state` gave into this agent, in place."""
        self.updates = state["updates"]
        for name, part in (self.networks | self.optimizers).items():
            part.load_state_dict(state[name])

    def _transform(self, batch: Transitions) -> tuple[torch.Tensor, torch.Tensor]:
        """What the networks see before and behind each transition."""
        apply = self.task.transform.apply
        return self._place(apply(batch.observations)), self._place(apply(batch.next_observations))

    def _place(self, array: NDArray[Any]) -> torch.Tensor:
        """On the learner's device; on a CPU it is the array's own memory."""
        return torch.from_numpy(array).to(self.device)

    def _read_ends(self, batch: Transitions) -> tuple[torch.Tensor, torch.Tensor]:
        """Rewards and discounts (n,)."""
        return self._place(batch.rewards), self._place(batch.discounts)

    def _finish_update(self) -> None:
        """Count an update, lower the rates, and copy into the target networks when it is time."""
        self.updates += 1
        left = max(1 - self.updates / self.settings.updates, 0.0) if self.settings.decay else 1.0
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.settings.rate * left
        if self.updates % self.settings.target_period == 0:
            for name in [name for name in self.networks if name.startswith(TARGET)]:
                self.networks[name].load_state_dict(self.networks[name.removeprefix(TARGET)].state_dict())
        wait(self.device)

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.learner_precision == "bf16"):
            yield

    def _step(self, name: str, loss: torch.Tensor, limit: float) -> None:
        optimizer = self.optimizers[f"{name}_optimizer"]
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.networks[name].parameters(), limit)
        optimizer.step()


class DqnAgent(_BaseAgent):
    """DQN with double targets and n-step returns."""

    def __init__(self, settings: RunSettings, task: ActorTask) -> None:
        super().__init__(settings, task)
        policy = make_perceptron((task.inputs, *settings.widths, task.outputs), settings.activation).to(self.device)
        self.networks = {"policy": policy, "target_policy": copy.deepcopy(policy)}
        self.optimizers = {"policy_optimizer": _adam(policy, settings.rate)}

    def update(self, batch: Transitions) -> None:
        """One gradient step of the Q-network on a batch of transitions."""
        seen, after = self._transform(batch)
        policy, target = self.networks["policy"], self.networks["target_policy"]
        with self._precision():
            with torch.no_grad():
                ends = self._read_ends(batch)
                goal = find_double_q_targets(*ends, policy(after).float(), target(after).float())
            loss = find_value_loss(policy(seen).float(), self._place(batch.actions), goal)
        self._step("policy", loss, DQN_GRADIENT_LIMIT)
        self._finish_update()


class D4pgAgent(_BaseAgent):
    """D4PG (Barth-Maron et al. 2018): a deterministic policy and a distributional critic, n-step returns."""

    def __init__(self, settings: RunSettings, task: ActorTask) -> None:
        super().__init__(settings, task)
        policy = make_perceptron((task.inputs, *settings.widths, task.outputs), settings.activation)
        critic = make_critic(task.inputs + task.outputs, settings.critic, settings.atoms)
        self.atoms = make_atoms(settings.support, settings.atoms).to(self.device)
        pair: dict[str, nn.Module] = {"policy": policy.to(self.device), "critic": critic.to(self.device)}
        self.networks = pair | {f"target_{name}": copy.deepcopy(network) for name, network in pair.items()}
        self.optimizers = {f"{name}_optimizer": _adam(network, settings.rate) for name, network in pair.items()}

    def update(self, batch: Transitions) -> None:
        """One gradient step of the critic, then one of the policy."""
        seen, after = self._transform(batch)
        nets = self.networks
        with self._precision():
            with torch.no_grad():
                ahead = nets["target_critic"](torch.cat([after, nets["target_policy"](after).tanh()], 1)).float()
                goal = project(ahead.softmax(1), *self._read_ends(batch), self.atoms)
            logits = nets["critic"](torch.cat([seen, self._place(batch.actions)], 1)).float()
        self._step("critic", find_cross_entropy(logits, goal), D4PG_GRADIENT_LIMIT)
        with self._precision(), _frozen(nets["critic"]):
            logits = nets["critic"](torch.cat([seen, nets["policy"](seen).tanh()], 1)).float()
            loss = -average(logits, self.atoms).mean()
            self._step("policy", loss, D4PG_GRADIENT_LIMIT)
        self._finish_update()


class A2cAgent(_BaseAgent):
    """Actor and critic of A2C, corrected by V-trace for actors that are other policies; batches are runs of steps."""

    def __init__(self, settings: RunSettings, task: ActorTask) -> None:
        super().__init__(settings, task)
        policy = make_perceptron((task.inputs, *settings.widths, task.outputs), settings.activation)
        critic = make_perceptron((task.inputs, *settings.critic, 1), settings.activation)
        self.networks = {"policy": policy.to(self.device), "critic": critic.to(self.device)}
        self.optimizers = {f"{name}_optimizer": _adam(net, settings.rate) for name, net in self.networks.items()}

    def update(self, batch: Transitions) -> None:
        """One gradient step of the critic, then one of the policy."""
        seen, after = self._transform(batch)
        # The critic counts in rewards of a whole horizon: values of 100 would take it thousands of steps to reach.
        horizon = 1 / (1 - self.settings.discount)
        with self._precision():
            values, ahead = (horizon * self.networks["critic"](states)[:, 0].float() for states in (seen, after))
            log_probs = self.networks["policy"](seen).float().log_softmax(1)
        taken = log_probs.gather(1, self._place(batch.actions)[:, None])[:, 0]
        ratios = taken.detach() - self._place(batch.log_probs)
        rewards, discounts = self._read_ends(batch)
        goes_on = _find_continued(self._split(seen), self._split(after))
        goals, advantages = find_v_trace(
            self._split(ratios), self._split(rewards), self._split(discounts),
            self._split(values.detach()), self._split(ahead.detach()), goes_on,
        )  # fmt: skip
        advantages = (advantages - advantages.mean()) / (advantages.std() + TINY)
        self._step("critic", smooth_l1_loss(values, goals.flatten()), A2C_GRADIENT_LIMIT)
        entropy = -(log_probs.exp() * log_probs).sum(1)
        gain = advantages.flatten() * taken + self.settings.entropy * entropy
        self._step("policy", -gain.mean(), A2C_GRADIENT_LIMIT)
        self._finish_update()

    def _split(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.view(-1, self.settings.chunk, *rows.shape[1:])


AGENTS: dict[str, Callable[[RunSettings, ActorTask], Agent]] = {
    "dqn": DqnAgent,
    "d4pg": D4pgAgent,
    "a2c": A2cAgent,
}


def make_perceptron(sizes: tuple[int, ...], activation: str) -> nn.Sequential:
    """Linear layers with `activation` between them."""
    modules: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        modules += [nn.Linear(inputs, outputs), ACTIVATIONS[activation]()]
    return nn.Sequential(*modules[:-1])


def make_critic(inputs: int, widths: tuple[int, ...], atoms: int) -> nn.Sequential:
    """Acme's: the first layer normalized and squashed, then ELU."""
    first, *others = widths
    modules: list[nn.Module] = [nn.Linear(inputs, first), nn.LayerNorm(first), nn.Tanh()]
    for size, width in itertools.pairwise([first, *others]):
        modules += [nn.Linear(size, width), nn.ELU()]
    return nn.Sequential(*modules, nn.Linear(widths[-1], atoms))


def _find_continued(seen: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Whether the next step (runs, steps) begins where this one ended; 0 behind an episode, and at the end of a run."""
    same = (seen[:, 1:] == after[:, :-1]).all(2)
    return torch.nn.functional.pad(same, (0, 1)).float()


def _copy_array(parameter: torch.Tensor) -> Floats:
    array: Floats = parameter.detach().cpu().numpy().copy()
    return array


def _adam(network: nn.Module, rate: float) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), lr=rate, fused=True)


@contextlib.contextmanager
def _frozen(network: nn.Module) -> Iterator[None]:
    """Without gradients for the parameters of `network`, which it only passes on."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)


def act_greedily(policy: PolicyNet, observations: Floats) -> NDArray[Any]:
    """Greedy indices (n,), or actions (n, actions) in [-1, 1]."""
    outputs = policy.outputs(observations)
    return outputs.argmax(axis=1) if policy.head.discrete else np.tanh(outputs)
