"""Stored runs of `python -m benches.peers`: what was run, on which machine at which commit, and every number of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from quarl_bench.errors import SpecError, StoreError
from quarl_bench.judging.times.contest import Contest
from quarl_bench.system.atomic import write_file

SCHEMA = 1
UNFINISHED = ".part"  # behind the name of a file whose run has not ended, or never did


@dataclass(frozen=True)
class PeerRun:
    """One script's contests. `absent` names contenders that were left out, and the module that each would need."""

    command: str
    rounds: int
    quick: bool  # the smallest sizes, to see that all works: no measurement
    date: str
    load: tuple[float, ...]  # of the machine at the start, over 1, 5 and 15 minutes, our own work before it included
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    commit: str  # with `+` where the checkout had changes
    absent: Mapping[str, str]
    seconds: float = 0.0
    others: float = 0.0  # cores that anything else used meanwhile
    contests: tuple[Contest, ...] = ()

    def add(self, contest: Contest, seconds: float, others: float) -> Self:
        """This run, `seconds` behind its start, with one more contest."""
        contests = (*self.contests, contest)
        return replace(self, contests=contests, seconds=round(seconds, 1), others=round(others, 3))

    def as_dict(self) -> dict[str, Any]:
        """Built-in types only; `from_dict` is the inverse."""
        contests = [contest.as_dict() for contest in self.contests]
        return {"schema_version": SCHEMA} | vars(self) | {"load": list(self.load), "contests": contests}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """SpecError for another version, and for what is ill-formed."""
        if data.get("schema_version") != SCHEMA:
            raise SpecError(f"schema_version is {data.get('schema_version')!r}, not {SCHEMA}")
        told = {name: value for name, value in data.items() if name != "schema_version"}
        try:
            told |= {
                "load": tuple(map(float, told["load"])),
                "contests": tuple(map(Contest.from_dict, told["contests"])),
            }
            return cls(**told)
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(f"a run is ill-formed: {error!r}") from error

    def describe(self) -> str:
        """Where the numbers are from, for a reader who compares them."""
        processor, cores = self.machine["processor"], self.machine["cores"]
        fast = ", ".join(self.machine["instructions"]) or "no list of instructions"
        commit = f"`{self.commit[:12]}`{' with changes' if self.commit.endswith('+') else ''}"
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        used = f"{cores} cores, of which others used {self.others:.2f}"
        return f"{processor} ({fast}), {used}; {rounds}; {self.date}, {commit}"


def write_run(path: Path, run: PeerRun) -> None:
    """The whole file, a contest a line, or nothing of it; StoreError when it cannot be written."""
    told = run.as_dict()
    contests = ",\n".join(f"  {json.dumps(contest)}" for contest in told.pop("contests"))
    write_file(path, f'{json.dumps(told, indent=1)[:-2]},\n "contests": [\n{contests}\n ]\n}}\n')


def read_run(path: Path) -> PeerRun:
    """StoreError, which names the file, for anything else."""
    remedy = f"run python -m benches.peers {path.stem} again"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return PeerRun.from_dict(data if isinstance(data, dict) else {})
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not JSON, or cut short ({error}); {remedy}") from error
    except SpecError as error:
        raise StoreError(f"{path}: {error}; {remedy}") from error


def read_runs(folder: Path) -> dict[str, PeerRun]:
    """By name, the runs that ended; StoreError where one is ill-formed, or no measurement."""
    runs = {path.stem: read_run(path) for path in sorted(folder.glob("*.json"))}
    for name, run in runs.items():
        if run.quick:
            raise StoreError(f"{folder / name}.json: a quick run, which measures nothing; remove it")
    return runs
