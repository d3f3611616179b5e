"""Extracting the portable form from a live stable-baselines3 model: A2C, PPO, DQN, DDPG, TD3, SAC.

The model's modules are read, never copied by name, so that subclasses and other feature widths work; a module this
form cannot express is refused instead of being approximated.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN
from stable_baselines3.common.vec_env import VecNormalize, unwrap_vec_normalize
from stable_baselines3.dqn.policies import QNetwork
from stable_baselines3.sac.policies import Actor as SACActor
from stable_baselines3.td3.policies import Actor as TD3Actor

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.images import is_image_space
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet, QuantizedPolicy
from quarl_bench.policies.sources.torch_layers import read_modules
from quarl_bench.quantization.aware_net import find_path
from quarl_bench.quantization.net import Net

FROM_ENVIRONMENT: Final = "from the model's environment"


def extract(model: BaseAlgorithm, normalization: Normalization | str | None = FROM_ENVIRONMENT) -> PolicyNet:
    """The deterministic policy of `model`, equal to `model.predict(observation, deterministic=True)`.

    Observation statistics are read from the VecNormalize around the model's environment. A model without an
    environment cannot tell whether it was trained on normalized observations: pass its `normalization`, or None for
    raw observations. Raises PolicyError for anything that has no portable form.
    """
    space = model.observation_space
    if not isinstance(space, spaces.Box):
        raise PolicyError(f"observation space {space} is not a Box; flatten or encode it before the policy")
    if normalization == FROM_ENVIRONMENT:
        normalization = _statistics_of(model)
    if isinstance(normalization, str):
        raise PolicyError(f"normalization={normalization!r} is neither statistics nor None")
    modules, head = _split(model)
    image = bool(model.policy.normalize_images) and is_image_space(space)
    transform = ObservationTransform(tuple(map(int, space.shape)), image, normalization)
    return PolicyNet(transform, Net(transform.input_shape, tuple(read_modules(modules))), head)


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
    return QuantizedPolicy(policy.transform, find_path(modules).export(policy.net), policy.head)


def read_normalization(environment: VecNormalize) -> Normalization | None:
    """The statistics of a VecNormalize; None when it does not normalize observations."""
    if not environment.norm_obs:
        return None
    statistics = environment.obs_rms
    if isinstance(statistics, dict):
        raise PolicyError("dictionary observations have no portable form")
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
    return None if wrapper is None else read_normalization(wrapper)


def list_modules(network: Any) -> list[torch.nn.Module]:
    """The leaf modules from observation to outputs, in order, of an actor-critic policy, a Q-network or an actor."""
    if isinstance(network, ActorCriticPolicy):
        shared = network.share_features_extractor
        extractor = network.features_extractor if shared else network.pi_features_extractor
        modules = [extractor, network.mlp_extractor.policy_net, network.action_net]
    elif isinstance(network, QNetwork):
        modules = [network.features_extractor, network.q_net]
    elif isinstance(network, TD3Actor):
        *layers, squash = network.mu
        if not isinstance(squash, torch.nn.Tanh):
            raise PolicyError(f"the actor ends in {squash}, not in a Tanh; use squash_output=True")
        modules = [network.features_extractor, *layers]
    elif isinstance(network, SACActor):
        mean: list[torch.nn.Module] = (
            [*network.mu][:-1] if isinstance(network.mu, torch.nn.Sequential) else [network.mu]
        )
        modules = [network.features_extractor, network.latent_pi, *mean]
    else:
        raise PolicyError(f"{type(network).__name__} is not a network of A2C, PPO, DQN, DDPG, TD3 or SAC")
    return list(_flatten(modules))


def _split(model: BaseAlgorithm) -> tuple[list[torch.nn.Module], ActionHead]:
    """The modules on the way from observation to outputs, and the head behind them."""
    policy: Any = model.policy
    if isinstance(model, OnPolicyAlgorithm):
        return list_modules(policy), _head(model, HeadKind.TANH if policy.squash_output else HeadKind.CLIP)
    if isinstance(model, DQN):
        return list_modules(policy.q_net), _head(model, HeadKind.CLIP)
    if isinstance(model, TD3):  # and DDPG, its subclass
        return list_modules(policy.actor), _head(model, HeadKind.TANH)
    if isinstance(model, SAC):
        limit = policy.actor.mu[-1] if isinstance(policy.actor.mu, torch.nn.Sequential) else None
        bound = limit.max_val if isinstance(limit, torch.nn.Hardtanh) else None
        return list_modules(policy.actor), _head(model, HeadKind.TANH, bound)
    raise PolicyError(f"{type(model).__name__} is not one of A2C, PPO, DQN, DDPG, TD3, SAC")


def _head(model: BaseAlgorithm, continuous: HeadKind, mean_limit: float | None = None) -> ActionHead:
    space = model.action_space
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise PolicyError(f"action space {space} starts at {space.start}; only actions from 0 have a portable form")
        return ActionHead(HeadKind.ARGMAX)
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise PolicyError(f"action space {space} has no portable form; use Discrete or a one-dimensional Box")
    return ActionHead(continuous, space.low.astype(np.float32), space.high.astype(np.float32), mean_limit)


def _flatten(modules: Iterable[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    for module in modules:
        if isinstance(module, torch.nn.Sequential):
            yield from _flatten(module)
        elif isinstance(module, NatureCNN):
            yield from _flatten((module.cnn, module.linear))
        elif isinstance(module, FlattenExtractor):
            yield from _flatten((module.flatten,))
        else:
            yield module
