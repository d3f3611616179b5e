"""Policies A, B and C of QuaRL's Table 5, in our reading: NatureCNN with other numbers of filters and features.

The paper calls them "of increasing model complexity" and describes them in an appendix that nobody published. We take
NatureCNN's kernels and strides with 128, 512 and 1,024 filters in each of its three convolutions, in front of 128, 512
and 2,048 features, and divide both numbers by a factor that a machine can train.
"""

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.torch_layers import NatureCNN
from torch import nn

PAPER = {"a": (128, 128), "b": (512, 512), "c": (1024, 2048)}  # filters, features


class SizedCNN(NatureCNN):
    """NatureCNN with `filters` filters in every convolution."""

    def __init__(
        self, observation_space: spaces.Space[Any], features_dim: int, filters: int, *, normalized_image: bool = False
    ) -> None:
        super().__init__(observation_space, features_dim, normalized_image)
        inputs, before = observation_space.shape[0] if observation_space.shape else 0, 0
        for index, module in enumerate(self.cnn):
            if isinstance(module, nn.Conv2d):
                before = module.out_channels
                self.cnn[index] = nn.Conv2d(inputs, filters, module.kernel_size, module.stride)  # type: ignore[arg-type]
                inputs = filters
        wide: Any = self.linear[0]
        places = wide.in_features // before
        self.linear[0] = nn.Linear(places * filters, features_dim)


def scale_size(name: str, divisor: int) -> dict[str, int]:
    """What SizedCNN takes for Policy `name` ("a", "b", "c"), divided by `divisor`."""
    filters, features = PAPER[name]
    return {"filters": filters // divisor, "features_dim": features // divisor}
