"""MuJoCo's stopwatch, which nobody reads here: it looks at the clock some hundred times a step, a tenth of its time.

MuJoCo asks the function at its global `mjcb_time` for the time, where there is one; its Python bindings put one there
when they are imported, and have no way to take it out. It decides durations in `MjData.timer` and nothing else.
"""

import contextlib
import ctypes
import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any


@contextlib.contextmanager
def stop_watch() -> Iterator[None]:
    """Without MuJoCo's looks at the clock; afterwards it goes on. Where it cannot be found, it goes on all the time."""
    function = _find_clock()
    if function is None or function.value is None:
        yield
        return
    usual, function.value = function.value, None
    try:
        yield
    finally:
        function.value = usual


@cache
def _find_clock() -> Any:
    """MuJoCo's variable `mjcb_time`, through the bindings that link to its library; None where that fails."""
    bindings = importlib.import_module("mujoco._functions")
    try:
        return ctypes.c_void_p.in_dll(ctypes.CDLL(bindings.__file__), "mjcb_time")
    except (OSError, ValueError):
        return None
