"""Torch's operators as a program that is followed knows them: of numbers calculated, of the observation a node."""

from collections.abc import Callable
from typing import Any

import numpy as np

from quarl_bench.policies.sources.torchscript.file import Instance, Numbers
from quarl_bench.policies.sources.torchscript.program import Flow, Program, Remembered

FUNCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {  # of one tensor: its name in ONNX, and its arguments' there
    "relu": ("Relu", ()), "relu6": ("Clip", ()),
    "tanh": ("Tanh", ()), "sigmoid": ("Sigmoid", ()), "selu": ("Selu", ()), "silu": ("Swish", ()),
    "elu": ("Elu", ("alpha",)), "gelu": ("Gelu", ("approximate",)), "leaky_relu": ("LeakyRelu", ("alpha",)),
    "softplus": ("Softplus", ()), "hardtanh": ("Clip", ("min", "max")), "hardswish": ("HardSwish", ()),
    "clamp": ("Clip", ("min", "max")), "exp": ("Exp", ()), "neg": ("Neg", ()), "abs": ("Abs", ()),
}  # fmt: skip
DEFAULTS = {"hardtanh": {"min": -1.0, "max": 1.0}, "relu6": {"min": 0.0, "max": 6.0}}
PLAIN = {"softplus": (1, 20)}  # the only values of its other arguments; elsewhere they are 1
ARITHMETIC: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("Add", np.add), "sub": ("Sub", np.subtract), "mul": ("Mul", np.multiply), "div": ("Div", np.divide),
}  # fmt: skip
PLAIN_VALUES = (int, float, str, type(None))
LARGEST = 2**63  # of whole numbers, as torch has them
SIZES = (int, float, bool, np.ndarray)
Operator = Callable[..., Any]


def _as_array(program: Program, value: Any) -> Any:
    if isinstance(value, Numbers):
        return value.values
    if isinstance(value, SIZES):
        return np.asarray(value, dtype=np.float64)
    raise program.refuse(f"its code calculates with {type(value).__name__}")


def _compare(equal: bool) -> Operator:
    def apply(program: Program, x: Any, y: Any) -> bool:
        parts = [*(x if isinstance(x, list | tuple) else [x]), *(y if isinstance(y, list | tuple) else [y])]
        if not all(isinstance(part, PLAIN_VALUES) for part in parts):
            raise program.refuse("its code compares other things than numbers and shapes")
        return bool(x == y) is equal

    return apply


def _elementwise(name: str) -> Operator:
    operator, names = FUNCTIONS[name]

    def apply(program: Program, x: Any, *given: Any, **named: Any) -> Flow:
        if not isinstance(x, Flow):
            raise program.refuse(f"{name} of what is no observation")
        known = dict(zip(names, given, strict=False)) | {key: value for key, value in named.items() if key in names}
        rest = given[len(names) :]
        if rest != PLAIN.get(name, (1,) * len(rest))[: len(rest)]:
            raise program.refuse(f"{name} with arguments {given}")
        known = DEFAULTS.get(name, {}) | known
        return program.emit(
            operator, x, [], x.shape, **{key: value for key, value in known.items() if value is not None}
        )

    return apply


def _arithmetic(name: str) -> Operator:
    operator, calculate = ARITHMETIC[name]

    def apply(program: Program, x: Any, y: Any, *rest: Any, **named: Any) -> Any:
        if any(value != 1 for value in (*rest, *named.values())):
            raise program.refuse(f"{name} with a factor, or rounded")
        if isinstance(x, Flow) and isinstance(y, Flow):
            return _join(program, operator, x, y)
        if isinstance(x, Flow):
            return program.emit(operator, x, [_as_array(program, y)], x.shape)
        if isinstance(y, Flow):
            made = program.emit(operator, y, [_as_array(program, x)], y.shape)
            node = program.nodes[-1]
            program.nodes[-1] = type(node)(node.operator, node.name, node.inputs[::-1], node.outputs, node.attributes)
            return made
        if isinstance(x, int) and isinstance(y, int) and name != "div":
            if abs(x) >= LARGEST or abs(y) >= LARGEST:
                raise program.refuse("whole numbers that torch does not have")
            return {"add": x + y, "sub": x - y, "mul": x * y}[name]
        return Numbers(np.asarray(calculate(_as_array(program, x), _as_array(program, y))))

    return apply


def _join(program: Program, operator: str, x: Flow, y: Flow) -> Flow:
    """Of two tensors of the observation, as x * sigmoid(x): the chain's reader says which are known."""
    made = program.emit(operator, x, [], x.shape)
    node = program.nodes[-1]
    program.nodes[-1] = type(node)(node.operator, node.name, (x.name, y.name), node.outputs, node.attributes)
    return made


def _linear(program: Program, x: Any, weight: Any, bias: Any = None) -> Flow:
    if not isinstance(x, Flow) or not isinstance(weight, Numbers) or weight.values.ndim != 2:
        raise program.refuse("a linear map of what is no observation, or by what are no numbers")
    if x.shape[-1] != weight.values.shape[1]:
        raise program.refuse(
            f"weights for {weight.values.shape[1]} inputs behind {x.shape[-1]}; pass its own environment"
        )
    others = [weight.values, None if bias is None else _as_array(program, bias)]
    return program.emit("Gemm", x, others, (*x.shape[:-1], len(weight.values)), transB=1)


def _recurrent(kind: str) -> Operator:
    def apply(program: Program, x: Any, state: Any, weights: Any, *given: Any) -> Any:
        before = state if isinstance(state, list) else [state]
        if not isinstance(x, Flow) or not isinstance(weights, list) or len(given) != 6 or x.shape[:-1] != (1, 1):
            raise program.refuse(f"a {kind.upper()} of something else than one observation")
        biased, count, _, _, both_ways, _ = given
        parts, width = 4 if biased is True else 2, int(before[0].values.shape[-1]) if _are_zero(before) else 0
        if both_ways is not False or len(weights) != count * parts or not width:
            what = f"a {kind.upper()} that begins otherwise than at zeros, reads both ways, or is projected"
            raise program.refuse(what)
        if any(part.values.shape != (count, 1, width) for part in before):
            raise program.refuse(f"a {kind.upper()}'s state of other shape than {(count, 1, width)}")
        name = ""
        for layer in range(count):
            own = [one.values for one in weights[layer * parts : (layer + 1) * parts]]
            first, second, *biases = own
            biases = biases or [np.zeros(len(first), np.float32)] * 2
            x = program.emit("Cell", x, [first, biases[0], second, biases[1]], (1, 1, width), kind=kind)
            name = name or x.name
        behind = tuple(Remembered(name, part) for part in range(len(before)))
        program.read |= dict(zip(behind, before, strict=True))
        return (x, *behind)

    return apply


def _are_zero(state: list[Any]) -> bool:
    return all(isinstance(part, Numbers) and part.values.size and not part.values.any() for part in state)


def _find_shape(program: Program, x: Any) -> tuple[int, ...]:
    if isinstance(x, Flow):
        return x.shape
    if isinstance(x, Numbers):
        return tuple(map(int, x.values.shape))
    if isinstance(x, Remembered):  # of a recurrent module: (layers, batch, units)
        return tuple(map(int, program.read[x].values.shape))
    raise program.refuse(f"its code asks for the shape of {type(x).__name__}")


def _size(program: Program, x: Any, axis: int | None = None) -> Any:
    shape = _find_shape(program, x)
    return [*shape] if axis is None else shape[axis]


def _squeeze(program: Program, x: Any, axis: int) -> Any:
    shape = _find_shape(program, x)
    if not isinstance(x, Flow) or shape[axis] != 1:
        raise program.refuse("squeezes what is no axis of one")
    place = axis % len(shape)
    return Flow(x.name, (*shape[:place], *shape[place + 1 :]))


def _unsqueeze(program: Program, x: Any, axis: int) -> Any:
    if not isinstance(x, Flow) or not -len(x.shape) - 1 <= axis <= len(x.shape):
        raise program.refuse("unsqueezes what is no observation")
    place = axis % (len(x.shape) + 1)
    return Flow(x.name, (*x.shape[:place], 1, *x.shape[place:]))


def _slice(program: Program, x: Any, axis: int = 0, first: Any = None, last: Any = None, step: int = 1) -> Any:
    """All of a buffer, or of the batch; of the outputs a part."""
    length = _find_shape(program, x)[axis]
    begin, end = 0 if first is None else first, length if last is None else min(last, length)
    if (begin, end, step) == (0, length, 1):
        return x
    if not isinstance(x, Flow) or step != 1 or axis not in (-1, len(x.shape) - 1) or not 0 <= begin < end:
        raise program.refuse("takes no plain part of the outputs")
    attributes = {"axes": [-1], "starts": [begin], "ends": [end]}
    return program.emit("Slice", x, [], (*x.shape[:-1], end - begin), **attributes)


def _copy(program: Program, buffer: Any, value: Any, *_: Any) -> Any:
    program.keep(buffer, value)
    return buffer


def _raise(program: Program, *_: Any, **__: Any) -> None:
    raise program.refuse("its code raises an error for observations of this environment")


def _getattr(program: Program, owner: Any, name: Any) -> Any:
    if not isinstance(owner, Instance) or not isinstance(name, str):
        raise program.refuse("its code asks for an attribute of what is no object")
    return program.find(owner, name)


def _same(_: Program, x: Any, *__: Any, **___: Any) -> Any:
    return x


OPERATORS: dict[str, Operator] = {
    "getattr": _getattr,
    "int": lambda _, x: int(x),
    "bool": lambda _, x: bool(x),
    "float": lambda _, x: float(x),
    "ops.prim.RaiseException": _raise,
    "ops.prim.dtype": lambda *_: 6,
    "ops.prim.device": lambda *_: "cpu",
    "torch.linear": _linear,
    "torch.lstm": _recurrent("lstm"),
    "torch.gru": _recurrent("gru"),
    "torch.dim": lambda program, x: len(_find_shape(program, x)),
    "torch.size": _size,
    "torch.len": lambda _, x: len(x),
    "torch.gt": lambda _, x, y: bool(x > y),
    "torch.lt": lambda _, x, y: bool(x < y),
    "torch.eq": _compare(equal=True),
    "torch.ne": _compare(equal=False),
    "torch.__not__": lambda _, x: not x,
    "torch.__is__": lambda _, x, y: x is y,
    "torch.__isnot__": lambda _, x, y: x is not y,
    "torch.__contains__": lambda program, x, y: any(_compare(equal=True)(program, one, y) for one in x),
    "torch.format": lambda *_: "",
    "torch.list": lambda _, x: list(x),
    "torch.squeeze": _squeeze,
    "torch.unsqueeze": _unsqueeze,
    "torch.slice": _slice,
    "torch.copy_": _copy,
    "torch.contiguous": _same,
    "torch.detach": _same,
    "torch.dropout": _same,  # drops in training only
    **{f"torch.{name}{ending}": _elementwise(name) for name in FUNCTIONS for ending in ("", "_")},
    **{f"torch.{name}{ending}": _arithmetic(name) for name in ARITHMETIC for ending in ("", "_")},
}
