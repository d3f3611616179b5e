"""Where things are kept. Standard library only: options name these places before anything heavy is imported."""

import os
from pathlib import Path


def default_cache() -> Path:
    """`$QUARL_CACHE_DIR`, else `quarl_bench` in the user's cache folder."""
    chosen = os.environ.get("QUARL_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quarl_bench"
