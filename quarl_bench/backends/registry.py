"""The backends by name or alias. Importing one loads no runtime; running one may ask for an extra."""

from quarl_bench.backends.base import Backend
from quarl_bench.errors import DeploymentError
from quarl_bench.system.registry import Registry

BACKENDS = Registry(
    "backend",
    "quarl_bench.backends",
    Backend,
    {
        "litert": "quarl_bench.backends.litert.backend:LITERT",
        "litert-dynamic": "quarl_bench.backends.litert.backend:LITERT_DYNAMIC",
        "c": "quarl_bench.backends.c.backend:C",
        "onnx": "quarl_bench.backends.onnx.backend:ONNX",
        "dump": "quarl_bench.backends.dump:DUMP",
    },
    DeploymentError,
)


def find_backend(name: str) -> Backend:
    """The backend of this name or alias; DeploymentError with the known names when there is none."""
    return BACKENDS.find(name)


def list_timed() -> tuple[Backend, ...]:
    """Those that run integers on this machine, and whose calls are worth timing."""
    return tuple(backend for backend in BACKENDS.values() if backend.timed and backend.kernels)
