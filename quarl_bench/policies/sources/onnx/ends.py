"""A chain of layers read from an ONNX graph, between the spaces of the environment that it is to play in."""

from dataclasses import replace

import numpy as np
from gymnasium import spaces

from quarl_bench.environments.images import is_channels_first, is_image_space
from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.choices import KNOWN_ACTIONS, find_last, read_choices
from quarl_bench.policies.sources.onnx.chain import Chain
from quarl_bench.policies.sources.torch_module import PIXELS, read_shape
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Layer, Net

MEANS = "means"  # what a user says of outputs that are means and, behind them, as many SDs


def adopt_chain(
    chain: Chain,
    observations: spaces.Space[object],
    actions: spaces.Space[object],
    statistics: Normalization | None,
    where: str,
    *,
    means: bool = False,
    masked: bool = False,
) -> PolicyNet:
    """The policy whose actions are the graph's outputs; PolicyError where they do not fit the spaces.

    `statistics` normalize observations in front of a graph that does not do it itself. Of `means` the first half of the
    outputs is taken. `masked` where the environment says which actions it allows.
    """
    shape = read_shape(observations, where)
    image = is_image_space(observations)
    _check_turn(chain, observations, where)
    layers, normalization = list(chain.layers), chain.normalization or statistics
    if chain.normalization is not None and statistics is not None:
        raise PolicyError(f"{where}: normalizes observations itself; leave normalization out")
    if image:
        if normalization is not None:
            raise PolicyError(f"{where}: normalizes images by more than a factor, which has no portable form")
        layers[0] = replace(layers[0], weight=layers[0].weight * np.float32(PIXELS))  # pixels come divided by 255
    if normalization is not None:
        normalization = _spread(normalization, shape, where)
    transform = ObservationTransform(shape, image, normalization)
    if means:
        layers[-1] = _take_first_half(layers[-1], where)
    net = Net(transform.input_shape, tuple(layers), chain.cells)
    choices = read_choices(actions, net.outputs, where, masked=masked)
    head, last = (
        _choose_head(chain, net, actions, where) if choices is None else _take_choices(chain, net, choices, where)
    )
    return PolicyNet(transform, replace(net, layers=(*layers[:-1], last)), head)


def _check_turn(chain: Chain, observations: spaces.Space[object], where: str) -> None:
    """PolicyError where the graph puts channels first that stand so already, or leaves last ones where they are.

    A graph may say that it reads images turned: what it is given is then not what the environment shows.
    """
    if not isinstance(observations, spaces.Box) or not is_image_space(observations):
        last = said = False
    else:
        last, (channels, *rest) = not is_channels_first(observations), observations.shape
        said = chain.shape == (*rest, channels) != observations.shape
    if chain.turned and not (last or said):
        raise PolicyError(f"{where}: puts the channels of images first, and observations are {observations}")
    if last and not chain.turned and chain.shape == observations.shape:
        raise PolicyError(f"{where}: reads images with channels last; let a Transpose put them first, or export it so")


def _choose_head(chain: Chain, net: Net, actions: spaces.Space[object], where: str) -> tuple[ActionHead, Layer]:
    """How the net's outputs become actions, and the last layer without what the head does."""
    last = net.layers[-1]
    if not isinstance(actions, spaces.Box) or len(actions.shape) != 1 or actions.dtype.kind != "f" or chain.indices:
        raise PolicyError(f"{where}: actions {actions} have no portable form; {KNOWN_ACTIONS} of one axis")
    width = actions.shape[0]
    if net.outputs == 2 * width:
        raise PolicyError(
            f"{where}: {net.outputs} outputs for {width} actions; if they are means and, behind them, SDs, pass "
            f"--arch {MEANS}"
        )
    low, high = actions.low.astype(np.float32), actions.high.astype(np.float32)
    if chain.bounds is not None:
        low, high = np.maximum(low, np.float32(chain.bounds[0])), np.minimum(high, np.float32(chain.bounds[1]))
    unit = bool((low == -1).all() and (high == 1).all())
    if last.activation is Activation.TANH and unit:
        return ActionHead(HeadKind.TANH, low, high), replace(last, activation=Activation.NONE)
    return ActionHead(HeadKind.CLIP, low, high), last


def _take_choices(chain: Chain, net: Net, head: ActionHead, where: str) -> tuple[ActionHead, Layer]:
    """The same where actions are indices."""
    last = net.layers[-1]
    if last.activation not in (Activation.NONE, find_last(head)) or chain.bounds is not None:
        raise PolicyError(f"{where}: its outputs are no logits or values, one for each action; end it in a layer")
    if chain.indices and not head.single:
        raise PolicyError(f"{where}: ends in one choice among all outputs, and actions are several; end it in a layer")
    return head, replace(last, activation=Activation.NONE)


def _spread(statistics: Normalization, shape: tuple[int, ...], where: str) -> Normalization:
    """Statistics of every feature, of one number for all or one for each."""
    if statistics.mean.size not in (1, int(np.prod(shape))):
        raise PolicyError(
            f"{where}: normalizes {statistics.mean.size} features, and its environment has observations of {shape}"
        )
    mean, variance = (
        np.broadcast_to(array.reshape(-1), int(np.prod(shape))).reshape(shape).copy()
        for array in (statistics.mean, statistics.variance)
    )
    return replace(statistics, mean=mean, variance=variance)


def _take_first_half(layer: Layer, where: str) -> Layer:
    half, odd = divmod(len(layer.bias), 2)
    if odd:
        raise PolicyError(f"{where}: {len(layer.bias)} outputs have no half; leave --arch {MEANS} out")
    return replace(layer, weight=layer.weight[:half], bias=layer.bias[:half])
