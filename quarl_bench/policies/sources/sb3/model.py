"""Extracting the portable form from a live stable-baselines3 model of any registered algorithm.

The model's modules are read, never copied by name, so that subclasses and other feature widths work; a module this
form cannot express is refused instead of being approximated.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from stable_baselines3.common.vec_env import VecNormalize, unwrap_vec_normalize
from stable_baselines3.dqn.policies import QNetwork
from stable_baselines3.sac.policies import Actor as SACActor
from stable_baselines3.td3.policies import Actor as TD3Actor

from quarl_bench.environments.encoding import encode_actions, encode_observations, list_choices
from quarl_bench.environments.images import is_image_space
from quarl_bench.errors import PolicyError
from quarl_bench.policies.algorithm import ALGORITHMS, Algorithm, find_algorithm, list_readable
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform, Part, normalize_parts
from quarl_bench.policies.policy import PolicyNet, QuantizedPolicy
from quarl_bench.policies.sources.torch_layers import Fork, read_net
from quarl_bench.quantization.training.aware_net import find_path
from quarl_bench.system.registry import load

LIBRARIES = ("torch", "stable_baselines3", "sb3_contrib", "quarl_bench")  # whose classes compute as is known
# Methods on the way from an observation to an action.
COMPUTING = ("forward", "forward_actor", "extract_features", "get_distribution", "get_action_dist_params", "_predict",
             "predict")  # fmt: skip
FROM_ENVIRONMENT: Final = "from the model's environment"


@dataclass(frozen=True, eq=False)
class ActingNetwork:
    """The modules from observation to outputs, in order, and the head of continuous actions behind them."""

    modules: tuple[torch.nn.Module, ...]
    head: HeadKind
    mean_limit: float | None = None


def extract(model: BaseAlgorithm, normalization: Normalization | str | None = FROM_ENVIRONMENT) -> PolicyNet:
    """The deterministic policy of `model`, equal to `model.predict(observation, deterministic=True)`.

    Observation statistics are read from the VecNormalize around the model's environment. A model without an
    environment cannot tell whether it was trained on normalized observations: pass its `normalization`, or None for
    raw observations. Raises PolicyError for anything that has no portable form.
    """
    space = encode_observations(model.observation_space)
    if not isinstance(space, spaces.Box):
        raise PolicyError(f"observation space {space} has no flat form; encode it before the policy")
    scaled = bool(model.policy.normalize_images)
    parts = _list_parts(model.observation_space, scaled=scaled)
    if normalization == FROM_ENVIRONMENT:
        normalization = _statistics_of(model)
    elif normalization is not None and any(part.pixels for part in parts):
        raise PolicyError("statistics beside an image among the observation's parts; give the model its environment")
    if isinstance(normalization, str):
        raise PolicyError(f"normalization={normalization!r} is neither statistics nor None")
    normalization = normalize_parts(parts) if normalization is None else normalization
    modules, head = _split(model)
    _refuse_overrides(model)
    image = scaled and is_image_space(space)
    transform = ObservationTransform(tuple(map(int, space.shape)), image, normalization)
    return PolicyNet(transform, read_net(transform.input_shape, modules), head)


def _refuse_overrides(model: BaseAlgorithm) -> None:
    """PolicyError where a class of a user's computes otherwise than the library's that it is derived from."""
    for module in model.policy.modules():
        for made in type(module).__mro__:
            if made.__module__.partition(".")[0] in LIBRARIES:
                break
            if own := [name for name in COMPUTING if name in vars(made)]:
                raise PolicyError(
                    f"{made.__name__} has {own[0]}() of its own, which its modules do not say; export the network to "
                    ".onnx"
                )


def install(policy: PolicyNet, model: DQN) -> None:
    """Give a fresh `model` and its target the weights of `policy`: the inverse of `extract`.

    A policy of DQN is its whole value function. PolicyError where the model has other layers.
    """
    network: Any = model.policy
    sources = [tensor for pair in policy.net.tensors for tensor in pair]
    targets = list(network.q_net.parameters())
    if [tensor.shape for tensor in sources] != [tensor.shape for tensor in targets]:
        raise PolicyError("the policy's layers are not those of the model; they belong to another recipe")
    with torch.no_grad():
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)
    network.q_net_target.load_state_dict(network.q_net.state_dict())


def extract_quantized(model: BaseAlgorithm) -> QuantizedPolicy:
    """The policy of a model trained with quantizers in place: the integers that its frozen forward computes with."""
    policy = extract(model)
    modules, _ = _split(model)
    return QuantizedPolicy(policy.transform, find_path([*modules]).export(policy.net), policy.head)


def read_normalization(environment: VecNormalize, *, scaled: bool = True) -> Normalization | None:
    """The statistics of a VecNormalize; None when it does not normalize observations.

    Where it leaves the images of a Dict as they are, their pixels are `scaled` beside it.
    """
    if not environment.norm_obs:
        return None
    space: Any = environment.observation_space
    statistics = environment.obs_rms
    if not isinstance(statistics, dict):
        return _read_one(environment, statistics)
    if images := [name for name in statistics if _was_image(space[name], float(environment.clip_obs))]:
        raise PolicyError(
            f"a VecNormalize of the image {images[0][:80]!r} has no portable form; leave it out of its keys"
        )
    found = {name: _read_one(environment, one) for name, one in statistics.items()}
    return normalize_parts(_list_parts(space, scaled=scaled), found)


def _was_image(space: spaces.Box, clip: float) -> bool:
    """Whether a VecNormalize has put its own bounds in the place of pixels, in whichever order the channels are."""
    return len(space.shape) == 3 and bool((space.low == -clip).all() and (space.high == clip).all())


def _read_one(environment: VecNormalize, statistics: Any) -> Normalization:
    return Normalization(
        np.asarray(statistics.mean, dtype=np.float64),
        np.asarray(statistics.var, dtype=np.float64),
        float(environment.clip_obs),
        float(environment.epsilon),
    )


def _statistics_of(model: BaseAlgorithm) -> Normalization | None:
    environment = model.get_env()
    if environment is None:
        raise PolicyError(
            "the model has no environment, so its observation statistics are unknown: pass normalization=Normalization("
            "mean, variance, clip, epsilon), or if it was trained on raw observations normalization=None; in "
            'assert_quantizable also the path of a saved VecNormalize, or "none"'
        )
    wrapper = unwrap_vec_normalize(environment)
    return None if wrapper is None else read_normalization(wrapper, scaled=bool(model.policy.normalize_images))


def find_for(model: BaseAlgorithm) -> Algorithm:
    """The algorithm of a live model, a subclass being what it is derived from; PolicyError where it is none's."""
    for made in type(model).__mro__:
        if (found := next((one for one in list_readable() if one.is_model(made)), None)) is not None:
            return found
    if isinstance(model, OnPolicyAlgorithm):  # of whichever name: its policy is read as theirs
        return find_algorithm("a2c")
    raise PolicyError(f"{type(model).__name__} is not one of {', '.join(name.upper() for name in ALGORITHMS)}")


def name_algorithm(model: BaseAlgorithm) -> str:
    """What a live model is called: its algorithm, or after its class where that is its own."""
    found = next((one for one in list_readable() if one.is_model(type(model))), None)
    return type(model).__name__.lower() if found is None else found.name


def read_network(algorithm: Algorithm, network: Any) -> ActingNetwork:
    """What an algorithm's acting network, or a target of it, is made of."""
    found: ActingNetwork = load(algorithm.network)(network)
    return replace(found, modules=tuple(_flatten(found.modules)))


def read_actor_critic(network: Any) -> ActingNetwork:
    """Of a policy with an actor and a value head."""
    _require(network, ActorCriticPolicy)
    shared = network.share_features_extractor
    extractor = network.features_extractor if shared else network.pi_features_extractor
    modules = (extractor, network.mlp_extractor.policy_net, network.action_net)
    return ActingNetwork(modules, HeadKind.TANH if network.squash_output else HeadKind.CLIP)


def read_recurrent_actor(network: Any) -> ActingNetwork:
    """Of an actor-critic of sb3-contrib with an LSTM behind its features."""
    found = read_actor_critic(network)
    extractor, *rest = found.modules
    return replace(found, modules=(extractor, network.lstm_actor, *rest))


def read_masked_actor(network: Any) -> ActingNetwork:
    """Of an actor-critic of sb3-contrib whose actions may be masked."""
    parts = _require_parts(network, "pi_features_extractor", "mlp_extractor", "action_net")
    return ActingNetwork((parts.pi_features_extractor, parts.mlp_extractor.policy_net, parts.action_net), HeadKind.CLIP)


def read_q_network(network: Any) -> ActingNetwork:
    """Of a network of values, one an action."""
    _require(network, QNetwork)
    return ActingNetwork((network.features_extractor, network.q_net), HeadKind.CLIP)


def read_quantiles(network: Any) -> ActingNetwork:
    """Of a network of quantiles, several an action, whose mean is the action's value."""
    *hidden, last = _require_parts(network, "quantile_net", "n_quantiles").quantile_net
    mean = torch.nn.Linear(last.in_features, last.out_features // network.n_quantiles)
    with torch.no_grad():
        for name, part in mean.named_parameters():
            part.copy_(getattr(last, name).unflatten(0, (network.n_quantiles, -1)).mean(dim=0))
    return ActingNetwork((network.features_extractor, *hidden, mean), HeadKind.CLIP)


def read_searched(network: Any) -> ActingNetwork:
    """Of a policy of random search, whose continuous actions are squashed or clipped."""
    *layers, last = _require_parts(network, "action_net").action_net
    if isinstance(last, torch.nn.Tanh):
        return ActingNetwork((network.features_extractor, *layers), HeadKind.TANH)
    return ActingNetwork((network.features_extractor, *layers, last), HeadKind.CLIP)


def read_actor(network: Any) -> ActingNetwork:
    """Of a deterministic actor."""
    _require(network, TD3Actor)
    *layers, squash = network.mu
    if not isinstance(squash, torch.nn.Tanh):
        raise PolicyError(f"the actor ends in {squash}, not in a Tanh; use squash_output=True")
    return ActingNetwork((network.features_extractor, *layers), HeadKind.TANH)


def read_sac_actor(network: Any) -> ActingNetwork:
    """Of an actor with a mean, which may be clipped, before the tanh."""
    _require(network, SACActor)
    return read_contrib_actor(network)


def read_contrib_actor(network: Any) -> ActingNetwork:
    """Of the actors of sb3-contrib that are made as SAC's is."""
    _require_parts(network, "latent_pi", "mu")
    *mean, last = network.mu if isinstance(network.mu, torch.nn.Sequential) else (network.mu, None)
    limit = last.max_val if isinstance(last, torch.nn.Hardtanh) else None
    return ActingNetwork((network.features_extractor, network.latent_pi, *mean), HeadKind.TANH, limit)


def _require(network: Any, kind: type) -> None:
    if not isinstance(network, kind):
        raise PolicyError(f"{type(network).__name__} is no {kind.__name__}, whose modules are known")


def _require_parts(network: Any, *names: str) -> Any:
    missing = [name for name in names if not hasattr(network, name)]
    if missing:
        raise PolicyError(f"{type(network).__name__} has no {missing[0]}; only sb3-contrib's own policies are known")
    return network


def _split(model: BaseAlgorithm) -> tuple[tuple[torch.nn.Module, ...], ActionHead]:
    """The modules on the way from observation to outputs, and the head behind them."""
    algorithm = find_for(model)
    found = read_network(algorithm, algorithm.list_networks(model.policy)[0])
    return found.modules, _head(model.action_space, algorithm, found)


def _head(own: Any, algorithm: Algorithm, found: ActingNetwork) -> ActionHead:
    space = encode_actions(own)
    if isinstance(space, spaces.Box):
        low, high = (bound.astype(np.float32) for bound in (space.low, space.high))
        return ActionHead(found.head, low, high, found.mean_limit)
    choices = list_choices(space)
    if choices is None:
        raise PolicyError(f"action space {space} has no portable form; use Discrete, MultiDiscrete, MultiBinary or Box")
    if np.any(getattr(own, "start", 0)):
        raise PolicyError(f"action space {own}: stable-baselines3 counts actions from 0 alone")
    if isinstance(space, spaces.Discrete):
        return ActionHead(HeadKind.ARGMAX, masked=algorithm.masked)
    if isinstance(space, spaces.MultiBinary) and not algorithm.masked:  # whose bits have two logits
        return ActionHead(HeadKind.BITS)
    return ActionHead(HeadKind.PARTS, sizes=choices, masked=algorithm.masked)


def _flatten(modules: Iterable[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    for module in modules:
        if isinstance(module, torch.nn.Sequential):
            yield from _flatten(module)
        elif isinstance(module, NatureCNN):
            yield from _flatten((module.cnn, module.linear))
        elif isinstance(module, FlattenExtractor):
            yield from _flatten((module.flatten,))
        elif isinstance(module, CombinedExtractor):
            yield _flatten_parts(module)
        else:
            yield module


def _flatten_parts(extractor: CombinedExtractor) -> torch.nn.Module:
    """A fork, or of a Dict of vectors nothing but their order, which is that of its flat form."""
    if type(extractor).forward is not CombinedExtractor.forward:
        raise PolicyError(
            f"{type(extractor).__name__} puts its parts together in a way of its own; use CombinedExtractor"
        )
    space: Any = extractor._observation_space  # noqa: SLF001 (its name for what its parts are of)
    parts = []
    for name, own in extractor.extractors.items():
        modules = () if isinstance(own, torch.nn.Flatten) else tuple(_flatten((own,)))
        parts.append(
            (tuple(map(int, space[name].shape)) if modules else (get_flattened_obs_dim(space[name]),), modules)
        )
    return Fork(parts) if any(modules for _, modules in parts) else torch.nn.Flatten()


def _list_parts(space: spaces.Space[Any], *, scaled: bool) -> tuple[Part, ...]:
    """The parts of a Dict, none of another space; pixels are `scaled` unless the model is told not to."""
    return tuple(
        Part(
            name,
            tuple(map(int, part.shape)) if isinstance(part, spaces.Box) else (get_flattened_obs_dim(part),),
            pixels=scaled and is_image_space(part),
            bounded=not isinstance(part, spaces.Box),
        )
        for name, part in (space.items() if isinstance(space, spaces.Dict) else ())
    )
