"""stable-baselines3's policies with quantizers in place, and the switch that turns them on.

The policy is quantized: the way from observation to action of A2C and PPO, the Q-network of DQN, the actor of DDPG
and TD3, and the target copies of the last three. Value heads and critics stay fp32; a value head that shares a
convolutional trunk sees its quantized features. Algorithms are stable-baselines3's own.
"""

from typing import Any

import torch
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy, BasePolicy
from stable_baselines3.dqn.policies import CnnPolicy, DQNPolicy
from stable_baselines3.td3.policies import TD3Policy

from quarl_bench.errors import SpecError
from quarl_bench.policies.sources.sb3_model import extract, list_modules
from quarl_bench.quantization.aware_net import find_path, make_aware
from quarl_bench.quantization.scheme import Family, Scheme
from quarl_bench.training.sb3.mixed_precision import NAME, MixedActorCriticPolicy, MixedQPolicy

NETWORKS = ("actor", "actor_target", "q_net", "q_net_target")  # attributes of policies that are not the network itself


class AwarePolicy(BasePolicy):
    """Makes the networks of a policy aware as soon as they are built; mixed into stable-baselines3's classes.

    Parameters stay the same objects, so that optimizers keep them; a loaded model builds the same modules again.
    """

    follow = False  # whether ranges move on behind the delay: those of value networks do

    def __init__(self, *args: Any, scheme: str, **kwargs: Any) -> None:
        self.scheme = Scheme.parse(scheme)
        if self.scheme.family is not Family.AWARE:
            raise SpecError(f"scheme {scheme!r} is trained by `quarl train ... --seeds`, not on stable-baselines3")
        super().__init__(*args, **kwargs)

    def _build(self, *args: Any) -> None:
        super()._build(*args)  # type: ignore[misc]
        for network in list_networks(self):
            make_aware(network, list_modules(network), self.scheme, follow=self.follow)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"scheme": self.scheme.name}


class AwareActorCriticPolicy(AwarePolicy, ActorCriticPolicy):
    """The policy class of A2C and PPO with quantizers in its actor."""


class AwareActorCriticCnnPolicy(AwarePolicy, ActorCriticCnnPolicy):
    """The actor-critic policy of A2C and PPO on images, with fake-quantized layers."""


class AwareMixedActorCriticPolicy(AwarePolicy, MixedActorCriticPolicy):  # type: ignore[misc]  # as its base
    """Of A2C and PPO, on images in mixed precision."""


class AwareQPolicy(AwarePolicy, DQNPolicy):
    """The policy class of DQN with quantizers in its Q-network."""

    follow = True


class AwareCnnQPolicy(AwarePolicy, CnnPolicy):
    """The policy class of DQN on images with quantizers in its Q-network."""

    follow = True


class AwareMixedQPolicy(AwarePolicy, MixedQPolicy):
    """Of DQN, on images in mixed precision."""

    follow = True


class AwareActorPolicy(AwarePolicy, TD3Policy):
    """The policy class of DDPG and TD3 with quantizers in the actor."""


POLICIES: dict[tuple[str, str], type[AwarePolicy]] = {
    ("a2c", "MlpPolicy"): AwareActorCriticPolicy,
    ("a2c", "CnnPolicy"): AwareActorCriticCnnPolicy,
    ("a2c", NAME): AwareMixedActorCriticPolicy,
    ("dqn", "MlpPolicy"): AwareQPolicy,
    ("dqn", "CnnPolicy"): AwareCnnQPolicy,
    ("dqn", NAME): AwareMixedQPolicy,
    ("ddpg", "MlpPolicy"): AwareActorPolicy,
}
SAME = {"ppo": "a2c", "td3": "ddpg"}


def find_policy_class(algo: str, policy: str) -> type[AwarePolicy]:
    """The aware class of an algorithm's policy ("MlpPolicy", "CnnPolicy" or "mixed"); SpecError where there is none."""
    key = (SAME.get(algo, algo), policy)
    if key not in POLICIES:
        raise SpecError(
            f"{algo} with {policy} cannot be trained quantization-aware; known are a2c, dqn, ddpg, ppo, td3"
        )
    return POLICIES[key]


def list_networks(policy: BasePolicy) -> list[torch.nn.Module]:
    """The networks of a policy that act, and their targets."""
    networks = [getattr(policy, name) for name in NETWORKS if hasattr(policy, name)]
    return networks or [policy]


def is_frozen(model: Any) -> bool:
    """Whether the model computes with rounded numbers already."""
    return find_path(list_modules(list_networks(model.policy)[0])).frozen


def freeze(model: Any) -> None:
    """Fix every scale of a model's acting network and hand them to its target.

    Does nothing the second time, except where ranges follow.

    QuaRL's quant_delay says when, here in environment steps. The paper's own counter counted executions of the graph:
    with 16 environments and 5-step rollouts a delay of 5 M would have lasted 400 M steps.
    """
    acting, *targets = list_networks(model.policy)
    path = find_path(list_modules(acting))
    if path.frozen and not path.follows:
        return
    path.freeze(extract(model).net)
    state = {name: buffer for name, buffer in acting.state_dict().items() if "running_" in name}
    for target in targets:
        target.load_state_dict(state, strict=False)
