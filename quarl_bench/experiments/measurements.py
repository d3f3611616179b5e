"""Measurements as files of a store, each with the key of what decides it."""

import json
from pathlib import Path
from typing import Any

from quarl_bench.errors import StoreError
from quarl_bench.spec import Measurement


def write_measurement(measurement: Measurement, key: dict[str, Any]) -> str:
    """The text of a file, for a `key` of JSON types."""
    return json.dumps({"key": key, "measurement": measurement.as_dict()})


def read_measurement(path: Path, key: dict[str, Any]) -> Measurement:
    """What a file holds; StoreError where that is no measurement, or one of another key."""
    try:
        entry = json.loads(path.read_text())
        if entry["key"] != key:
            raise StoreError(f"{path}: holds another key")
        return Measurement.from_dict(entry["measurement"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise StoreError(f"{path}: not a measurement ({error!r})") from error
