"""stable-baselines3's convolutional policies in mixed precision: bfloat16 products, everything that is kept in fp32.

Weights, gradients, optimizer, heads and distributions are fp32. A policy trained this way is an ordinary one:
extraction, evaluation and quantization never see these classes.
"""

import torch
from stable_baselines3.common.policies import ActorCriticCnnPolicy, BaseModel
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from stable_baselines3.dqn.policies import CnnPolicy, QNetwork

WHITE = 255
NAME = "mixed"  # of the policies below, where stable-baselines3's are called MlpPolicy and CnnPolicy


class MixedNatureCNN(NatureCNN):
    """NatureCNN on raw images: pixels up to 255 are exact in bfloat16, and a quarter of the memory is moved."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Features (n, features), fp32, of uint8 images (n, channels, height, width)."""
        images = observations.contiguous(memory_format=torch.channels_last).bfloat16().div_(WHITE)
        with torch.autocast(images.device.type, torch.bfloat16):
            features: torch.Tensor = super().forward(images)
        return features.float()


class RawImages(BaseModel):
    """A model whose extractor takes images as they are; stands between a policy and its BaseModel."""

    def extract_features(
        self, obs: torch.Tensor | dict[str, torch.Tensor], features_extractor: BaseFeaturesExtractor
    ) -> torch.Tensor:
        """Features of `obs` without the detour over fp32 images."""
        features: torch.Tensor = features_extractor(obs)
        return features


class MixedActorCriticPolicy(ActorCriticCnnPolicy, RawImages):  # type: ignore[misc]  # the first one's signature holds
    """Of A2C and PPO."""


class MixedQNetwork(QNetwork, RawImages):
    """Of DQN."""


class MixedQPolicy(CnnPolicy):
    """Of DQN: the network and its target."""

    def make_q_net(self) -> QNetwork:
        """A network of raw images."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return MixedQNetwork(**arguments).to(self.device)


POLICIES = {"a2c": MixedActorCriticPolicy, "ppo": MixedActorCriticPolicy, "dqn": MixedQPolicy}
