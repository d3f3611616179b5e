"""Products with weights that stay: oneDNN packs large ones once; torch's own product packs them at every call."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

LARGE = 1 << 18  # weights from which packing pays; a call of oneDNN's costs some microseconds by itself
HINT = 4  # rows for which weights are packed; every number of rows is served


@dataclass(frozen=True, eq=False)
class Product:
    """A fully connected layer's map of rows x (n, inputs): x @ weight.T + bias."""

    weight: torch.Tensor  # (outputs, inputs)
    bias: torch.Tensor  # (outputs,)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """(n, outputs) for x (n, ...), flattened channel-first. One row is multiplied by the weights as they are."""
        x = x.flatten(1)
        if len(x) == 1 or self._packed is None:
            return torch.nn.functional.linear(x, self.weight, self.bias)
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")  # noqa: SLF001 (its only name)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Without what is packed, which no other process could read."""
        return {"weight": self.weight, "bias": self.bias}

    @cached_property
    def _packed(self) -> torch.Tensor | None:
        wanted = self.weight.numel() >= LARGE and self.weight.dtype is torch.float32 and packs_weights()
        return _pack(self.weight) if wanted else None


@cache
def packs_weights() -> bool:
    """Whether this torch packs weights on this processor."""
    try:
        product = torch.ops.mkldnn._linear_pointwise(torch.ones(2, 16), _pack(torch.ones(16, 16)), None, "none", [], "")  # noqa: SLF001
    except (AttributeError, RuntimeError):  # an operator that is not there, or not for this processor
        return False
    return bool((product == 16).all())


def _pack(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, HINT)  # noqa: SLF001
    return packed
