"""What goes into a store: a measurement, a policy, and a trainer that needs no time."""

import numpy as np

from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.spec import Measurement

MEASUREMENT = Measurement(("a",), (1, 2), ("x", "y"), ((1.0, 2.0),), ((1, 2),))


def make_policy(seed=0):
    weight = np.random.default_rng(seed).normal(size=(2, 4)).astype(np.float32)
    return PolicyNet(ObservationTransform((4,)), Net((4,), (Linear(weight, np.zeros(2, np.float32)),)),
                     ActionHead(HeadKind.ARGMAX))  # fmt: skip


class FakeTrainer:
    """Saves another policy every time, so that a second training shows."""

    def __init__(self):
        self.calls = 0

    def __call__(self, spec, recipe, folder, checkpoint):
        self.calls += 1
        return save_policy(make_policy(self.calls), folder, {"algo": recipe.algo})
