"""What a tool made of a folder of sources, kept: under the hash of the files and of all else that decides it."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from quarl_bench.errors import StoreError
from quarl_bench.system.atomic import write_file


def run_once(
    sources: Path, cache: Path, kind: str, salt: str, compute: Callable[[Path], dict[str, Any]], *patterns: str
) -> dict[str, Any]:
    """What `compute` makes of a copy of the folder `sources`; from `cache` when its files and `salt` are known there.

    `patterns` say which files decide it; by default all. StoreError for a result that was damaged.
    """
    result = cache / kind / f"{_hash_files(sources, salt, patterns or ('**/*',))}.json"
    result.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{result}.lock"):
        if not result.exists():
            with tempfile.TemporaryDirectory() as scratch:
                work = Path(scratch) / "sources"
                shutil.copytree(sources, work)
                write_file(result, json.dumps(compute(work), indent=2) + "\n")
    try:
        found: dict[str, Any] = json.loads(result.read_text())
    except ValueError as error:
        raise StoreError(f"{result} cannot be read ({error}); delete it") from error
    return found


def _hash_files(folder: Path, salt: str, patterns: tuple[str, ...]) -> str:
    content = hashlib.sha256(salt.encode())
    for file in sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file()):
        content.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return content.hexdigest()[:32]
