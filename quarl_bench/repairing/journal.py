"""What a repair has made so far, in the cache: an interrupted repair goes on behind it.

Kept are the integers of every form that took longer than its scheme (rounding that was learned, distillation), and how
far a distillation is. Returns are kept by the store, as all measurements are.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.measurement_key import evaluation_epoch
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.policies.storage.integers import load_integers, save_integers
from quarl_bench.system.atomic import lock_run, remove_folder, write_file
from quarl_bench.system.code_epoch import hash_code

REPAIRS = "repairs"  # folder of the cache
POINT = "state.pt"
DIGEST = hashlib.sha256().digest_size  # bytes before a state: nothing that a disk has damaged is unpickled


@dataclass(frozen=True)
class Journal:
    """A folder of one repair; None keeps nothing."""

    folder: Path | None = None

    def recall(self, name: str, make: Callable[[], IntegerPolicy]) -> IntegerPolicy:
        """The integers that were made under `name`, or are made now and kept."""
        found = self.find(name)
        return self.keep(name, make()) if found is None else found

    def find(self, name: str) -> IntegerPolicy | None:
        """The integers that are kept under `name`; None where there are none, or a disk has damaged them."""
        try:
            return None if self.folder is None else load_integers(self.folder / name).policy
        except PolicyError:
            return None

    def keep(self, name: str, policy: IntegerPolicy) -> IntegerPolicy:
        """Keep `policy` under `name`, in the place of what was there; `policy` itself."""
        return policy if self.folder is None else save_integers(policy, self.folder / name, {}).policy

    def save_point(self, name: str, state: dict[str, Any]) -> None:
        """Keep how far the work on `name` is: tensors, numbers and text."""
        if self.folder is not None:
            buffer = io.BytesIO()
            torch.save(state, buffer)
            content = buffer.getvalue()
            write_file(self.folder / f"{name}-{POINT}", hashlib.sha256(content).digest() + content)

    def load_point(self, name: str) -> dict[str, Any] | None:
        """What `save_point` kept last; None where it kept nothing, or a disk has damaged it."""
        if self.folder is None:
            return None
        try:
            stored = (self.folder / f"{name}-{POINT}").read_bytes()
        except OSError:
            return None
        digest, content = stored[:DIGEST], stored[DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            return None
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
        return state

    def remove(self) -> None:
        """Forget all of it."""
        if self.folder is not None:
            remove_folder(self.folder)


NOTHING = Journal()


@contextmanager
def open_journal(cache: Path | None, what: dict[str, Any], *, resume: bool) -> Iterator[Journal]:
    """The journal of the repair that `what` decides (JSON types), for this process alone; empty unless `resume`.

    StoreError where another process repairs the same.
    """
    if cache is None:
        yield NOTHING
        return
    code = {"code": [evaluation_epoch(), hash_code("repairing")]}
    name = hashlib.sha256(json.dumps(what | code, sort_keys=True).encode()).hexdigest()[:16]
    journal = Journal(cache / REPAIRS / name)
    assert journal.folder is not None  # noqa: S101 (for the type checker)
    with lock_run(journal.folder):
        if not resume:
            journal.remove()
        journal.folder.mkdir(parents=True, exist_ok=True)
        yield journal
