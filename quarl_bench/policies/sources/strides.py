"""Tensors as files describe them: numbers in a row, where the tensor begins among them, its shape and its strides.

A stranger's strides may lead beyond the storage, or make a mountain of one number. What is held has every number of the
tensor once in the storage, in any order of axes; so it is never larger than the file.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 2**40  # of a size: what lies above has no form in NumPy


def is_held(start: int, shape: Sequence[int], strides: Sequence[int], count: int) -> bool:
    """Whether a storage of `count` numbers holds a tensor; strides count numbers, and no two of it share one."""
    if len(shape) != len(strides) or min((start, *shape, *strides)) < 0 or max((0, *shape)) > LARGEST:
        return False
    if 0 in shape:
        return True
    last = 0
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride <= last:
            return False
        last += stride * (size - 1)
    return start + last < count


def view(raw: NDArray[Any], start: int, shape: Sequence[int], strides: Sequence[int]) -> NDArray[Any]:
    """The tensor in a storage `raw` (count,), the last axis's numbers side by side; ValueError where it is not held."""
    if not is_held(start, shape, strides, len(raw)):
        raise ValueError("a tensor that its storage does not hold")
    if 0 in shape:
        return np.zeros(tuple(shape), raw.dtype)
    steps = [stride * raw.itemsize if size > 1 else 0 for stride, size in zip(strides, shape, strict=True)]
    return np.asarray(np.lib.stride_tricks.as_strided(raw[start:], tuple(shape), steps), order="C")
