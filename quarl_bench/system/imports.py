"""Code of a user's own, named as `module:attribute`. Standard library only."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quarl_bench.errors import SpecError

SEPARATOR = ":"


def import_attribute(name: str) -> Any:
    """What `module:attribute` names, the working directory being a place of modules; None where it has no such name.

    SpecError, with the reason, when the module cannot be imported.
    """
    module, _, attribute = name.partition(SEPARATOR)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise SpecError(f"{name!r}: importing {module!r} failed ({_describe(error)})") from error


def instantiate(maker: Callable[..., Any], called: str | None = None, /, **arguments: Any) -> Any:
    """What a user's class or function makes; SpecError, with the reason, when it makes nothing.

    `called` is what the user calls it, if not by its own name.
    """
    try:
        return maker(**arguments)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        name = called or f"{maker.__module__}{SEPARATOR}{getattr(maker, '__qualname__', type(maker).__qualname__)}"
        given = f"what was given to it ({', '.join(arguments)})"
        other = given if arguments else "name a subclass that gives it its arguments"
        raise SpecError(f"{name!r}: making one failed ({_describe(error)}); mend it, or {other}") from error


def _describe(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
