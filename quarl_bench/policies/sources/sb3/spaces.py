"""Spaces as stable-baselines3 prints them into a zip's JSON, beside a pickled form that is never read."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.observation import Part
from quarl_bench.quantization.net import Floats

AXES, SIZE, TEXT = 4, 2**24, 10_000
PART = re.compile(  # of a Dict, as Gymnasium prints it
    r"'(?P<name>[^'\\]{1,80})': "
    r"(?:Box\((?P<ends>[^()]*), \((?P<shape>\d{1,9}(?:, \d{1,9}){0,3}),?\), (?P<dtype>\w{1,20})\)"
    r"|Discrete\((?P<count>\d{1,9})\)|MultiDiscrete\(\[(?P<counts>[\d ]{1,400})\]\)|MultiBinary\((?P<bits>\d{1,9})\))",
    re.ASCII,
)
CLASS = re.compile(r"<class '(?:gym|gymnasium)\.spaces\.\w+\.(\w{1,40})'>")
NUMBER = re.compile(r"[+-]?(?:inf|\d{1,40}\.?\d{0,40}(e[+-]?\d{1,3})?)")
DIGITS = 8  # that NumPy prints behind the point; a number that needs fewer is exact
Bounds = tuple[Floats, Floats]


@dataclass(frozen=True, eq=False)
class Observations:
    """A Box of observations, or what is flattened to one, of a Dict with its `parts`."""

    shape: tuple[int, ...]
    image: bool
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, eq=False)
class Actions:
    """`count` indices, or a Box of `count` values; `bounds` are None where the text may have rounded them.

    Of a MultiDiscrete `sizes` are how many indices each part has, and `count` is their sum. A MultiBinary has `bits`.
    """

    count: int
    discrete: bool
    bounds: Bounds | None = None
    sizes: tuple[int, ...] = ()
    bits: bool = False


def read_observations(entry: Any, where: str) -> Observations:
    """The observation space of a zip; PolicyError when it has no portable form."""
    where = f"{where}: observation_space"
    fields = _read_class(entry, ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict"), where)
    if fields["class"] != "Box":
        parts = tuple(_read_parts(fields.get("spaces"), where)) if fields["class"] == "Dict" else ()
        return Observations((_count_flat(fields, parts, where),), image=False, parts=parts)
    shape = _read_shape(fields, where)
    ends = [_read_ends(fields.get(key), first) for key, first in (("low", "0"), ("high", "255"))]
    return Observations(shape, fields.get("dtype") == "uint8" and len(shape) == 3 and all(ends))


def read_actions(entry: Any, where: str) -> Actions:
    """The action space of a zip; PolicyError when it has no portable form."""
    where = f"{where}: action_space"
    fields = _read_class(entry, ("Discrete", "MultiDiscrete", "MultiBinary", "Box"), where)
    if fields["class"] == "Discrete":
        count, start = (_read_integer(fields.get(key, 0), where) for key in ("n", "start"))
        if start != 0:
            raise PolicyError(f"{where} starts at {start}; stable-baselines3 counts actions from 0 alone")
        return Actions(count, discrete=True)
    if fields["class"] == "MultiDiscrete":
        sizes, starts = (_read_counts(str(value), where) for value in (fields.get("nvec"), fields.get("start", 0)))
        if any(starts):
            raise PolicyError(f"{where} starts at {starts[:8]}; stable-baselines3 counts actions from 0 alone")
        return Actions(sum(sizes), discrete=True, sizes=sizes)
    if fields["class"] == "MultiBinary":
        return Actions(_read_integer(fields.get("n"), where), discrete=True, bits=True)
    count, double = math.prod(_read_shape(fields, where)), fields.get("dtype") != "float32"
    low, high = (_read_bound(fields.get(key), count, double) for key in ("low", "high"))
    return Actions(count, discrete=False, bounds=None if low is None or high is None else (low, high))


def _count_flat(fields: dict[str, Any], parts: Sequence[Part], where: str) -> int:
    """How many numbers the flat form of a space without axes has, or of a Dict of `parts`."""
    if fields["class"] in ("Discrete", "MultiBinary"):
        count = _read_integer(fields.get("n"), where)
    elif fields["class"] == "MultiDiscrete":
        count = sum(_read_counts(str(fields.get("nvec")), where))
    else:
        count = sum(part.width for part in parts)
    if not 0 < count <= SIZE:
        raise PolicyError(f"{where} of {count} numbers is larger than any observation, or empty; the zip is refused")
    return count


def _read_parts(text: Any, where: str) -> Iterator[Part]:
    """The parts of a Dict, as its text lists them."""
    if not isinstance(text, str) or len(text) > TEXT or not (text.startswith("{") and text.endswith("}")):
        raise PolicyError(f"{where} has no parts that can be read; pass the live model")
    place = 1
    while place < len(text) - 1:
        found = PART.match(text, place)
        if found is None:
            strange = text[place : place + 40]
            raise PolicyError(f"{where} has a part that cannot be read, {strange!r}; pass the live model")
        if found["shape"]:
            shape = tuple(map(int, found["shape"].split(", ")))
            pixels = found["dtype"] == "uint8" and len(shape) == 3 and _has_pixels(found["ends"])
            yield Part(found["name"], shape, pixels)
        elif found["counts"]:
            yield Part(found["name"], (sum(_read_counts(found["counts"], where)),), bounded=True)
        else:
            yield Part(found["name"], (int(found["count"] or found["bits"]),), bounded=True)
        place = found.end() + (2 if text.startswith(", ", found.end()) else 0)


def _has_pixels(ends: str) -> bool:
    """Whether the two bounds of a Box, as it prints them, are 0 and 255 everywhere."""
    return {*re.findall(r"[^\[\]\s,]+", ends)} - {"..."} == {"0", "255"}


def _read_counts(text: str, where: str) -> tuple[int, ...]:
    """Whole numbers from 0, as NumPy prints a vector of them, with or without its brackets."""
    words = text[:TEXT].strip("[]").split()
    if not words or not all(re.fullmatch(r"\d{1,9}", word, re.ASCII) for word in words):
        raise PolicyError(f"{where} has no counts that can be read; pass the live model")
    return tuple(map(int, words))


def _read_class(entry: Any, allowed: tuple[str, ...], where: str) -> dict[str, Any]:
    kind = entry.get(":type:") if isinstance(entry, dict) else None
    found = CLASS.fullmatch(kind) if isinstance(kind, str) else None
    if found is None or found[1] not in allowed:
        raise PolicyError(f"{where} is {str(kind)[:80]!r}; a portable policy has {' or '.join(allowed)}")
    return {**entry, "class": found[1]}


def _read_shape(fields: dict[str, Any], where: str) -> tuple[int, ...]:
    shape = fields.get("_shape", fields.get("shape"))
    if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
        raise PolicyError(f"{where} has no shape that can be read; restore the zip")
    if len(shape) > AXES or math.prod(shape) > SIZE:
        raise PolicyError(f"{where} of shape {str(shape)[:80]} is larger than any observation; the zip is refused")
    return tuple(shape)


def _read_integer(value: Any, where: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value, re.ASCII):
        return int(value)
    if type(value) is not int:
        raise PolicyError(f"{where} has no number of actions that can be read; restore the zip")
    return value


def _read_ends(text: Any, wanted: str) -> bool:
    """True when a printed array, whole or abridged, has no other number than `wanted`."""
    return isinstance(text, str) and {*re.findall(r"[^\[\]\s]+", text)} <= {wanted, "..."}


def _read_bound(text: Any, count: int, double: bool) -> Floats | None:
    """A printed array, flat; None when it is abridged or rounded, so that the text is not the number."""
    if not isinstance(text, str) or not (text.startswith("[") and text.endswith("]")):
        return None
    words = text.replace("[", " ").replace("]", " ").split()
    if len(words) != count or not all(_is_exact(word, double) for word in words):
        return None
    return np.array([float(word) for word in words], np.float32)


def _is_exact(word: str, double: bool) -> bool:
    found = NUMBER.fullmatch(word)
    if found is None:
        return False
    if found[1] is not None and not double:
        return True  # nine digits name every float32
    return len(word.partition("e")[0].partition(".")[2]) < DIGITS
