"""A learner on disk: what survives `kill -9`. Tensors and arrays only, nothing that would be unpickled."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quarl_bench.actorq.learning.agents import Agent
from quarl_bench.actorq.learning.replay import Replay
from quarl_bench.actorq.settings import RunSettings
from quarl_bench.errors import StoreError
from quarl_bench.system.atomic import new_folder

FOLDER, STATE, TENSORS, ROWS = "checkpoint", "state.json", "agent.pt", "replay.npz"


def save_checkpoint(folder: Path, settings: RunSettings, agent: Agent, replay: Replay, facts: dict[str, Any]) -> None:
    """Replace the checkpoint below `folder` by the present state and `facts` (JSON types)."""
    with new_folder(folder / FOLDER, STATE) as work:
        buffer = io.BytesIO()
        torch.save(agent.state(), buffer)  # into a file it would tell of a full disk in words of its own
        (work / TENSORS).write_bytes(buffer.getvalue())
        np.savez(work / ROWS, **replay.state())
        state = {"network": settings.network, "learning": settings.learning, "facts": facts, "rows": replay.count}
        (work / STATE).write_text(json.dumps(state))


def load_checkpoint(folder: Path, settings: RunSettings, agent: Agent, replay: Replay) -> dict[str, Any]:
    """Restore agent and replay, and return the facts; StoreError when there is none or it is another run's."""
    state = read_state(folder, settings)
    try:
        agent.restore(torch.load(folder / FOLDER / TENSORS, map_location="cpu", weights_only=True))
        with np.load(folder / FOLDER / ROWS, allow_pickle=False) as rows:
            if state["rows"]:
                replay.restore(dict(rows), state["rows"])
        facts: dict[str, Any] = state["facts"]
    except Exception as error:
        raise StoreError(f"{folder / FOLDER} cannot be read ({error}); delete it to start over") from error
    return facts


def read_state(folder: Path, settings: RunSettings) -> dict[str, Any]:
    """What the checkpoint says about itself; StoreError when it is damaged, another network's, or learns otherwise."""
    path = folder / FOLDER / STATE
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        parts = (
            ("network", state["network"], settings.network),
            ("run", state.get("learning", settings.learning), settings.learning),  # not told before 2026-11
        )
        found = [(what, name, there.get(name), ours) for what, there, own in parts for name, ours in own.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} cannot be read ({error}); there is nothing to resume") from error
    for what, name, there, ours in found:
        if there != ours:
            raise StoreError(
                f"{folder / FOLDER} holds another {what}: its {name} is {there}, not {ours}; resume with that, or "
                "start over in another folder"
            )
    return state


def has_checkpoint(folder: Path) -> bool:
    """Whether there is something to resume."""
    return (folder / FOLDER / STATE).exists()
