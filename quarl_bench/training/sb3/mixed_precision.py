"""stable-baselines3's policies in mixed precision: products in half precision, everything that is kept in fp32.

Hidden layers compute in bfloat16 or float16 under torch's autocast; weights, gradients, optimizer, heads, values and
distributions are fp32. A policy trained this way is an ordinary one: extraction, evaluation and quantization never see
these classes.

Policies on images are of these classes in fp32, too: they take pixels as they are, in channels-last order, in which
convolutions are faster.
"""

from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy, BaseModel, BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, MlpExtractor, NatureCNN
from stable_baselines3.dqn.policies import CnnPolicy, DQNPolicy, QNetwork
from torch import nn

from quarl_bench.training.recipes import BF16, FP16, FP32
from quarl_bench.training.sb3.loss_scaling import LossScale, scale_optimizer
from quarl_bench.training.sb3.scaled_cnn import SizedCNN

WHITE = 255
NAME = "mixed"  # of the policies on images below, where stable-baselines3's is called CnnPolicy
TYPES = {FP32: torch.float32, BF16: torch.bfloat16, FP16: torch.float16}


class HalfRegion(nn.Module):
    """Layers that compute in the policy's precision and hand on fp32."""

    dtype = torch.bfloat16
    scale: LossScale | None = None

    def list_half(self) -> list[nn.Parameter]:
        """The parameters whose products are in half precision."""
        return [*self.parameters()]

    def run(self, layers: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Run `layers` in that precision on `inputs`, and return their result as fp32."""
        if self.scale is not None:
            inputs = self.scale.enter(inputs)
        with torch.autocast(inputs.device.type, self.dtype, enabled=self.dtype != torch.float32):
            outputs = layers(inputs)
        features = outputs.float()
        return features if self.scale is None else self.scale.leave(features)


class MixedNatureCNN(HalfRegion, NatureCNN):
    """NatureCNN on raw images: pixels up to 255 are exact in all types, and a quarter of the memory is moved."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Features (n, features), fp32, of uint8 images (n, channels, height, width)."""
        images = observations.contiguous(memory_format=torch.channels_last).to(self.dtype).div_(WHITE)
        return self.run(super().forward, images)


class MixedSizedCNN(MixedNatureCNN, SizedCNN):
    """The same with another number of filters."""


EXTRACTORS: dict[type[NatureCNN], type[MixedNatureCNN]] = {NatureCNN: MixedNatureCNN, SizedCNN: MixedSizedCNN}


class MixedSequential(HalfRegion, nn.Sequential):
    """A perceptron whose hidden layers compute in half precision; its last layer, if it has outputs, in fp32."""

    def __init__(self, *modules: nn.Module, head: bool) -> None:
        super().__init__(*modules)
        self.hidden = len(modules) - head

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Map `input` to fp32 outputs (n, outputs): hidden layers in low precision, the last ones in fp32."""
        outputs = self.run(self._run_hidden, input)
        for module in [*self][self.hidden :]:
            outputs = module(outputs)
        return outputs

    def list_half(self) -> list[nn.Parameter]:
        """The parameters of the hidden layers, which compute in half precision."""
        return [parameter for module in [*self][: self.hidden] for parameter in module.parameters()]

    def _run_hidden(self, outputs: torch.Tensor) -> torch.Tensor:
        for module in [*self][: self.hidden]:
            outputs = module(outputs)
        return outputs


class MixedPolicy(BasePolicy):
    """Puts hidden layers into half precision as soon as they are built; mixed into stable-baselines3's classes.

    Parameters stay the same objects, and keep their names.
    """

    def __init__(self, *args: Any, precision: str = BF16, **kwargs: Any) -> None:
        self.precision = precision
        super().__init__(*args, **kwargs)

    def _build(self, *args: Any) -> None:
        super()._build(*args)  # type: ignore[misc]
        for module in [*self.modules()]:
            if isinstance(module, QNetwork):
                module.q_net = _to_mixed(module.q_net, head=True)
            if isinstance(module, MlpExtractor):
                module.policy_net, module.value_net = _to_mixed(module.policy_net), _to_mixed(module.value_net)
        scale = LossScale() if self.precision == FP16 else None
        for region in self._list_regions():
            region.dtype, region.scale = TYPES[self.precision], scale
        if scale is not None:
            self.optimizer = scale_optimizer(self.optimizer)
            self._connect(scale)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        for scale in {region.scale for region in self._list_regions()} - {None}:
            self._connect(scale)  # type: ignore[arg-type]  # a copy's tensors have lost their hooks

    def _connect(self, scale: LossScale) -> None:
        """Let the optimizer and the gradients of half-precision layers know the scale."""
        optimizer: Any = self.optimizer
        optimizer.scale = scale
        for region in self._list_regions():
            for parameter in region.list_half():
                scale.enter(parameter)

    def _list_regions(self) -> list[HalfRegion]:
        return [module for module in self.modules() if isinstance(module, HalfRegion)]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"precision": self.precision}


class RawImages(BaseModel):
    """A model whose extractor takes images as they are; stands between a policy and its BaseModel."""

    def extract_features(
        self, obs: torch.Tensor | dict[str, torch.Tensor], features_extractor: BaseFeaturesExtractor
    ) -> torch.Tensor:
        """Features of `obs` without the detour over fp32 images."""
        features: torch.Tensor = features_extractor(obs)
        return features


class MixedMlpActorCriticPolicy(MixedPolicy, ActorCriticPolicy):
    """The perceptron policy of A2C and PPO with hidden layers in half precision."""


class MixedActorCriticPolicy(MixedPolicy, ActorCriticCnnPolicy, RawImages):  # type: ignore[misc]  # signatures hold
    """The actor-critic policy of A2C and PPO on images, with its layers in the recipe's precision."""


class MixedMlpQPolicy(MixedPolicy, DQNPolicy):
    """The perceptron policy of DQN with hidden layers in half precision."""


class MixedQNetwork(QNetwork, RawImages):
    """DQN's Q-network on images with convolutions in half precision."""


class MixedQPolicy(MixedPolicy, CnnPolicy):
    """Of DQN, on images: the network and its target."""

    def make_q_net(self) -> QNetwork:
        """Build the Q-network that SB3 asks for, without a features extractor of its own: it reads raw images."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return MixedQNetwork(**arguments).to(self.device)


def _to_mixed(modules: nn.Sequential, *, head: bool = False) -> nn.Sequential:
    """The same modules with hidden ones in half precision; `modules` themselves where none is hidden."""
    affine = sum(isinstance(module, nn.Linear) for module in modules)
    return MixedSequential(*modules, head=head) if affine > head else modules
