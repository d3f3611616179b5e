"""stable-baselines3's perceptron policy with layer normalization: the other regularizer of QuaRL's ICLR Figure 1."""

from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn


class NormedActorCriticPolicy(ActorCriticPolicy):
    """Of A2C and PPO: every hidden layer of the policy and of the value network is normalized before its activation."""

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        extractor = self.mlp_extractor
        extractor.policy_net = _normalize(extractor.policy_net).to(self.device)
        extractor.value_net = _normalize(extractor.value_net).to(self.device)


def _normalize(hidden: nn.Sequential) -> nn.Sequential:
    modules: list[nn.Module] = []
    for module in hidden:
        modules.append(module)
        if isinstance(module, nn.Linear):
            modules.append(nn.LayerNorm(module.out_features))
    return nn.Sequential(*modules)
