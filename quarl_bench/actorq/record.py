"""What a run leaves behind, as JSON: settings, versions, curve, breakdowns, sizes, drift, deaths."""

import json
from pathlib import Path
from typing import Any

from quarl_bench.actorq.breakdown import Breakdown, EndToEnd, cost_per_step
from quarl_bench.actorq.settings import list_defaults
from quarl_bench.errors import StoreError
from quarl_bench.system.extras import read_version

RECORD = "record.json"
LIBRARIES = ("torch", "numpy", "gymnasium", "ray")
PARTS = ("settings", "elapsed", "steps", "curve", "acting", "breakdown", "server", "cpu", "load", "scores", "drift",
         "deaths")  # fmt: skip
Record = dict[str, Any]


def describe_libraries() -> dict[str, str]:
    """Versions that times and numbers depend on."""
    return {name: read_version(name) or "absent" for name in LIBRARIES}


def read_record(path: Path) -> Record:
    """The record in a file or in the folder of a run; StoreError for anything else."""
    path = path / RECORD if path.is_dir() else path
    try:
        record: Record = json.loads(path.read_text())
        record["settings"] = list_defaults() | record["settings"]  # of settings that are newer than the record
        for key in PARTS:
            record[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: not the record of a finished run ({error!r})") from error
    return record


def read_acting(record: Record) -> Breakdown:
    """The breakdown of all actors of a run, added up."""
    return Breakdown.from_dict(record["acting"])


def read_costs(record: Record) -> EndToEnd:
    """Costs per environment step, of what came behind the last resume: clocks of stages begin there."""
    learning, before = Breakdown.from_dict(record["breakdown"]), record.get("resumed", {"steps": 0, "elapsed": 0.0})
    steps, elapsed = record["steps"] - before["steps"], record["elapsed"] - before["elapsed"]
    return cost_per_step(elapsed, steps, record["settings"]["actors"], read_acting(record), learning)
