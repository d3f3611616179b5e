"""Nets under the quantizer with learned scales."""

import torch

from quarl_bench.quantization.learned import LearnedNet
from quarl_bench.quantization.scheme import Scheme


def make_learned(scheme, widths=(11, 32, 32, 3), nets=2, batches=3, spread=1.0):
    """A stack that has watched a few batches; a stream per net."""
    net = LearnedNet(widths, Scheme.parse(scheme), [torch.Generator().manual_seed(k) for k in range(nets)])
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(batches):
            net(spread * torch.randn(nets, 256, widths[0]), observe=True)
    return net
