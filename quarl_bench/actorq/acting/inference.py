"""How actors compute: one interface, three runtimes, one thread, one observation at a time."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from quarl_bench.actorq.acting.kernel import CInference
from quarl_bench.actorq.message import Broadcast, FloatNet
from quarl_bench.backends.deployed import DeployedNet
from quarl_bench.backends.litert.flatbuffer import write_float_net, write_integer_net
from quarl_bench.backends.litert.runtime import LiteRTRunner
from quarl_bench.errors import SpecError
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Floats


class Inference(Protocol):
    """A runtime that is given new weights over and over."""

    def load(self, broadcast: Broadcast) -> None:
        """Compute with these weights from now on."""

    def forward(self, x: Floats) -> Floats:
        """Outputs (1, outputs) for one net input (1, inputs)."""


class LiteRTInference:
    """XNNPACK; every broadcast becomes a .tflite file, which the runtime packs for its kernels."""

    def load(self, broadcast: Broadcast) -> None:
        """Write the broadcast net as a LiteRT file, and load it into an interpreter that replaces the last one."""
        net = broadcast.net
        if isinstance(net, IntegerNet):
            self._net = DeployedNet(LiteRTRunner(write_integer_net(net)), net.input, net.output)
        else:
            self._net = DeployedNet(LiteRTRunner(write_float_net(net.widen())), None, None)

    def forward(self, x: Floats) -> Floats:
        """Outputs (1, outputs) of one observation, in this runtime's precision."""
        return self._net.forward(x)


class TorchInference:
    """torch's eager mode in float32: what a user would write. fp16 weights are widened when they arrive."""

    def load(self, broadcast: Broadcast) -> None:
        """Replace the weights by those of a message."""
        net = broadcast.net
        if not isinstance(net, FloatNet):
            raise SpecError("torch runs fp32 and fp16 actors; int8 ones need runtime c or litert")
        functions = {"none": torch.nn.Identity(), "relu": torch.nn.ReLU(), "tanh": torch.nn.Tanh()}
        modules: list[torch.nn.Module] = []
        for layer in net.widen().layers:
            linear = torch.nn.Linear(layer.weight.shape[1], layer.weight.shape[0])
            linear.load_state_dict(
                {"weight": _copy_to_tensor(layer.weight), "bias": _copy_to_tensor(layer.bias)}, assign=True
            )
            modules += [linear, functions[layer.activation]]
        self._net = torch.nn.Sequential(*modules)

    @torch.inference_mode()
    def forward(self, x: Floats) -> Floats:
        """Outputs (1, outputs) of one observation, in this runtime's precision."""
        return np.asarray(self._net(torch.from_numpy(x)).numpy())


def _copy_to_tensor(array: Floats) -> torch.Tensor:
    return torch.from_numpy(array.copy())  # broadcasts are read-only memory


RUNTIMES: dict[str, Callable[[], Inference]] = {"c": CInference, "litert": LiteRTInference, "torch": TorchInference}
