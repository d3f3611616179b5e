"""A small policy on images."""

import numpy as np

from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Linear, Net
from tests.support.strategies import normal


def make_image_policy() -> PolicyNet:
    rng = np.random.default_rng(3)
    layers = (
        Conv2d(normal(rng, 6, 2, 3, 3, spread=0.3), normal(rng, 6), 2, Activation.RELU),
        Conv2d(normal(rng, 5, 6, 2, 2, spread=0.3), normal(rng, 5), 1, Activation.TANH),
        Linear(normal(rng, 3, 5 * 3 * 2, spread=0.2), normal(rng, 3)),
    )
    return PolicyNet(ObservationTransform((2, 9, 7), image=True), Net((2, 9, 7), layers), ActionHead(HeadKind.ARGMAX))
