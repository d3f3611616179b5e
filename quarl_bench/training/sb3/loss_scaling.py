"""Dynamic loss scaling for fp16 that stable-baselines3's algorithms need not know of.

Gradients of fp16 tensors underflow below 6e-8. Where hidden layers hand on fp32, the gradient that comes back is
multiplied by a scale; the parameters' gradients, which are fp32, are divided by it before anybody sees them. So heads
and clipping work on true gradients, and all that is left is the step: the optimizer skips one whose gradients are not
finite. The rule is that of torch's GradScaler (Micikevicius et al., 2018): then halve, and double after many good ones.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Adam, Optimizer, RMSprop

from quarl_bench.errors import QuarlError

INITIAL_SCALE = 2.0**16
GROWTH_INTERVAL = 2000  # good steps before the scale is doubled
SMALLEST_SCALE = 2.0**-14  # a scale that small makes gradients vanish: what is not finite is the forward pass


class LossScale:
    """The present scale, and for how many steps it has been good."""

    def __init__(self) -> None:
        self.value, self.good = INITIAL_SCALE, 0

    def leave(self, features: torch.Tensor) -> torch.Tensor:
        """`features` behind half-precision layers; their gradient is multiplied by the scale on its way back."""
        return self._hook(features.view_as(features), lambda gradient: gradient * self.value)

    def enter(self, tensor: torch.Tensor) -> torch.Tensor:
        """An input, or a parameter, of half-precision layers; its gradient is what it would be without a scale."""
        return self._hook(tensor if tensor.is_leaf else tensor.view_as(tensor), lambda gradient: gradient / self.value)

    @staticmethod
    def _hook(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        if tensor.requires_grad:
            tensor.register_hook(change)  # type: ignore[no-untyped-call]
        return tensor

    def adapt(self, *, finite: bool) -> None:
        """Adapt the scale; QuarlError when smaller scales do not help."""
        if finite:
            self.good += 1
            if self.good >= GROWTH_INTERVAL:
                self.value, self.good = 2 * self.value, 0
            return
        self.value, self.good = self.value / 2, 0
        if self.value < SMALLEST_SCALE:
            raise QuarlError("training in fp16 overflows in its forward pass; train with --precision bf16")


class ScaledOptimizer(Optimizer):
    """Skips steps whose gradients are not finite; mixed into an optimizer. Its `scale` is saved with its state."""

    scale: LossScale

    def step(self, closure: Any = None) -> Any:
        """One step of the optimizer, or none."""
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        finite = bool(torch.stack([gradient.isfinite().all() for gradient in gradients]).all())
        self.scale.adapt(finite=finite)
        return super().step(closure) if finite else None

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state with the loss scale and its counters beside it, as a checkpoint keeps them."""
        return super().state_dict() | {"loss_scale": vars(self.scale).copy()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the loss scale and the optimizer's state that `state_dict` gave."""
        state = dict(state_dict)
        vars(self.scale).update(state.pop("loss_scale"))
        super().load_state_dict(state)


class ScaledAdam(ScaledOptimizer, Adam):
    """Adam with loss scaling, for DQN and PPO."""


class ScaledRMSprop(ScaledOptimizer, RMSprop):
    """RMSprop with loss scaling, for A2C."""


OPTIMIZERS: dict[type[Optimizer], Callable[[Any], ScaledOptimizer]] = {Adam: ScaledAdam, RMSprop: ScaledRMSprop}


def scale_optimizer(optimizer: Optimizer) -> ScaledOptimizer:
    """A fresh optimizer of the same parameters and settings that skips steps; QuarlError for an unknown kind."""
    if type(optimizer) not in OPTIMIZERS:
        raise QuarlError(f"{type(optimizer).__name__} is not trained in fp16; known are Adam and RMSprop")
    return OPTIMIZERS[type(optimizer)](optimizer.param_groups)
