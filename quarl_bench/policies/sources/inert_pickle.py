"""Reading a pickle as inert data: no name in it is imported, nothing in it is called.

`pickle` executes what a file says. This reader walks the same opcodes and only notes what they ask for: a call stays a
`Call`. Names and opcodes that plain data does not need are refused.
"""

import pickletools
import struct
import sys
import warnings
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from quarl_bench.errors import PolicyError

CONSTANTS: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
NO_DATA = frozenset({"PROTO", "FRAME", "STOP"})
NUMBERS = {"INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"}
TEXTS = {"STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
LITERALS = frozenset(NUMBERS | TEXTS | {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"})
Key = str | int | bytes | None
LARGEST_KEY = 2**31  # multiples of 2**61 - 1 have one hash: with them a dictionary takes for ever
MARK = object()
MADE = "()"  # behind a name: what its call would give


@dataclass(frozen=True)
class Name:
    """A global that a pickle mentions, as "module.name"."""

    text: str


@dataclass(eq=False)
class Call:
    """What a pickle wanted to be called: `name(*args)`, then given `state` and `entries`."""

    name: str
    args: Any
    state: Any = None
    entries: dict[Key, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Reference:
    """Something kept outside the pickle (torch's storages)."""

    id: Any


def read_pickle(
    data: bytes,
    known: Container[str],
    where: str,
    *,
    references: bool = False,
    code: bool = False,
    operations: int = sys.maxsize,
) -> Any:
    """The data of a pickle whose globals are all in `known`; PolicyError, beginning with `where`, for anything else.

    `code` reads what cloudpickle writes of functions and classes too: sets, and calls of what a call would give.
    """
    reader = _Reader(known, where, references=references, code=code)
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd escapes in texts
            for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
                if number >= operations:
                    raise PolicyError(f"{where}: a pickle of more than {operations} operations; it is refused")
                reader.take(opcode.name, argument)
        return reader.pop()
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, struct.error) as error:
        said = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise PolicyError(f"{where}: damaged, or not a pickle ({said}); restore it") from error


class _Reader:
    def __init__(self, known: Container[str], where: str, *, references: bool, code: bool) -> None:
        self._known, self._where, self._references, self._code = known, where, references, code
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._actions: dict[str, Callable[[], None]] = {
            "MARK": lambda: self._stack.append(MARK),
            "EMPTY_LIST": lambda: self._stack.append([]),
            "EMPTY_DICT": lambda: self._stack.append({}),
            "TUPLE": lambda: self._stack.append(tuple(self._pop_to_mark())),
            "TUPLE1": lambda: self._tuple(1),
            "TUPLE2": lambda: self._tuple(2),
            "TUPLE3": lambda: self._tuple(3),
            "LIST": lambda: self._stack.append(self._pop_to_mark()),
            "DICT": lambda: self._stack.append(_pair(self._pop_to_mark())),
            "APPEND": lambda: self._extend([self.pop()]),
            "APPENDS": lambda: self._extend(self._pop_to_mark()),
            "SETITEM": lambda: self._update([self.pop(), self.pop()][::-1]),
            "SETITEMS": lambda: self._update(self._pop_to_mark()),
            "POP": lambda: _drop(self._stack.pop()),
            "POP_MARK": lambda: _drop(self._pop_to_mark()),
            "MEMOIZE": lambda: self._memo.__setitem__(len(self._memo), self._stack[-1]),
            "STACK_GLOBAL": lambda: self._name([self.pop(), self.pop()][::-1]),
            "REDUCE": self._call,
            "NEWOBJ": self._call,
            "BUILD": self._build,
        }
        if code:
            self._actions |= {
                "EMPTY_SET": self._actions["EMPTY_LIST"],
                "ADDITEMS": self._actions["APPENDS"],
                "FROZENSET": self._actions["LIST"],
            }

    def take(self, opcode: str, argument: Any) -> None:
        if opcode in NO_DATA:
            return
        if opcode in LITERALS:
            self._stack.append(argument)
        elif opcode in CONSTANTS:
            self._stack.append(CONSTANTS[opcode])
        elif opcode in {"PUT", "BINPUT", "LONG_BINPUT"}:
            if not _is_key(argument):
                raise ValueError("a memo of more places than any file has")
            self._memo[argument] = self._stack[-1]
        elif opcode in {"GET", "BINGET", "LONG_BINGET"}:
            self._stack.append(self._memo[argument])
        elif opcode == "GLOBAL":
            self._name(argument.split(" ", 1))
        elif opcode == "BINPERSID" and self._references:
            self._stack.append(Reference(self.pop()))
        elif opcode in self._actions:
            self._actions[opcode]()
        else:
            raise PolicyError(f"{self._where}: the pickle uses {opcode}, which plain data does not need; it is refused")

    def pop(self) -> Any:
        item = self._stack.pop()
        if item is MARK:
            raise ValueError("an unexpected mark")
        return item

    def _pop_to_mark(self) -> list[Any]:
        start = len(self._stack) - 1
        while self._stack[start] is not MARK:
            start -= 1
            if start < 0:
                raise ValueError("no mark")
        items = self._stack[start + 1 :]
        del self._stack[start:]
        return items

    def _tuple(self, count: int) -> None:
        self._stack.append(tuple([self.pop() for _ in range(count)][::-1]))

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise TypeError("items for something that is not a list")
        target.extend(items)

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Call):
            target = target.entries
        if not isinstance(target, dict):
            raise TypeError("entries for something that is not a dictionary")
        target.update(_pair(items))

    def _name(self, parts: list[Any]) -> None:
        text = ".".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else "something unnamed"
        if text not in self._known:
            remedy = "; save the module's state_dict, or export it to .onnx" if text.startswith("torch.nn.") else ""
            raise PolicyError(
                f"{self._where}: the pickle would load {text[:80]!r}, which is no data of a policy; it is refused, and "
                f"nothing of it was executed{remedy}"
            )
        self._stack.append(Name(text))

    def _call(self) -> None:
        args, target = self.pop(), self.pop()
        if self._code and isinstance(target, Call):
            target = Name(f"{target.name.removesuffix(MADE)}{MADE}")
        if not isinstance(target, Name):
            raise TypeError("a call of something unnamed")
        self._stack.append(Call(target.text, args))

    def _build(self) -> None:
        state, target = self.pop(), self._stack[-1]
        if isinstance(target, Call):
            target.state = state
        elif not self._code:
            raise TypeError("a state for plain data")


def _pair(items: list[Any]) -> dict[Key, Any]:
    if len(items) % 2 or not all(map(_is_key, items[::2])):
        raise TypeError("keys that are neither text nor small whole numbers")  # hashing tuples could take for ever
    return dict(zip(items[::2], items[1::2], strict=True))


def _is_key(key: Any) -> bool:
    return isinstance(key, Key) and not (isinstance(key, int) and abs(key) >= LARGEST_KEY)


def _drop(_: Any) -> None:
    """Take what a pickle hands over, and do nothing with it."""
