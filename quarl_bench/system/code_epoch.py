"""Which code a stored number was made with: a hash of source files."""

import hashlib
import importlib.resources
from functools import cache
from pathlib import Path

CODE = (".py", ".toml", ".in", ".c", ".h")  # suffixes; .in are templates


@cache
def hash_code(*parts: str) -> str:
    """Hash of the package's source files under `parts` (files or folders): what a stored number was made with.

    A part that is not there raises FileNotFoundError: a module that moved would leave the hash unnoticed.
    """
    root = Path(str(importlib.resources.files("quarl_bench")))
    digest = hashlib.sha256()
    for part in parts:
        path = root / part
        if not path.exists():
            raise FileNotFoundError(f"{path}: named as code that decides stored numbers, and not there")
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in CODE:
                digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
