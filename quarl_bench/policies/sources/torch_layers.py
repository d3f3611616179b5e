"""From torch modules in the order in which an observation passes them to the layers of a net.

Modules are read, never copied by name, so that other widths and subclasses work; a module that a net cannot express is
refused instead of being approximated.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.batch_norm import BatchNorm, find_batch_norm
from quarl_bench.quantization.activations import Activation, find_activation, list_modules
from quarl_bench.quantization.branches import Branch
from quarl_bench.quantization.net import Conv2d, Floats, Layer, LayerNorm, Linear, Net
from quarl_bench.quantization.recurrent.cells import GATES, Cell, CellKind
from quarl_bench.quantization.training.aware import AwareReLU, AwareTabled

CELL = re.compile(r"(?:weight|bias)_(?:ih|hh)_l\d{1,2}", re.ASCII)  # what an LSTM or a GRU has


class Fork(torch.nn.Module):
    """Modules that parts of an observation, behind one another in a vector, pass before they are joined."""

    def __init__(self, parts: Iterable[tuple[tuple[int, ...], tuple[torch.nn.Module, ...]]]) -> None:
        """`parts` are the shape of each, images channel-first, and its modules, if it has any."""
        super().__init__()
        self.parts = tuple(parts)


def read_net(shape: tuple[int, ...], modules: Iterable[torch.nn.Module]) -> Net:
    """The net of modules, a fork in front and LSTMs and GRUs among them, for inputs of `shape`."""
    layers: list[Layer] = []
    cells: list[Cell] = []
    branches: list[Branch] = []
    plain: list[torch.nn.Module] = []
    for module in modules:
        if isinstance(module, Fork):
            for part_shape, own in module.parts:
                found = [*read_modules(own)]
                branches.append(Branch(part_shape, len(found)))
                layers += found
            continue
        if not isinstance(module, torch.nn.LSTM | torch.nn.GRU):
            plain.append(module)
            continue
        layers += read_modules(plain)
        plain = []
        if module.bidirectional or module.proj_size:
            raise PolicyError(f"module {module} has no portable form; known are one direction and no projection")
        kind = CellKind.LSTM if isinstance(module, torch.nn.LSTM) else CellKind.GRU
        weights = {name: np.array(value.detach().cpu().numpy()) for name, value in module.named_parameters()}
        for part in list_cells(weights):
            cells.append(Cell(kind, len(layers)))
            layers += part
    return Net(shape, (*layers, *read_modules(plain)), tuple(cells), tuple(branches))


def list_cells(weights: Mapping[str, Floats]) -> Iterator[tuple[Linear, Linear]]:
    """Both layers of every cell in the weights of one module of torch, `weight_ih_l0` and so on."""
    for number in itertools.count():
        pair = [weights[name] for part in ("ih", "hh") if (name := f"weight_{part}_l{number}") in weights]
        if len(pair) < 2:
            return
        zeros = np.zeros(len(pair[0]), np.float32)
        biases = [weights.get(f"bias_{part}_l{number}", zeros) for part in ("ih", "hh")]
        yield Linear(pair[0], biases[0]), Linear(pair[1], biases[1])


def read_cells(prefix: str, weights: Mapping[str, Floats], where: str) -> list[tuple[Linear, Linear]]:
    """Both layers of every cell of the LSTM or GRU called `prefix`; none where no weights are called so.

    PolicyError for one that is bidirectional, projected, or damaged.
    """
    own = {name.removeprefix(f"{prefix}."): w for name, w in weights.items() if name.startswith(f"{prefix}.")}
    strange = [name for name in own if CELL.fullmatch(name) is None]
    if strange:
        raise PolicyError(
            f"{where}: {prefix} has {strange[0][:40]}, and is no LSTM or GRU of one direction without projection"
        )
    names = [name for name in own if name.startswith("weight")]
    if any(own[name].ndim != 2 or own[name].size == 0 for name in names):
        raise PolicyError(f"{where}: {prefix} has weights of other than two axes, or none; restore the file")
    found = [*list_cells(own)]
    if len(names) != 2 * len(found) or (own and not found):
        raise PolicyError(f"{where}: {prefix} lacks weights of an LSTM or GRU; restore the file")
    return found


def find_kind(pair: tuple[Linear, Linear], where: str) -> CellKind:
    """Of the layers of a cell, what joins them: an LSTM has four gates, a GRU three."""
    first, second = pair
    for kind, gates in GATES.items():
        if len(first.weight) == len(second.weight) == gates * second.weight.shape[1]:
            return kind
    raise PolicyError(
        f"{where}: weights {first.weight.shape} and {second.weight.shape} are neither those of an LSTM nor of a GRU"
    )


def read_modules(modules: Iterable[torch.nn.Module]) -> Iterator[Layer]:
    """The affine modules among `modules`, each with the normalization and the activation that follow it.

    A batch normalization becomes a part of the affine layer in front of it, or behind it.
    """
    pending: Layer | None = None
    for part in _fold_norms(modules):
        if isinstance(part, Linear | Conv2d):
            if pending is not None:
                yield pending
            pending = part
        elif isinstance(part, torch.nn.LayerNorm):
            pending = _normalize(pending, part)
        elif (activation := _find_activation(part)) is not None:
            if pending is None or pending.activation is not Activation.NONE:
                raise PolicyError(f"{part} does not follow an affine layer")
            pending = replace(pending, activation=activation)
        else:
            raise PolicyError(
                f"module {part} has no portable form; known are Linear, Conv2d, LayerNorm, BatchNorm, Flatten, "
                f"{list_modules()}"
            )
    if pending is not None:
        yield pending


def _fold_norms(modules: Iterable[torch.nn.Module]) -> list[Layer | torch.nn.Module]:
    """Affine modules as layers, with the batch normalizations around them; others as they are."""
    parts: list[Layer | torch.nn.Module] = []
    waiting: BatchNorm | None = None
    for module in modules:
        if isinstance(module, torch.nn.Flatten | torch.nn.Identity | torch.nn.Dropout):  # drops in training only
            continue
        norm, last = find_batch_norm(module), parts[-1] if parts else None
        if norm is not None and isinstance(last, Linear | Conv2d):
            parts[-1] = norm.fold_into_last(last)
        elif isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
            layer = _read_affine(module)
            parts.append(layer if waiting is None else waiting.fold_into_next(layer))
            waiting = None
        elif waiting is not None:
            raise PolicyError(f"{module} follows a batch normalization that follows no affine layer")
        elif norm is not None:
            waiting = norm
        else:
            parts.append(module)
    if waiting is not None:
        raise PolicyError("a batch normalization behind the last activation has no portable form")
    return parts


def _find_activation(module: torch.nn.Module) -> Activation | None:
    """The activation that a module is, aware of rounding or not."""
    if isinstance(module, AwareReLU):
        return Activation.RELU
    return module.activation if isinstance(module, AwareTabled) else find_activation(module)


def flatten_sequential(modules: Iterable[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    """The modules of every Sequential, however deep."""
    for module in modules:
        if isinstance(module, torch.nn.Sequential):
            yield from flatten_sequential(module)
        else:
            yield module


def _read_affine(module: torch.nn.Linear | torch.nn.Conv2d) -> Layer:
    weight = _array(module.weight)
    bias = _array(module.bias) if module.bias is not None else np.zeros(len(weight), np.float32)
    if isinstance(module, torch.nn.Linear):
        return Linear(weight, bias)
    height, width = module.stride
    plain = set(map(str, module.padding)) == {"0"} and set(module.dilation) == {1} and module.groups == 1
    if not plain or height != width:
        raise PolicyError(f"module {module} has no portable form: no padding, dilation or groups, one stride")
    return Conv2d(weight, bias, int(height))


def _normalize(layer: Layer | None, module: torch.nn.LayerNorm) -> Layer:
    if not isinstance(layer, Linear) or layer.activation is not Activation.NONE or layer.norm is not None:
        raise PolicyError(f"{module} does not stand between a Linear layer and its activation")
    if module.bias is None or module.normalized_shape != layer.bias.shape:
        raise PolicyError(f"{module} has no portable form: one weight and one bias per output of {layer.bias.shape}")
    return replace(layer, norm=LayerNorm(_array(module.weight), _array(module.bias), module.eps))


def _array(tensor: torch.Tensor) -> Floats:
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float32, order="C")
