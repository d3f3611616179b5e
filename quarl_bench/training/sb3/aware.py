"""stable-baselines3's policies with quantizers in place, and the switch that turns them on.

The policy is quantized: its algorithm's acting network, and the targets of that. Value heads and critics stay fp32; a
value head that shares a convolutional trunk sees its quantized features. Algorithms are stable-baselines3's own.
"""

from typing import Any

import torch
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.td3.policies import TD3Policy

from quarl_bench.errors import SpecError
from quarl_bench.policies.algorithm import ALGORITHMS, find_algorithm
from quarl_bench.policies.sources.sb3.model import extract, read_network
from quarl_bench.quantization.scheme import Family, Scheme
from quarl_bench.quantization.training.aware_net import AwarePath, find_path, make_aware
from quarl_bench.system.registry import load
from quarl_bench.training.sb3.mixed_precision import MixedActorCriticPolicy, MixedQPolicy


class AwarePolicy(BasePolicy):
    """Makes the networks of a policy aware as soon as they are built; mixed into stable-baselines3's classes.

    Parameters stay the same objects, so that optimizers keep them; a loaded model builds the same modules again.
    """

    algorithm = ""  # whose networks are quantized
    follow = False  # whether ranges move on behind the delay: those of value networks do

    def __init__(self, *args: Any, scheme: str, **kwargs: Any) -> None:
        self.scheme = Scheme.parse(scheme)
        if self.scheme.family is not Family.AWARE:
            raise SpecError(f"scheme {scheme!r} is trained by `quarl train ... --seeds`, not on stable-baselines3")
        super().__init__(*args, **kwargs)

    def _build(self, *args: Any) -> None:
        super()._build(*args)  # type: ignore[misc]
        algorithm = find_algorithm(self.algorithm)
        for network in algorithm.list_networks(self):
            make_aware(network, [*read_network(algorithm, network).modules], self.scheme, follow=self.follow)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"scheme": self.scheme.name}


class AwareActorCriticPolicy(AwarePolicy, ActorCriticPolicy):
    """The policy class of A2C and PPO with quantizers in its actor."""

    algorithm = "a2c"


class AwareMixedActorCriticPolicy(AwarePolicy, MixedActorCriticPolicy):  # type: ignore[misc]  # as its base
    """Of A2C and PPO, on images, in the recipe's precision."""

    algorithm = "a2c"


class AwareQPolicy(AwarePolicy, DQNPolicy):
    """The policy class of DQN with quantizers in its Q-network."""

    algorithm, follow = "dqn", True


class AwareMixedQPolicy(AwarePolicy, MixedQPolicy):
    """Of DQN, on images, in the recipe's precision."""

    algorithm, follow = "dqn", True


class AwareActorPolicy(AwarePolicy, TD3Policy):
    """The policy class of DDPG and TD3 with quantizers in the actor."""

    algorithm = "td3"


def find_policy_class(algo: str, policy: str) -> type[AwarePolicy]:
    """The aware class of an algorithm's policy ("MlpPolicy", or "mixed" on images); SpecError where there is none."""
    aware = find_algorithm(algo).aware
    if policy not in aware:
        known = ", ".join(each.name for each in ALGORITHMS.values() if policy in each.aware)
        raise SpecError(f"{algo} with {policy} cannot be trained quantization-aware; known are {known}")
    found: type[AwarePolicy] = load(aware[policy])
    return found


def list_networks(policy: AwarePolicy) -> list[torch.nn.Module]:
    """The networks of a policy that act, and their targets."""
    return find_algorithm(policy.algorithm).list_networks(policy)


def find_aware_path(policy: AwarePolicy) -> AwarePath:
    """The way from observation to outputs through the acting network."""
    acting = list_networks(policy)[0]
    return find_path([*read_network(find_algorithm(policy.algorithm), acting).modules])


def is_frozen(model: Any) -> bool:
    """Whether the model computes with rounded numbers already."""
    return find_aware_path(model.policy).frozen


def freeze(model: Any) -> None:
    """Fix every scale of a model's acting network and hand them to its target.

    Does nothing the second time, except where ranges follow.

    QuaRL's quant_delay says when, here in environment steps. The paper's own counter counted executions of the graph:
    with 16 environments and 5-step rollouts a delay of 5 M would have lasted 400 M steps.
    """
    acting, *targets = list_networks(model.policy)
    path = find_aware_path(model.policy)
    if path.frozen and not path.follows:
        return
    path.freeze(extract(model).net)
    state = {name: buffer for name, buffer in acting.state_dict().items() if "running_" in name}
    for target in targets:
        target.load_state_dict(state, strict=False)
