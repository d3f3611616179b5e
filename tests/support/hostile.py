"""Pickles that would do something if they were opened."""

import os
import pickle
import struct
from typing import Any

CANARY = "canary"


TOUCH = f"open({CANARY!r}, 'w').close()"


class Reduced:
    """Pickles as a call."""

    def __init__(self, *reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> Any:
        return self._reduced


def write_text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def write_call(module: str, name: str, *arguments: str) -> bytes:
    """The opcodes of `module.name(*arguments)`, without a header."""
    return f"c{module}\n{name}\n(".encode() + b"".join(map(write_text, arguments)) + b"tR"


def dump(*reduced: Any, protocol: int = 2) -> bytes:
    return pickle.dumps(Reduced(*reduced), protocol)


def write_getattr_chain() -> bytes:
    """getattr(__import__('os'), 'system')('touch canary')."""
    imported = write_call("builtins", "__import__", "os")
    return b"\x80\x02cbuiltins\ngetattr\n(" + imported + write_text("system") + b"tR(" + write_text(COMMAND) + b"tR."


COMMAND = f"touch {CANARY}"


LIVE: dict[str, bytes] = {
    "os_system": b"\x80\x02" + write_call("os", "system", COMMAND) + b".",
    "posix_system": dump(os.system, (COMMAND,)),
    "protocol_0": b"cos\nsystem\n(S'" + COMMAND.encode() + b"'\ntR.",
    "protocol_5": dump(os.system, (COMMAND,), protocol=5),
    "mknod": b"\x80\x02" + write_call("posix", "mknod", CANARY) + b".",
    "subprocess": b"\x80\x02csubprocess\ncheck_call\n((lp0\n"
    + write_text("touch")
    + b"a"
    + write_text(CANARY)
    + b"atR.",
    "eval": b"\x80\x02" + write_call("builtins", "eval", TOUCH) + b".",
    "exec": b"\x80\x02" + write_call("builtins", "exec", TOUCH) + b".",
    "python_2": b"\x80\x02" + write_call("__builtin__", "eval", TOUCH) + b".",
    "importlib": b"\x80\x02cbuiltins\ngetattr\n("
    + write_call("importlib", "import_module", "os")
    + write_text("mknod")
    + b"tR("
    + write_text(CANARY)
    + b"tR.",
    "getattr": write_getattr_chain(),
    "stack_global": b"\x80\x04\x8c\x02os\x8c\x06system\x93(" + write_text(COMMAND) + b"tR.",
    "instance": b"(S'" + COMMAND.encode() + b"'\nios\nsystem\n.",
    "object": b"(cos\nsystem\nS'" + COMMAND.encode() + b"'\no.",
    "nested": dump(pickle.loads, (dump(os.system, (COMMAND,)),)),
    "behind_data": b"\x80\x02}(" + write_text("obs_rms") + write_call("os", "system", COMMAND) + b"u.",
    "dropped": b"\x80\x02" + write_call("os", "system", COMMAND) + b"0}.",
    "numpy_runstring": b"\x80\x02cnumpy.testing._private.utils\nrunstring\n(" + write_text(TOUCH) + b"}tR.",
    "torch_load": b"\x80\x02ctorch.storage\n_load_from_bytes\n(" + b"B" + struct.pack("<I", 4) + b"junk" + b"tR.",
    "dictionary_key": b"\x80\x02}(" + write_call("os", "system", COMMAND) + b"Nu.",
    "as_a_state": b"\x80\x02ccollections\nOrderedDict\n)R}(" + write_call("os", "system", COMMAND) + b"Nub.",
    "timeit": b"\x80\x02ctimeit\ntimeit\n(" + write_text(TOUCH) + write_text("pass") + b"ctime\ntime\nK\x01tR.",
}
