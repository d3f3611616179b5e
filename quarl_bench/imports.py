"""Code of a user's own, named as `module:attribute`. Standard library only."""

import importlib
import sys
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
    except Exception as error:  # whatever the user's module raises
        lines = str(error).splitlines() or [""]
        raise SpecError(f"{name!r}: importing {module!r} failed ({type(error).__name__}: {lines[0]})") from error
