"""What an artefact costs on this machine: its bytes, and the microseconds of one call from Python."""

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quarl_bench.backends.deployed import DeployedPolicy, time_calls
from quarl_bench.backends.registry import list_timed
from quarl_bench.checking.subject import Subject
from quarl_bench.errors import DeploymentError, MissingExtra

CALLS = 500


@dataclass(frozen=True)
class ArtefactCost:
    """One artefact: bytes of its model, and microseconds of one call from Python, or why there is none."""

    backend: str
    scheme: str
    bytes: int = 0
    median: float = 0.0  # microseconds
    p90: float = 0.0
    reason: str = ""


def benchmark_artefacts(
    subject: Subject, schemes: Sequence[str], backends: Sequence[str] | None = None
) -> Iterator[ArtefactCost]:
    """Size and time of every artefact; a backend that lacks the scheme or its runtime says so."""
    for backend in list_backends() if backends is None else backends:
        for scheme in schemes:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    deployed = subject.export(scheme, backend, Path(folder) / "artefact")
                    yield _benchmark(deployed, backend, scheme, subject)
            except (DeploymentError, MissingExtra) as error:
                yield ArtefactCost(backend, scheme, reason=str(error))


def list_backends() -> list[str]:
    """Whose artefacts are priced and exported: those that run on this machine."""
    return [backend.name for backend in list_timed()]


def _benchmark(deployed: DeployedPolicy, backend: str, scheme: str, subject: Subject) -> ArtefactCost:
    one = subject.calibration[:1]
    size = sum(len(content) for content in deployed.artefact.files.values())
    time_calls(deployed, one, CALLS // 10)
    times = time_calls(deployed, one, CALLS)
    return ArtefactCost(backend, scheme, size, statistics.median(times), statistics.quantiles(times, n=10)[-1])
