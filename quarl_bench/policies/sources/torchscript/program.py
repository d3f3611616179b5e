"""What a TorchScript program computes of one observation, as the graph that an ONNX file becomes.

Its code is followed statement by statement with the shapes of one observation: numbers that are known are calculated,
and what is done to the observation becomes a node. Nothing is handed to Python or to torch. Loops, and calls that are
not known, are refused by name; so are states that are read and not kept.
"""

import ast
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.onnx.nodes import Array, Graph, Node
from quarl_bench.policies.sources.torchscript.file import SCRIPT, Instance, Numbers, Script

STEPS, DEPTH = 20_000, 40  # statements, and calls within each other
INPUT = "observation"
IN_PLACE = re.compile(r"[a-z0-9]_$")  # a name of torch's operators that write over what they read; no `__is__`


@dataclass(frozen=True)
class Flow:
    """What the observation has become: the name of a tensor, and its shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Remembered:
    """The state behind a step of the cells that a node began; part 0 is hidden, part 1 an LSTM's cell state."""

    node: str
    part: int


@dataclass(frozen=True)
class Function:
    """A function of torch or of the archive, by its name; `owner` is the object that it is a method of."""

    name: str
    owner: Instance | None = None


@dataclass(frozen=True)
class Frame:
    """The names of one call."""

    names: dict[str, Any]
    where: str


class Returned(Exception):
    """A return statement was reached."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


@dataclass(eq=False)
class Program:
    """A program that is followed: the graph so far, and the states that were read and kept."""

    script: Script
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    read: dict[Remembered, Numbers] = field(default_factory=dict)  # the state before, by the one behind
    kept: dict[int, Remembered] = field(default_factory=dict)  # by the tensor that is overwritten
    overwritten: set[str] = field(default_factory=set)  # names of what an operator has written over in place
    steps: int = 0
    depth: int = 0

    def refuse(self, what: str) -> PolicyError:
        """The error that names the file, what is not known in it, and what to do."""
        return PolicyError(f"{self.script.where}: {what}; export the network alone, or to ONNX")

    def follow(self, shape: tuple[int, ...]) -> Graph:
        """The graph of the module's forward for one observation of this shape."""
        module = self.script.module
        result = self.call(Function(f"{module.kind}.forward", module), [Flow(INPUT, (1, *shape))], {})
        if not isinstance(result, Flow):
            raise self.refuse(f"its forward gives {type(result).__name__}, not one tensor of the observation")
        for behind, before in self.read.items():
            if self.kept.get(id(before)) != behind:
                raise self.refuse("a recurrent module's new state is not kept in the buffer that it is read from")
        return Graph(self.script.where, INPUT, result.name, tuple(self.nodes), self.constants)

    def emit(self, operator: str, flow: Flow, others: list[Any], shape: tuple[int, ...], **attributes: Any) -> Flow:
        """A node that reads `flow` and constants."""
        name, inputs = f"_{len(self.nodes)}", [flow.name]
        for place, other in enumerate(others):
            inputs.append("" if other is None else f"{name}.{place}")
            if other is not None:
                self.constants[inputs[-1]] = np.asarray(other)
        self.nodes.append(Node(operator, name, tuple(inputs), (name,), attributes))
        return Flow(name, shape)

    def call(self, function: Any, given: list[Any], named: dict[str, Any]) -> Any:
        """What a function gives."""
        from quarl_bench.policies.sources.torchscript.operators import OPERATORS

        if not isinstance(function, Function):
            raise self.refuse(f"its code calls {type(function).__name__}")
        if not function.name.startswith(SCRIPT):
            operator = OPERATORS.get(function.name)
            if operator is None:
                raise self.refuse(f"its code calls {function.name[:60]}, which has no portable form")
            made = operator(self, *given, **named)
            if IN_PLACE.search(function.name) and given:
                self._overwrite(given[0])
            return made
        definition = self.script.functions.get(function.name)
        if definition is None:
            raise self.refuse(f"no code of {function.name.removeprefix(SCRIPT)[:60]}")
        if self.depth >= DEPTH:
            raise self.refuse("calls within calls, more than a policy has")
        self.depth += 1
        names = self._bind(definition, ([function.owner] if function.owner else []) + given, named)
        try:
            self._run(definition.body, Frame(names, function.name))
        except Returned as returned:
            return returned.value
        finally:
            self.depth -= 1
        return None

    def _overwrite(self, value: Any) -> None:
        """What stood here is gone: whoever reads it again is refused; a buffer's numbers may not change at all."""
        if isinstance(value, Flow):
            self.overwritten.add(value.name)
        elif isinstance(value, Numbers) and id(value) not in self.kept:
            raise self.refuse("its code overwrites something else than a recurrent module's state")

    def _bind(self, definition: ast.FunctionDef, given: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        parameters = [one.arg for one in definition.args.args]
        defaults = definition.args.defaults
        names = dict(zip(parameters[len(parameters) - len(defaults) :], map(ast.literal_eval, defaults), strict=True))
        names |= dict(zip(parameters, given, strict=False)) | named
        if len(given) > len(parameters) or set(names) != set(parameters):
            raise self.refuse(f"a call of {definition.name[:40]} with other arguments than it takes")
        return names

    def _run(self, statements: list[ast.stmt], frame: Frame) -> None:
        for statement in statements:
            self.steps += 1
            if self.steps > STEPS:
                raise self.refuse(f"more than {STEPS} statements")
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], self._evaluate(statement.value, frame), frame)
            elif isinstance(statement, ast.Expr):
                self._evaluate(statement.value, frame)
            elif isinstance(statement, ast.Return):
                raise Returned(None if statement.value is None else self._evaluate(statement.value, frame))
            elif isinstance(statement, ast.If):
                test = self._evaluate(statement.test, frame)
                if not isinstance(test, bool):
                    raise self.refuse(f"{_name(frame)} decides by numbers of the observation")
                self._run(statement.body if test else statement.orelse, frame)
            elif not isinstance(statement, ast.Pass):
                raise self.refuse(f"{_name(frame)} has a {type(statement).__name__} statement")

    def _assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, tuple | list) and len(value) == len(target.elts):
            for one, part in zip(target.elts, value, strict=True):
                self._assign(one, part, frame)
        elif isinstance(target, ast.Attribute) and isinstance(owner := self._evaluate(target.value, frame), Instance):
            self.keep(owner.attributes.get(target.attr), value)
        else:
            raise self.refuse(f"{_name(frame)} assigns in a way that is not known")

    def keep(self, buffer: Any, value: Any) -> None:
        """Overwrite a buffer by a state; anything else that is overwritten is refused."""
        if not isinstance(buffer, Numbers) or not isinstance(value, Remembered):
            raise self.refuse("its code overwrites something else than a recurrent module's state")
        self.kept[id(buffer)] = value

    def _evaluate(self, node: ast.expr, frame: Frame) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._read(node.id, frame)
        if isinstance(node, ast.Tuple | ast.List):
            values = [self._evaluate(one, frame) for one in node.elts]
            return tuple(values) if isinstance(node, ast.Tuple) else values
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._evaluate(node.operand, frame)
            if isinstance(value, int | float):
                return -value
        if isinstance(node, ast.Attribute):
            return self.find(self._evaluate(node.value, frame), node.attr)
        if isinstance(node, ast.Subscript):
            value, index = self._evaluate(node.value, frame), self._evaluate(node.slice, frame)
            if isinstance(value, tuple | list) and isinstance(index, int) and -len(value) <= index < len(value):
                return value[index]
        if isinstance(node, ast.Call):
            return self._call(node, frame)
        raise self.refuse(f"{_name(frame)} has an expression that is not known ({ast.unparse(node)[:40]})")

    def _read(self, name: str, frame: Frame) -> Any:
        found = frame.names[name] if name in frame.names else Function(name)
        if isinstance(found, Flow) and found.name in self.overwritten:
            raise self.refuse(f"its code reads {name[:40]} again, which an operator has overwritten in place")
        return found

    def _call(self, node: ast.Call, frame: Frame) -> Any:
        named = {one.arg: self._evaluate(one.value, frame) for one in node.keywords if one.arg is not None}
        if isinstance(node.func, ast.Name) and node.func.id in ("annotate", "unchecked_cast", "uninitialized"):
            return self._evaluate(node.args[1], frame) if len(node.args) > 1 else None  # of a type, and a value
        function = self._evaluate(node.func, frame)
        return self.call(function, [self._evaluate(one, frame) for one in node.args], named)

    def find(self, owner: Any, name: str) -> Any:
        """An attribute of an object, a method of it, or a longer name of a function."""
        if isinstance(owner, Function) and owner.owner is None:
            return Function(f"{owner.name}.{name}")
        if not isinstance(owner, Instance):
            raise self.refuse(f"its code asks {type(owner).__name__} for {name[:40]}")
        if name in owner.attributes:
            return owner.attributes[name]
        if f"{owner.kind}.{name}" in self.script.constants:
            return self._evaluate(self.script.constants[f"{owner.kind}.{name}"], Frame({}, owner.kind))
        return Function(f"{owner.kind}.{name}", owner)


def follow_script(script: Script, shape: tuple[int, ...]) -> Graph:
    """What a script's module makes of one observation of this shape; PolicyError for what is not known."""
    try:
        return Program(script).follow(shape)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        said = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise PolicyError(f"{script.where}: its code does what is not known ({said}); export to ONNX") from error


def _name(frame: Frame) -> str:
    return f"code of {frame.where.removeprefix(SCRIPT)[:80]}"
