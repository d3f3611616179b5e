"""Visited states as an entry of the store: a compressed .npz of the observations and of the key that they belong to."""

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import StoreError

KEY, STATES = "key", "states"  # names of its two arrays


def write_states(states: NDArray[Any], key: dict[str, Any]) -> bytes:
    """The file's content for observations (n, ...)."""
    content = io.BytesIO()
    np.savez_compressed(content, **{KEY: np.array(json.dumps(key, sort_keys=True)), STATES: states})
    return content.getvalue()


def read_states(path: Path, key: dict[str, Any]) -> NDArray[Any]:
    """The observations (n, ...) of a file; StoreError for one that is damaged, or of another key."""
    try:
        with np.load(io.BytesIO(path.read_bytes())) as arrays:  # plain arrays only: nothing is unpickled
            found, states = json.loads(str(arrays[KEY])), np.asarray(arrays[STATES])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise StoreError(f"{path}: not a file of states ({error!r})") from error
    if found != key:
        raise StoreError(f"{path}: holds another key")
    return states
