"""What an artefact costs on this machine: its bytes, and the time of one call from Python and of its own code."""

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quarl_bench.backends.base import CompiledCode
from quarl_bench.backends.deployed import DeployedPolicy, time_calls
from quarl_bench.backends.registry import find_backend, list_timed
from quarl_bench.checking.subject import Subject
from quarl_bench.errors import DeploymentError, MissingExtra
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet, Visited

CALLS = 200
SECONDS = 0.1  # of calls, roughly, where a policy's own code is timed
FILE, CODE = "file", "machine code"  # what the bytes are of


@dataclass(frozen=True)
class ArtefactCost:
    """One artefact: its bytes and microseconds of one call from Python, or why there is none.

    `counted` says what the bytes are of: the model's file, or, of source, `.text + .rodata + .data` as compiled here.
    `own` is the mean time of an inference in such code alone, without Python.
    """

    backend: str
    scheme: str
    bytes: int = 0
    median: float = 0.0  # microseconds
    p90: float = 0.0
    reason: str = ""
    counted: str = FILE
    own: float | None = None  # nanoseconds

    @property
    def microseconds(self) -> float:
        """What decides which of two artefacts of one backend is slower: the code's own time where it is known."""
        return self.median if self.own is None else self.own / 1e3


@dataclass(frozen=True)
class PendingArtefact:
    """An artefact that is being exported and compiled."""

    subject: Subject
    backend: str
    scheme: str
    built: "Future[tuple[DeployedPolicy, CompiledCode | None]]"


class ArtefactBuilder:
    """Exports and compiles the artefacts of a subject, each once, beside each other and beside what its caller does."""

    def __init__(self, subject: Subject, backends: Sequence[str], pool: ThreadPoolExecutor, scratch: Path) -> None:
        self._subject, self._backends, self._pool, self._scratch = subject, backends, pool, scratch
        self._begun: dict[tuple[str, str], PendingArtefact] = {}

    def build(self, schemes: Sequence[str]) -> list[PendingArtefact]:
        """The artefacts of `schemes`, backend by backend; those that were not begun begin now."""
        self._subject.calibration  # noqa: B018  (visited once, not by every thread)
        return [self._begin(backend, scheme) for backend in self._backends for scheme in schemes]

    def _begin(self, backend: str, scheme: str) -> PendingArtefact:
        if (backend, scheme) not in self._begun:
            folder = self._scratch / f"{scheme}-{backend}"
            built = self._pool.submit(_build, self._subject, scheme, backend, folder)
            self._begun[backend, scheme] = PendingArtefact(self._subject, backend, scheme, built)
        return self._begun[backend, scheme]


@contextmanager
def open_builder(subject: Subject, backends: Sequence[str] | None = None) -> Iterator[ArtefactBuilder]:
    """Builds for `backends`, or for all that run here; files last as long as the block."""
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor() as pool:
        try:
            yield ArtefactBuilder(subject, list_backends() if backends is None else backends, pool, Path(scratch))
        finally:
            pool.shutdown(cancel_futures=True)


def time_artefacts(artefacts: Sequence[PendingArtefact]) -> Iterator[ArtefactCost]:
    """What each costs. None is timed before all are built: no compiler runs beside what is timed."""
    wait([artefact.built for artefact in artefacts])
    for artefact in artefacts:
        subject, backend, scheme = artefact.subject, artefact.backend, artefact.scheme
        try:
            yield _benchmark(*artefact.built.result(), scheme, subject)
        except (DeploymentError, MissingExtra) as error:
            yield ArtefactCost(backend, scheme, reason=f"{error}{_size_source(subject, scheme, backend)}")


def list_backends() -> list[str]:
    """Whose artefacts are priced and exported: those that run on this machine."""
    return [backend.name for backend in list_timed()]


def _build(subject: Subject, scheme: str, backend: str, folder: Path) -> tuple[DeployedPolicy, CompiledCode | None]:
    deployed, compile_code = subject.export(scheme, backend, folder), find_backend(backend).compile_code
    return deployed, None if compile_code is None else compile_code(folder, deployed.net.runner.kernel)


def _benchmark(deployed: DeployedPolicy, code: CompiledCode | None, scheme: str, subject: Subject) -> ArtefactCost:
    states, backend = subject.calibration, deployed.artefact.backend
    one = states.observations[:1] if isinstance(states, Visited) else states[:1]
    time_calls(deployed, one, CALLS // 10)
    times = time_calls(deployed, one, CALLS)
    median, p90 = statistics.median(times), statistics.quantiles(times, n=10)[-1]
    if code is None:
        size = sum(len(content) for content in deployed.artefact.files.values())
        return ArtefactCost(backend, scheme, size, median, p90)
    calls = max(10, min(10_000, round(SECONDS / median * 1e6)))
    return ArtefactCost(backend, scheme, code.bytes, median, p90, counted=CODE, own=code.time_call(calls))


def _size_source(subject: Subject, scheme: str, backend: str) -> str:
    """Of a policy that has source but no compiler here: how large that is, called by its name."""
    found, policy = find_backend(backend), subject.quantize(scheme)
    if found.compile_code is None or not isinstance(policy, IntegerPolicy | PolicyNet):
        return ""
    try:
        size = sum(map(len, found.make_files(policy).values()))
    except DeploymentError:  # no form, as was said
        return ""
    return f"; its source, which is no measure of the code, has {size:,} bytes"
