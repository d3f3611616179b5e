"""A TorchScript archive as inert values: objects with their attributes, tensors, and the text of their code.

The objects lie in a pickle, which is walked and not loaded; a class in it is a name, under which its code is found.
Code is text: it is parsed, and never compiled or run.
"""

import ast
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.archive import Archive, open_archive
from quarl_bench.policies.sources.inert_pickle import Call, Name, Reference, read_pickle
from quarl_bench.policies.sources.strides import view

LIMIT, PICKLE_LIMIT, CODE_LIMIT = 2**28, 2**22, 2**21  # bytes of all members, of the objects, of all code
LINE, BRACKETS = 20_000, 60  # of code: characters of a line, and brackets within each other
SCRIPT = "__torch__."  # what the name of a class or function in the archive begins with
REBUILD = "torch._utils._rebuild_tensor_v2"
TYPES = {
    "torch.FloatStorage": "<f4", "torch.DoubleStorage": "<f8", "torch.HalfStorage": "<f2", "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4", "torch.BoolStorage": "?",
}  # fmt: skip
LISTS = frozenset(f"torch.jit._pickle.build_{kind}list" for kind in ("int", "tensor", "double", "bool"))


class _Known(frozenset[str]):
    """The names that may stand in the pickle: torch's own of tensors and lists, and every class of the archive."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and name.startswith(SCRIPT))


TAGGED = "torch.jit._pickle.restore_type_tag"  # of a value and the name of its type
KNOWN = _Known({"collections.OrderedDict", REBUILD, TAGGED, *TYPES, *LISTS})


@dataclass(frozen=True, eq=False)
class Numbers:
    """A tensor of the archive. Two attributes with one object are one tensor."""

    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Instance:
    """An object: the name of its class, and its attributes."""

    kind: str
    attributes: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Script:
    """An archive: its module, the functions of its code by name, and attributes that classes have."""

    where: str
    module: Instance
    functions: dict[str, ast.FunctionDef]
    constants: dict[str, Any]  # by the name of the class, a dot, and that of the attribute


def is_script(data: bytes) -> bool:
    """Whether a file is an archive with code."""
    try:
        return any("/code/__torch__" in name for name in open_archive(data, "", LIMIT).sizes)
    except PolicyError:
        return False


def read_script(data: bytes, where: str) -> Script:
    """The objects and the code in `data`; PolicyError for what is no TorchScript, damaged, or not to be trusted."""
    archive = open_archive(data, where, LIMIT)
    root = next((name.partition("/")[0] for name in archive.sizes if "/code/__torch__" in name), None)
    if root is None:
        raise PolicyError(f"{where}: no TorchScript; of a state dictionary name the modules, as --arch fc1,relu,fc2")
    if f"{root}/byteorder" in archive.sizes and archive.read(f"{root}/byteorder", 16) != b"little":
        raise PolicyError(f"{where}: its numbers have the other byte order; save it on a little-endian machine")
    found = read_pickle(archive.read(f"{root}/data.pkl", PICKLE_LIMIT), KNOWN, where, references=True)
    try:
        module = _Objects(archive, root).read(found)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise PolicyError(f"{where}: damaged ({type(error).__name__}); save it again") from error
    if not isinstance(module, Instance):
        raise PolicyError(f"{where}: holds no module; save one by torch.jit.save")
    script = Script(where, module, {}, {})
    code = [name for name in archive.sizes if name.startswith(f"{root}/code/") and name.endswith(".py")]
    if sum(archive.sizes[name] for name in code) > CODE_LIMIT:
        raise PolicyError(f"{where}: more than {CODE_LIMIT} bytes of code, and a policy has fewer; it is refused")
    for name in code:
        prefix = name.removeprefix(f"{root}/code/").removesuffix(".py").replace("/", ".")
        for statement in parse(archive.read(name, CODE_LIMIT), f"{where}: {name[:80]}"):
            _file(script, statement, prefix)
    return script


def parse(code: bytes, where: str) -> list[ast.stmt]:
    """The statements of a text; PolicyError for none, and for one that is nested more deeply than programs are."""
    try:
        text = code.decode()
        depth = deepest = 0
        for letter in text:
            depth += (letter in "([{") - (letter in ")]}")
            deepest = max(deepest, depth)
        if deepest > BRACKETS or max(map(len, text.splitlines()), default=0) > LINE:
            raise PolicyError(f"{where}: code that is nested more deeply, or wider, than a policy's; it is refused")
        return ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise PolicyError(f"{where}: no code of TorchScript ({type(error).__name__}); save it again") from error


def _file(script: Script, statement: ast.stmt, prefix: str) -> None:
    """Take down what a statement at the top of a file defines."""
    if isinstance(statement, ast.FunctionDef):
        script.functions[f"{prefix}.{statement.name}"] = statement
    elif isinstance(statement, ast.ClassDef):
        for inner in statement.body:
            if isinstance(inner, ast.FunctionDef):
                script.functions[f"{prefix}.{statement.name}.{inner.name}"] = inner
            elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name) and inner.value is not None:
                script.constants[f"{prefix}.{statement.name}.{inner.target.id}"] = inner.value


class _Objects:
    """From what a pickle asks for to values, each object once."""

    def __init__(self, archive: Archive, root: str) -> None:
        self._archive, self._root = archive, root
        self._made: dict[int, Any] = {}
        self._storages: dict[str, NDArray[Any]] = {}
        self._read = 0  # bytes of tensors so far: many may claim one storage

    def read(self, item: Any) -> Any:
        if isinstance(item, list | tuple):
            return type(item)(self.read(one) for one in item)
        if isinstance(item, dict):
            return {str(name): self.read(one) for name, one in item.items()}
        if not isinstance(item, Call):
            return item
        if id(item) not in self._made:
            self._made[id(item)] = self._make(item)
        return self._made[id(item)]

    def _make(self, call: Call) -> Any:
        if call.name == REBUILD:
            return self._read_tensor(*call.args[:4])
        if call.name in LISTS or call.name == TAGGED:
            return self.read(call.args[0])
        if not call.name.startswith(SCRIPT):
            raise TypeError(f"a call of {call.name[:40]}")
        made = Instance(call.name, {})
        self._made[id(call)] = made
        made.attributes.update(self.read(call.state or {}))
        return made

    def _read_tensor(self, storage: Reference, offset: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> Numbers:
        _, kind, key, _, _ = storage.id
        if not isinstance(kind, Name) or not all(isinstance(n, int) and n >= 0 for n in (offset, *shape, *steps)):
            raise TypeError("a tensor of something else than numbers")
        if key not in self._storages:
            content = self._archive.read(f"{self._root}/data/{key}", LIMIT)
            self._storages[key] = np.frombuffer(content, TYPES[kind.text])
        values = view(self._storages[key], offset, shape, steps)
        self._read += values.size * 8
        if self._read > LIMIT:
            raise ValueError("tensors larger than their file")
        return Numbers(values)
