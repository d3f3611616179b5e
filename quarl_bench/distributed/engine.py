"""Ray, for what outgrows one process: local by default, a cluster by its address. The one module that starts it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from quarl_bench.errors import EngineError, first_line
from quarl_bench.system.bars import open_note
from quarl_bench.system.extras import require

CONNECT_SECONDS = 5.0  # for an address to accept a connection
HEALTH_SECONDS = 12.0  # for what listens there to say that it is Ray; both together stay below 20
PORT = 6379  # Ray's own
SMALLEST_STORE = 80 << 20  # bytes; Ray refuses less


def import_ray() -> Any:
    """The module; MissingExtra without it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # the caller's own priority, not 15 below it
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns about a future default
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return require("ray", "actorq", "work on several processes or machines (ray)")


@contextlib.contextmanager
def open_engine(
    address: str | None, processes: int, store: int | None = None, *, progress: bool = False
) -> Iterator[Any]:
    """Ray with room for `processes` of one core each; disconnected, or shut down where it is local, at the end.

    `store` are bytes of a local object store; with `progress` a line says that Ray starts. EngineError, within 20
    seconds, for an address that nobody answers, for a cluster that is too small, and for a store that Ray refuses.
    """
    ray, on_term = import_ray(), signal.getsignal(signal.SIGTERM)
    try:
        with open_note("starting Ray" if address is None else f"connecting to Ray at {address}", shown=progress):
            _start(ray, address, processes, store)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_term)  # the caller's: Ray's own ends the process with a traceback
        # Ray prints what it thinks of dead workers, and has no switch: stdout is for results.
        with contextlib.redirect_stdout(sys.stderr):
            yield ray
    finally:
        ray.shutdown()


def _start(ray: Any, address: str | None, processes: int, store: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            if store is not None and store < SMALLEST_STORE:
                raise EngineError(f"an object store of {store >> 20} MB: Ray needs at least {SMALLEST_STORE >> 20}")
            local = {"include_dashboard": False, "object_store_memory": store}
            ray.init(address="local", num_cpus=processes, **local, **quiet)  # not what else runs here
            return
        check_address(address)
        _connect(ray, address, quiet)
    except (ConnectionError, ray.exceptions.RaySystemError, ValueError) as error:
        raise EngineError(f"Ray did not start ({first_line(error)})") from error
    there = int(ray.cluster_resources().get("CPU", 0))
    if there < processes:
        raise EngineError(f"the cluster at {address} has {there} cores, {processes} processes need one each")


def _connect(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    """EngineError, with both versions, where the cluster runs another Ray or another Python."""
    try:
        ray.init(address=address, **quiet)
    except RuntimeError as error:
        if "ersion mismatch" not in str(error):
            raise
        told = " ".join(str(error).split()).partition("ersion mismatch: ")[2]
        raise EngineError(f"the cluster at {address} runs other versions ({told}); install the same here") from error


def check_address(address: str) -> None:
    """EngineError unless a Ray cluster answers at `address`, host or host:port."""
    host, _, port = address.rpartition(":") if ":" in address else (address, "", str(PORT))
    if not host or not port.isdecimal() or int(port) > 65535:
        raise EngineError(f"--address {address!r}: give HOST:PORT, as 10.0.0.1:{PORT}")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise EngineError(
            f"nobody answers at {address} ({error.strerror or error}); start a cluster there with "
            f"`ray start --head --port={port}`, or leave --address out"
        ) from error
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", f"{host}:{port}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=HEALTH_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"what listens at {address} does not answer as Ray does; check the port") from error
    if done.returncode != 0 and b"AuthenticationError" in done.stderr:
        raise EngineError(
            f"the cluster at {address} asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or "
            "RAY_AUTH_TOKEN_PATH, as on its other nodes"
        )
    if done.returncode != 0:
        raise EngineError(f"what listens at {address} is no Ray cluster of this version; check port and versions")


def unwrap_remote_error(error: BaseException) -> BaseException:
    """The exception that a remote process raised, out of Ray's wrapper."""
    return getattr(error, "cause", None) or error
