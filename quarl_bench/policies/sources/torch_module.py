"""Policies of other frameworks: a torch module, or a state dictionary and the architecture it belongs to.

Neither says what stands around the network: observations are taken as the environment gives them unless statistics are
passed, and the environment's action space decides what outputs mean.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from gymnasium import spaces

from quarl_bench.environments.images import is_channels_first, is_image_space
from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.choices import KNOWN_ACTIONS, find_last, read_choices
from quarl_bench.policies.sources.sb3.state_dict import Weights, read_affine
from quarl_bench.policies.sources.torch_layers import read_modules
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Floats, Layer, Linear, Net
from quarl_bench.quantization.recurrent.cells import Cell

PRESETS = {  # of CleanRL's single-file agents
    "cleanrl-ppo": "actor.0,tanh,actor.2,tanh,actor.4",
    "cleanrl-ppo-continuous": "actor_mean.0,tanh,actor_mean.2,tanh,actor_mean.4",
    "cleanrl-ppo-atari": "network.0/4,relu,network.2/2,relu,network.4/1,relu,network.7,relu,actor",
    "cleanrl-dqn": "network.0,relu,network.2,relu,network.4",
    "cleanrl-dqn-atari": "network.0/4,relu,network.2/2,relu,network.4/1,relu,network.7,relu,network.9",
    "cleanrl-ddpg": "fc1,relu,fc2,relu,fc_mu,tanh",
    "cleanrl-td3": "fc1,relu,fc2,relu,fc_mu,tanh",
    "cleanrl-sac": "fc1,relu,fc2,relu,fc_mean,tanh",
}
NORMALIZED = ("cleanrl-ppo-continuous",)  # trained on normalized observations, whose statistics the file lacks
STEP = re.compile(r"(\w[\w.]*)(?:/([1-9]\d?))?", re.ASCII)  # a module's name, and a convolution's stride
PROBES, TOLERANCE = 32, 1e-4
MAGNITUDES = (0.1, 1.0, 10.0, 1000.0)  # of probes: what a forward clips shows at some of them
PIXELS = 255.0


def read_architecture(text: str, weights: Weights, where: str) -> tuple[Layer, ...]:
    """The layers that `text`, a preset's name or a chain, picks from a state dictionary.

    A chain names modules and activations in order, separated by commas, a convolution with its stride:
    `conv1/4,relu,fc1,relu,actor`. A `tanh` at its end squashes continuous actions. PolicyError for anything else.
    """
    layers: list[Layer] = []
    for step in PRESETS.get(text, text).split(","):
        if step in list(Activation):
            if not layers or layers[-1].activation is not Activation.NONE:
                raise PolicyError(f"architecture {text!r}: {step!r} does not follow a module; name one before it")
            layers[-1] = replace(layers[-1], activation=Activation(step))
        else:
            layers.append(_read_step(step, text, weights, where))
    return tuple(layers)


def read_chain(
    module: torch.nn.Module, shape: tuple[int, ...], where: str, *, image: bool = False
) -> tuple[Layer, ...]:
    """The layers of a module that is the chain of its leaves, for inputs of `shape`; of an `image`, divided by 255.

    PolicyError when its forward does anything else, which random inputs of several magnitudes tell.
    """
    _check_parameters(module, where)
    every = [part for _, part in module.named_modules(remove_duplicate=False)]  # an activation may stand twice
    layers = tuple(read_modules(part for part in every if not list(part.children())))
    generator = np.random.default_rng(0)
    if image:
        x = generator.integers(0, 256, (PROBES, *shape)).astype(np.float32)
    else:
        probes = [generator.standard_normal((PROBES, *shape)) * magnitude for magnitude in MAGNITUDES]
        x = np.concatenate(probes).astype(np.float32)
    training = {part: part.training for part in module.modules()}
    try:
        with torch.inference_mode():
            expected = module.eval()(torch.from_numpy(x)).numpy()
        net = Net(shape, layers)
        same = _is_close(net.forward(x / np.float32(PIXELS) if image else x), expected)
        undivided = image and _is_close(net.forward(x), expected)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise PolicyError(f"{where}: cannot be called on observations of {shape} ({line}); name its actor") from error
    finally:
        for part, mode in training.items():
            part.training = mode
    if undivided and not same:
        raise PolicyError(f"{where}: its forward takes pixels up to 255; divide them by 255 in it")
    if not same:
        raise PolicyError(f"{where}: its forward is not the chain of its modules in their order; pass an nn.Sequential")
    return layers


def _check_parameters(module: torch.nn.Module, where: str) -> None:
    for parameter in module.parameters():
        if parameter.is_meta or isinstance(parameter, torch.nn.UninitializedParameter):
            raise PolicyError(f"{where}: parameters without values; load them, or call the module once")
        if parameter.dtype != torch.float32:
            raise PolicyError(f"{where}: parameters of {parameter.dtype}; convert it by its method float()")


def _is_close(found: Floats, expected: Floats) -> bool:
    """Equal but for rounding, on the scale of each output's own values."""
    if found.shape != expected.shape:
        return False
    scale = np.abs(expected).max(axis=1, keepdims=True, initial=1.0)
    return bool((np.abs(found - expected) <= TOLERANCE * scale).all())


def adopt(
    layers: Sequence[Layer],
    observations: spaces.Space[object],
    actions: spaces.Space[object],
    normalization: Normalization | None,
    where: str,
    *,
    cells: tuple[Cell, ...] = (),
    masked: bool = False,
) -> PolicyNet:
    """A policy of these layers, `cells` among them, between the environment's spaces; PolicyError when they do not fit.

    `masked` where the environment says which actions it allows.
    """
    shape = read_shape(observations, where)
    transform = ObservationTransform(shape, is_image_space(observations), normalization)
    *hidden, last = layers
    net = Net(transform.input_shape, (*hidden, replace(last, activation=Activation.NONE)), cells)
    head = read_choices(actions, net.outputs, where, masked=masked)
    if last.activation is not Activation.NONE and last.activation is not find_last(head):
        raise PolicyError(f"{where}: outputs behind a {last.activation} are no logits, values or means; leave it out")
    if head is not None:
        return PolicyNet(transform, net, head)
    if not isinstance(actions, spaces.Box) or len(actions.shape) != 1:
        raise PolicyError(f"{where}: actions {actions} have no portable form; {KNOWN_ACTIONS}")
    if actions.dtype.kind != "f":
        raise PolicyError(f"{where}: actions {actions} are whole numbers; use Discrete, or a Box of real ones")
    kind = HeadKind.TANH if last.activation is Activation.TANH else HeadKind.CLIP
    head = ActionHead(kind, actions.low.astype(np.float32), actions.high.astype(np.float32))
    return PolicyNet(transform, net, head)


def read_shape(observations: spaces.Space[object], where: str) -> tuple[int, ...]:
    """Of what a network gets, images channel-first; PolicyError where observations are no Box."""
    if not isinstance(observations, spaces.Box):
        raise PolicyError(f"{where}: observations {observations} have no portable form; flatten them to a Box")
    shape = tuple(map(int, observations.shape))
    last = is_image_space(observations) and not is_channels_first(observations)
    return (shape[2], *shape[:2]) if last else shape


def _read_step(step: str, text: str, weights: Weights, where: str) -> Layer:
    found = STEP.fullmatch(step)
    if found is None:
        raise PolicyError(f"architecture {text!r}: {step!r} is no module and no activation; as in fc1,relu,fc2")
    name, stride = found[1], found[2]
    if f"{name}.weight" not in weights:
        there = ", ".join(sorted(key.removesuffix(".weight") for key in weights if key.endswith(".weight"))[:12])
        raise PolicyError(f"{where}: no weights of {name!r}, which {text!r} names; there are {there}")
    weight, bias = read_affine(name, weights, where)
    if weight.ndim == 2 and stride is None:
        return Linear(weight, bias)
    if weight.ndim == 4 and stride is not None:
        return Conv2d(weight, bias, int(stride))
    needs = "a stride, as in conv1/4" if weight.ndim == 4 else "no stride"
    raise PolicyError(f"{where}: {name} has weights of shape {weight.shape}, and needs {needs}")
