"""What changed since a message that both ends have, exactly: XOR, bytes of one weight side by side, zstd.

Weights move little between two broadcasts, so the high bytes of floats, and most int8 weights, stay: XOR makes them 0.
Every byte comes back as it was, whatever the precision. Messages meet at their ends, where the weights are: the header
before them is a few digits longer or shorter each time.
"""

import struct

import numpy as np

from quarl_bench.actorq.message import Bytes, compress, decompress, decompress_frame
from quarl_bench.errors import PolicyError

MAGIC = b"QDELTA01"
HEAD = struct.Struct("<8sQQ")  # magic, width of a weight in bytes, bytes of the message
WIDTHS = {"fp32": 4, "fp16": 2, "int8": 1}  # of a weight, by what is shipped


def pack_delta(message: Bytes, base: Bytes, shipped: str) -> Bytes | None:
    """What turns `base` into `message`, of plain messages; None where it would not be shorter than the message."""
    width = WIDTHS[shipped]
    changed = np.bitwise_xor(message, _fit(base, len(message)))
    planes = np.pad(changed, (0, -len(changed) % width)).reshape(-1, width).T
    packed = compress(np.ascontiguousarray(planes).reshape(-1))
    if len(packed) + HEAD.size >= len(message):
        return None
    sent: Bytes = np.concatenate([np.frombuffer(HEAD.pack(MAGIC, width, len(message)), dtype=np.uint8), packed])
    return sent


def is_delta(message: Bytes) -> bool:
    """Whether it is one, and not a message of its own."""
    return message[: len(MAGIC)].tobytes() == MAGIC


class Unpacker:
    """Plain messages out of what arrives; keeps the last whole one, which deltas refer to."""

    def __init__(self) -> None:
        self._base: Bytes | None = None

    def unpack(self, messages: list[Bytes]) -> Bytes:
        """The message that the last of `messages` stands for; PolicyError for a delta without what it refers to."""
        for message in messages[:-1]:
            self._unpack(message)
        return self._unpack(messages[-1])

    def _unpack(self, message: Bytes) -> Bytes:
        if not is_delta(message):
            self._base = decompress(message)
            return self._base
        if self._base is None:
            raise PolicyError("a broadcast of changes came before what they refer to; all nodes need the same version")
        _, width, length = HEAD.unpack(message[: HEAD.size].tobytes())
        planes = decompress_frame(message[HEAD.size :]).reshape(width, -1)
        changed = np.ascontiguousarray(planes.T).reshape(-1)[:length]
        return np.bitwise_xor(changed, _fit(self._base, length))


def _fit(base: Bytes, length: int) -> Bytes:
    """Its last `length` bytes, behind zeros where it is shorter."""
    return base[len(base) - length :] if length <= len(base) else np.pad(base, (length - len(base), 0))
