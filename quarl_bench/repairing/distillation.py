"""Distillation: a rounded policy learns to decide as fp32 does, in the states that it visits itself.

No reward is looked at. As DAgger does (Ross et al. 2011), the rounded policy plays, fp32 says what it would have done
in every state that came up, and all states so far are trained on, with the quantizers of quantization-aware training in
place. Held-out states, on validation seeds, say when to stop; test seeds are never played.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from quarl_bench.checking.subject import Subject
from quarl_bench.evaluation.protocol import VALIDATION_SEEDS, list_validation_seeds
from quarl_bench.policies.algorithm import is_actor_critic
from quarl_bench.policies.masks import add_masks, drop_masks, read_masks
from quarl_bench.policies.policy import IntegerPolicy, Observations, PolicyNet
from quarl_bench.quantization.activations import Activation, make_module
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Floats, Net
from quarl_bench.quantization.parameters import BIAS_LIMIT
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.quantization.training.aware_net import AwarePath, find_path, make_aware
from quarl_bench.repairing.candidate import STATES, Candidate, compare_decisions, visit
from quarl_bench.repairing.imitation import Loss, name_outputs
from quarl_bench.repairing.journal import NOTHING, Journal
from quarl_bench.repairing.ladder import DISTILLED
from quarl_bench.repairing.search import list_best, list_rounds
from quarl_bench.repairing.workbench import Attempt, Workbench

SEEDS = 40_000  # first environment seed of what is visited for training; a thousand for each round
FORMS = 2  # that are distilled
VISITED = 2_000  # states that a round adds; of images a quarter
STEPS, BATCH = 1_000, 256  # of a round; a quarter of either for images
LEARNING_RATE, FASTEST = 0.03, 0.01  # of Adam: steps of a layer's weights, but at most a share of their size
PATIENCE = 2  # rounds without a better loss, after which the learning rate is halved
HALVINGS = 4  # after so many it ends
LONGEST = 60  # rounds
SHORTEST = 20.0  # seconds, below which it is not begun
BEST = "best"  # under which the journal has the numbers of least loss
SHARE = 0.85  # of the time that is left is for training, the rest for play


@dataclass(frozen=True, eq=False)
class Distilled:
    """What was learnt: the policy of least regret (loss, for numbers) in held-out states, and how it went."""

    policy: IntegerPolicy
    losses: tuple[float, ...]  # in held-out states, before the first round and behind each
    cut: bool  # whether time ran out before it stopped by itself


def distill_best(bench: Workbench, attempts: Sequence[Attempt], seconds: float) -> tuple[Attempt, ...]:
    """The forms that play and decide best, distilled within `seconds` and played on validation seeds."""
    schemes = list_best(attempts)[:FORMS]
    seeds = list_validation_seeds(list_rounds(bench.subject)[-1].episodes)
    start, found = time.monotonic(), []
    for index, scheme in enumerate(schemes):
        begin = time.monotonic()
        deadline = begin + (SHARE * seconds - (begin - start)) / (len(schemes) - index)
        make = partial(learn, bench.subject, scheme, bench.seed, deadline, bench.journal)
        candidate = Candidate(scheme, bench.journal.recall(f"{scheme.name}+{DISTILLED}", make), (DISTILLED,))
        found.append(bench.play(bench.compare(candidate, DISTILLED, begin), seeds))
    return tuple(found)


def learn(subject: Subject, scheme: Scheme, seed: int, deadline: float, journal: Journal) -> IntegerPolicy:
    """The integers of `distill` alone."""
    return distill(subject, scheme, seed, deadline, journal).policy


def distill(subject: Subject, scheme: Scheme, seed: int, deadline: float, journal: Journal = NOTHING) -> Distilled:
    """The subject's policy under `scheme`, trained to imitate it until `deadline`, a time of the monotonic clock.

    Deterministic for a seed, unless the deadline cuts it short. Goes on behind the last round that `journal` has.
    """
    student = _Student(subject, scheme, seed)
    losses, best, since, halvings = [student.loss], student.policy, 0, 0
    point, kept = journal.load_point(scheme.name), journal.find(f"{scheme.name}-{BEST}")
    if point is not None and kept is not None:
        student.restore(point["student"])
        losses, since, halvings, best = point["losses"], point["since"], point["halvings"], kept
    else:
        journal.keep(f"{scheme.name}-{BEST}", best)
    for number in range(len(losses) - 1, LONGEST):
        student.learn()
        if student.loss < min(losses):
            best, since = journal.keep(f"{scheme.name}-{BEST}", student.policy), 0
            student.remember()
        else:
            since += 1
        losses.append(student.loss)
        if since == PATIENCE:
            student.slow_down()
            since, halvings = 0, halvings + 1
        if halvings == HALVINGS:
            return Distilled(best, tuple(losses), cut=False)
        if time.monotonic() >= deadline:
            return Distilled(best, tuple(losses), cut=True)
        student.visit(SEEDS + 1000 * number)
        state = {"losses": losses, "since": since, "halvings": halvings, "student": student.describe()}
        journal.save_point(scheme.name, state)
    return Distilled(best, tuple(losses), cut=False)


class _Student:
    """Modules that learn, their integers as they are now, and all that they have seen."""

    def __init__(self, subject: Subject, scheme: Scheme, seed: int) -> None:
        self._teacher: PolicyNet = subject.stored.policy
        self._environment, self._scheme = subject.environment, scheme
        self._form = self._teacher.rewrite(scheme, subject.observations)
        self._few = 4 if self._teacher.transform.image else 1
        self._draws = np.random.default_rng(seed)
        self._modules, self._path = make_modules(self._form.net, scheme)
        self._states = subject.observations
        self._wanted = self._ask(self._states)
        sampled = is_actor_critic(str(subject.stored.metadata.get("algo", "")))
        kind = name_outputs(self._teacher.head, sampled=sampled)
        self._loss = Loss.of(kind, self._teacher.head, self._wanted, _read_masks(self._states))
        self._adopt()
        self._optimizer = torch.optim.Adam(self._group_parameters())
        own = visit(self.policy, self._environment, STATES // self._few, VALIDATION_SEEDS)
        fp32 = visit(self._teacher, self._environment, STATES // self._few, VALIDATION_SEEDS)
        self._held_out = np.concatenate([fp32, own])
        self._answers = self._ask(self._held_out)
        self.loss = self._measure()
        self.remember()

    @property
    def policy(self) -> IntegerPolicy:
        """The integers that the modules stand for now."""
        net = refill(self._quantized, self._read_net())
        return IntegerPolicy(self._form.transform, IntegerNet.from_quantized(net), self._form.head)

    def learn(self) -> None:
        """A round of steps on all states so far, from ranges that are read anew."""
        self._adopt()
        batch, count = BATCH // self._few, len(self._states)
        for _ in range(STEPS // self._few):
            rows = self._draws.integers(count, size=batch)
            states = self._states[rows]
            x = torch.from_numpy(self._form.transform.apply(states))
            loss = self._loss(self._modules(x), self._wanted[torch.from_numpy(rows)], _read_masks(states))
            self._optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            self._optimizer.step()
        self.loss = self._measure()

    def visit(self, first_seed: int) -> None:
        """Play, and remember the states and what the teacher says of them."""
        states = visit(self.policy, self._environment, VISITED // self._few, first_seed)
        self._states = np.concatenate([self._states, states])
        self._wanted = torch.cat([self._wanted, self._ask(states)])

    def remember(self) -> None:
        """Keep the numbers as they are, for `slow_down`."""
        self._kept = {name: tensor.clone() for name, tensor in self._modules.state_dict().items()}

    def describe(self) -> dict[str, Any]:
        """All that has been learnt and seen, as tensors, numbers and text."""
        return {
            "modules": self._modules.state_dict(),
            "kept": self._kept,
            "optimizer": self._optimizer.state_dict(),
            "draws": json.dumps(self._draws.bit_generator.state),
            "states": torch.from_numpy(drop_masks(self._states)),
            "masks": _read_masks(self._states),
            "wanted": self._wanted,
            "loss": self.loss,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `describe` was asked."""
        self._modules.load_state_dict(state["modules"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._draws.bit_generator.state = json.loads(state["draws"])
        self._kept, self._states, self._wanted = state["kept"], state["states"].numpy(), state["wanted"]
        if state["masks"] is not None:
            self._states = add_masks(self._states, state["masks"].numpy())
        self.loss = state["loss"]

    def slow_down(self) -> None:
        """Go back to what was remembered, and halve the learning rate."""
        self._modules.load_state_dict(self._kept)
        for group in self._optimizer.param_groups:
            group["lr"] /= 2

    def _group_parameters(self) -> list[dict[str, Any]]:
        """Every tensor with a learning rate that suits its size and its layer's bits."""
        groups: list[dict[str, Any]] = []
        for (affine, _), layer in zip(self._path.steps, self._quantized.layers, strict=True):
            sizes = [float(tensor.detach().square().mean().sqrt()) for tensor in (affine.weight, affine.bias)]
            share = LEARNING_RATE * float(layer.weight_scale.mean()) / sizes[0] if sizes[0] else FASTEST
            rates = [min(share, FASTEST) * size for size in sizes]
            groups += [{"params": [affine.weight], "lr": rates[0]}, {"params": [affine.bias], "lr": rates[1]}]
        return groups

    def _adopt(self) -> None:
        """Take scales from the weights as they are and the newest states."""
        recent = self._states[-10_000 // self._few :]
        # The form is rewritten already.
        plain = replace(self._scheme, equalized_layers=False, equalized_inputs=False, absorbed_biases=False)
        quantized = quantize_net(self._read_net(), plain, self._form.transform.apply(recent))
        assert isinstance(quantized, QuantizedNet)  # noqa: S101 (int<n>)
        self._quantized = quantized
        self._path.adopt(quantized)

    def _read_net(self) -> Net:
        layers = tuple(
            replace(layer, weight=affine.weight.detach().numpy().copy(), bias=affine.bias.detach().numpy().copy())
            for layer, (affine, _) in zip(self._form.net.layers, self._path.steps, strict=True)
        )
        return Net(self._form.net.input_shape, layers)

    def _measure(self) -> float:
        """Regret where actions are indices, as that is what a loss of outputs stands for; else the loss."""
        if self._teacher.head.discrete:
            return compare_decisions(self._teacher, self.policy, self._held_out, self._answers.numpy())[1]
        outputs = torch.from_numpy(np.asarray(self.policy.outputs(self._held_out), dtype=np.float32))
        return float(self._loss(outputs, self._answers))

    def _ask(self, states: Observations) -> torch.Tensor:
        parts = [self._teacher.outputs(states[i : i + 1024]) for i in range(0, len(states), 1024)]
        return torch.from_numpy(np.concatenate(parts).astype(np.float32))


def _read_masks(states: Observations) -> torch.Tensor | None:
    """Masks of states (n, choices), if they have some."""
    masks = read_masks(states)
    return None if masks is None else torch.from_numpy(np.ascontiguousarray(masks))


def make_modules(net: Net, scheme: Scheme) -> tuple[nn.Sequential, AwarePath]:
    """Modules that learn what `net` computes, with the quantizers of `scheme` in place."""
    leaves: list[nn.Module] = []
    for layer in net.layers:
        outputs, inputs, *kernel = layer.weight.shape
        if not isinstance(layer, Conv2d):
            leaves.append(nn.Flatten())
        affine = (
            nn.Conv2d(inputs, outputs, (kernel[0], kernel[1]), layer.stride)
            if isinstance(layer, Conv2d)
            else nn.Linear(inputs, outputs)
        )
        with torch.no_grad():
            affine.weight.copy_(torch.from_numpy(layer.weight))
            affine.bias.copy_(torch.from_numpy(layer.bias))  # type: ignore[union-attr]
        leaves.append(affine)
        if layer.activation is not Activation.NONE:
            leaves.append(make_module(layer.activation))
    modules = nn.Sequential(*leaves)
    make_aware(modules, leaves, scheme)
    return modules, find_path(list(modules))


def refill(quantized: QuantizedNet, net: Net) -> QuantizedNet:
    """The scales of `quantized` with the weights and biases of `net`."""
    layers, source = [], quantized.input
    for layer, floats in zip(quantized.layers, net.layers, strict=True):
        scale: Floats = layer.weight_scale.reshape((-1,) + (1,) * (layer.weight.ndim - 1))
        integers = layer.weight_format
        weight = np.clip(np.rint(floats.weight / scale), integers.minimum, integers.maximum).astype(np.int8)
        step = (source.scale * layer.weight_scale).astype(np.float64)
        bias = np.clip(np.rint(floats.bias / step), -BIAS_LIMIT, BIAS_LIMIT).astype(np.int32)
        layers.append(replace(layer, weight=weight, bias=bias))
        source = layer.result
    return QuantizedNet(quantized.input_shape, quantized.input, tuple(layers))
