"""The backends by name. Importing one loads no runtime; running one may ask for an extra."""

from quarl_bench.backends.base import Backend
from quarl_bench.backends.c.backend import C
from quarl_bench.backends.dump import DUMP
from quarl_bench.backends.litert.backend import LITERT, LITERT_DYNAMIC
from quarl_bench.backends.onnx.backend import ONNX
from quarl_bench.errors import DeploymentError

BACKENDS = {backend.name: backend for backend in (LITERT, LITERT_DYNAMIC, C, ONNX, DUMP)}


def find_backend(name: str) -> Backend:
    """The backend called `name`; DeploymentError with the known names when there is none."""
    if name not in BACKENDS:
        raise DeploymentError(f"unknown backend {name!r}; known are {', '.join(BACKENDS)}")
    return BACKENDS[name]
