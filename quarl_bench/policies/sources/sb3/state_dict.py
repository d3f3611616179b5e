"""From a state dictionary of stable-baselines3 to the layers on the way from observation to outputs."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import safetensors.torch
import torch

from quarl_bench.errors import PolicyError
from quarl_bench.policies.algorithm import SavedForm
from quarl_bench.policies.observation import Part
from quarl_bench.policies.sources.archive import Archive, open_archive
from quarl_bench.policies.sources.batch_norm import RENORM, BatchNorm
from quarl_bench.policies.sources.inert_pickle import Call, read_pickle
from quarl_bench.policies.sources.strides import is_held
from quarl_bench.policies.sources.torch_layers import read_cells
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.branches import Branch
from quarl_bench.quantization.net import Conv2d, Floats, Layer, Linear
from quarl_bench.quantization.recurrent.cells import Cell, CellKind

LIMIT, PICKLE_LIMIT = 2**28, 2**22  # bytes of policy.pth and of all its tensors; of the pickle that lists them
AXES = 8
TENSOR, PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
DTYPES = {
    "torch.FloatStorage": torch.float32, "torch.DoubleStorage": torch.float64, "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16, "torch.LongStorage": torch.int64, "torch.IntStorage": torch.int32,
    "torch.BoolStorage": torch.bool,
}  # fmt: skip
SCALARS = {"numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype", "_codecs.encode"}
KNOWN = frozenset({"collections.OrderedDict", TENSOR, PARAMETER, *DTYPES} | SCALARS)
STRIDES = {0: 4, 2: 2, 4: 1}  # of NatureCNN, whose convolutions are its modules 0, 2 and 4
NATURE = len(STRIDES) + 1  # layers: a Linear one behind them
Weights = dict[str, Floats]


def read_weights(data: bytes, where: str, flatten: Callable[[dict[Any, Any]], dict[str, Any]] | None = None) -> Weights:
    """The state dictionary in `data`, torch's format since version 1.6; PolicyError when it holds anything else.

    `flatten` picks it out of what a checkpoint holds beside it.
    """
    archive = open_archive(data, where, LIMIT)
    if any("/code/" in name for name in archive.sizes):
        raise PolicyError(
            f"{where}: TorchScript, which is a program and is not run; save it by torch.export as .pt2, or by "
            "torch.onnx.export as .onnx"
        )
    pickles = [name for name in archive.sizes if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise PolicyError(f"{where}: not a state dictionary of torch; save the model again with stable-baselines3")
    tree = read_pickle(archive.read(pickles[0], PICKLE_LIMIT), KNOWN, where, references=True)
    state = _list_entries(tree)
    if not state:
        raise PolicyError(f"{where}: not a state dictionary; save the model again with stable-baselines3")
    if flatten is not None:
        state = flatten({key: _list_entries(value) or value for key, value in state.items()})
    storages = _Storages(archive, pickles[0].removesuffix("data.pkl"))
    found = {str(name): storages.read_tensor(tensor, f"{where}: {str(name)[:80]!r}") for name, tensor in state.items()}
    total = sum(tensor.numel() for tensor in found.values())
    if total * 4 > LIMIT:
        raise PolicyError(f"{where}: {total} numbers in tensors that share their memory; it is refused")
    return {name: np.array(tensor.float().numpy(), order="C") for name, tensor in found.items()}


def _list_entries(tree: Any) -> dict[Any, Any]:
    """Those of a dictionary or an OrderedDict; none of anything else."""
    if isinstance(tree, Call) and tree.name == "collections.OrderedDict":
        return tree.entries
    return tree if isinstance(tree, dict) else {}


class _Storages:
    """The numbers of tensors, which lie beside the pickle that names them."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive, self._folder = archive, folder
        self._read: dict[str, bytearray] = {}
        if f"{folder}byteorder" in archive.sizes and archive.read(f"{folder}byteorder", 16) != b"little":
            raise PolicyError(f"{archive.where}: numbers in another order of bytes than little; save it again")

    def read_tensor(self, tree: Any, where: str) -> torch.Tensor:
        """The tensor that a pickle describes; PolicyError for anything else, or one that its storage does not hold."""
        while isinstance(tree, Call) and tree.name == PARAMETER and isinstance(tree.args, tuple) and tree.args:
            tree = tree.args[0]
        try:
            reference, start, shape, strides = tree.args[:4]
            _, kind, key, _, _ = reference.id
            dtype = DTYPES[kind.text]
            sized = len(shape) <= AXES and all(type(n) is int and 0 <= n < LIMIT for n in (start, *shape, *strides))
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise PolicyError(f"{where} is not a tensor of real numbers; restore the file") from error
        if tree.name != TENSOR or not sized or not isinstance(key, str):
            raise PolicyError(f"{where} is not a tensor of real numbers; restore the file")
        if key not in self._read:
            self._read[key] = bytearray(self._archive.read(f"{self._folder}data/{key}", LIMIT))
        raw = self._read[key]
        if not is_held(start, shape, strides, len(raw) // dtype.itemsize):
            claimed = f"{str(tuple(shape))[:80]} with strides {str(tuple(strides))[:80]}"
            raise PolicyError(f"{where} claims the shape {claimed} that its file does not hold; restore it")
        if 0 in shape:
            return torch.zeros(0, dtype=dtype)
        numbers = torch.frombuffer(raw, dtype=dtype, count=len(raw) // dtype.itemsize)
        return torch.as_strided(numbers, shape, strides, start)


def read_safetensors(data: bytes, where: str) -> Weights:
    """The tensors of a safetensors file; PolicyError when it is none, or holds something else than numbers."""
    try:
        found = safetensors.torch.load(data)
    except Exception as error:  # a damaged file raises almost anything
        raise PolicyError(f"{where}: not a safetensors file ({type(error).__name__}); restore it") from error
    for name, tensor in found.items():
        _count_numbers(tensor, f"{where}: {name[:80]!r}")
    return {name: np.array(tensor.float().numpy()) for name, tensor in found.items()}


def _count_numbers(tensor: Any, where: str) -> int:
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.is_complex():
        raise PolicyError(f"{where} is not a tensor of real numbers; restore the file")
    if not tensor.is_contiguous():  # strides of zero make a mountain of one number
        raise PolicyError(f"{where} claims the shape {tuple(tensor.shape)} that its file does not hold; it is refused")
    return tensor.numel()


def check_modules(algo: str, form: SavedForm, weights: Weights, where: str) -> None:
    """Refuse weights whose names are not those of this algorithm's policy."""
    known = form.parts
    strangers = sorted({name.partition(".")[0] for name in weights} - set(known))
    if strangers:
        raise PolicyError(
            f"{where}: weights of {', '.join(strangers[:3])[:80]} do not belong to a policy of {algo}, which has "
            f"{', '.join(known[:4])}; only stable-baselines3's own policies have a portable form"
        )


def read_layers(
    algo: str, form: SavedForm, weights: Weights, activation: Activation, parts: Sequence[Part], where: str
) -> tuple[Layer, ...]:
    """The layers from observation to outputs, in order; PolicyError for weights that no known module explains.

    Of a Dict of `parts` those of `find_branches` come first.
    """
    layers = [*_read_extractor(_find_extractor(form, weights), weights, parts, where)]
    layers += [layer for pair in _read_cells(form, weights, where) for layer in pair]
    for prefix in form.hidden:
        layers += [replace(layer, activation=activation) for layer in _read_sequence(prefix, weights, where)]
    if f"{form.output}.weight" in weights:
        return (*layers, _read_linear(form.output, weights, where))
    sequence = _read_sequence(form.output, weights, where)
    if not sequence:
        raise PolicyError(f"{where}: no weights called {form.output}, which a policy of {algo} has")
    *hidden, last = sequence
    return (*layers, *(replace(layer, activation=activation) for layer in hidden), last)


def fold_norms(form: SavedForm, weights: Weights, epsilon: float, where: str) -> Weights:
    """Weights of the same policy without the batch normalizations in front of its layers."""
    found = dict(weights)
    for prefix in form.hidden:
        own = {name: value for name, value in weights.items() if name.startswith(f"{prefix}.")}
        if not any(name.endswith(f".{RENORM[2]}") for name in own):
            continue
        modules: dict[int, Weights] = {}
        for name, value in own.items():
            del found[name]
            place, _, part = name.removeprefix(f"{prefix}.").partition(".")
            if not place.isdecimal() or len(place) > 4:
                raise PolicyError(f"{where}: {name[:80]!r} belongs to a module without a portable form")
            modules.setdefault(int(place), {})[part] = value
        norm, count = None, 0
        for _, parts in sorted(modules.items()):
            if RENORM[2] in parts:
                norm = _read_norm(parts, epsilon, f"{where}: {prefix}")
                continue
            name = f"{prefix}.{2 * count}"
            found |= _fold({f"{name}.{part}": value for part, value in parts.items()}, name, norm, where)
            norm, count = None, count + 1
        found |= _fold(found, form.output, norm, where)
    return found


def _read_norm(parts: Weights, epsilon: float, where: str) -> BatchNorm:
    if missing := set(RENORM) - parts.keys():
        raise PolicyError(f"{where}: a batch normalization without {min(missing)}; restore the file")
    if len({parts[name].shape for name in RENORM}) != 1 or parts[RENORM[2]].ndim != 1:
        raise PolicyError(f"{where}: a batch normalization of several sizes; restore the file")
    return BatchNorm.of(parts, RENORM, epsilon)


def _fold(weights: Weights, name: str, norm: BatchNorm | None, where: str) -> Weights:
    """The module called `name`, whose inputs `norm` normalizes, for inputs that are not."""
    if norm is None:
        return weights
    layer = norm.fold_into_next(_read_linear(name, weights, where))
    return weights | {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


def average_outputs(layers: tuple[Layer, ...], count: int) -> tuple[Layer, ...]:
    """`layers` with the means of `count` groups of outputs in the place of them, as QR-DQN's quantiles lie.

    PolicyError where the outputs are no multiple.
    """
    *hidden, last = layers
    if count == 0 or len(last.bias) % count:
        raise PolicyError(f"{len(last.bias)} quantiles for {count} actions; restore the zip")
    weight = last.weight.reshape(-1, count, *last.weight.shape[1:]).mean(axis=0)
    return (*hidden, replace(last, weight=weight, bias=last.bias.reshape(-1, count).mean(axis=0)))


def find_branches(form: SavedForm, weights: Weights, parts: Sequence[Part]) -> tuple[Branch, ...]:
    """The parts of a Dict, where one of them passes layers of its own; else they are one vector."""
    prefix = _find_extractor(form, weights)
    found = tuple(
        Branch(part.shape, NATURE) if _has_layers(prefix, part, weights) else Branch((part.width,)) for part in parts
    )
    return found if any(branch.layers for branch in found) else ()


def find_cells(form: SavedForm, weights: Weights, count: int) -> tuple[Cell, ...]:
    """The cells among the `count` layers of `read_layers`: behind the features, in front of the hidden layers."""
    pairs = len(_read_cells(form, weights, form.recurrent))
    behind = sum(name.endswith(".weight") for name in weights if name.startswith(form.hidden)) + 1 if pairs else 0
    return tuple(Cell(CellKind.LSTM, count - behind - 2 * (pairs - number)) for number in range(pairs))


def _read_cells(form: SavedForm, weights: Weights, where: str) -> list[tuple[Linear, Linear]]:
    """Both layers of every cell of an LSTM; none where the form has none."""
    if not form.recurrent:
        return []
    found = read_cells(form.recurrent, weights, where)
    if not found:
        raise PolicyError(f"{where}: {form.recurrent} has no weights; restore the file")
    return found


def _read_sequence(prefix: str, weights: Weights, where: str) -> list[Linear]:
    """Linear layers with an activation between each two: modules 0, 2, 4, ..."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d{1,4})\.(weight|bias)", re.ASCII)
    indices = set()
    for name in weights:
        if name.startswith(prefix + "."):
            found = pattern.fullmatch(name)
            if found is None:
                raise PolicyError(f"{where}: {name[:80]!r} belongs to a module without a portable form")
            indices.add(int(found[1]))
    if sorted(indices) != list(range(0, 2 * len(indices), 2)):
        raise PolicyError(f"{where}: {prefix} has modules other than Linear layers and activations between them")
    return [_read_linear(f"{prefix}.{index}", weights, where) for index in sorted(indices)]


def _read_linear(name: str, weights: Weights, where: str) -> Linear:
    weight, bias = read_affine(name, weights, where)
    if weight.ndim != 2:
        raise PolicyError(f"{where}: {name} has weights of shape {weight.shape}, which no Linear layer has")
    return Linear(weight, bias)


def read_affine(name: str, weights: Weights, where: str) -> tuple[Floats, Floats]:
    """Weight and bias of the module called `name`; PolicyError when there is none, or an empty one."""
    if f"{name}.weight" not in weights:
        raise PolicyError(f"{where}: {name} has a bias and no weights; restore the file")
    weight = weights[f"{name}.weight"]
    if weight.ndim == 0 or 0 in weight.shape:
        raise PolicyError(f"{where}: {name} has weights of shape {weight.shape}, which no layer has")
    return weight, weights.get(f"{name}.bias", np.zeros(len(weight), np.float32))


def _find_extractor(form: SavedForm, weights: Weights) -> str:
    there = (own for own in form.extractors if any(name.startswith(f"{own}.") for name in weights))
    return next(there, form.extractors[-1])


def _has_layers(prefix: str, part: Part, weights: Weights) -> bool:
    return any(name.startswith(f"{prefix}.extractors.{part.name}.") for name in weights)


def _read_extractor(prefix: str, weights: Weights, parts: Sequence[Part], where: str) -> Iterator[Layer]:
    """The layers of a NatureCNN, or of every part that has one, or none for flattened observations."""
    names = {name for name in weights if name.startswith(prefix + ".")}
    inner = [f"{prefix}.extractors.{part.name}" for part in parts if _has_layers(prefix, part, weights)]
    owned = [{name for name in names if name.startswith(f"{one}.")} for one in inner]
    if inner and set.union(*owned) == names:
        for one, own in zip(inner, owned, strict=True):
            yield from _read_nature(one, own, weights, where)
    elif names:
        yield from _read_nature(prefix, names, weights, where)


def _read_nature(prefix: str, names: set[str], weights: Weights, where: str) -> Iterator[Layer]:
    modules = [*(f"{prefix}.cnn.{index}" for index in STRIDES), f"{prefix}.linear.0"]
    kernels = [weights[f"{name}.weight"].shape[2:] for name in modules[:3] if f"{name}.weight" in weights]
    nature = {f"{name}.{kind}" for name in modules for kind in ("weight", "bias")}
    if names != nature or kernels != [(8, 8), (4, 4), (3, 3)]:
        raise PolicyError(
            f"{where}: {prefix[:80]} is no NatureCNN, and no other features extractor has a portable form"
        )
    for name, stride in zip(modules, STRIDES.values(), strict=False):
        yield Conv2d(*read_affine(name, weights, where), stride, Activation.RELU)
    yield replace(_read_linear(modules[3], weights, where), activation=Activation.RELU)
