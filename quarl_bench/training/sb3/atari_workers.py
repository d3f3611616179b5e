"""Atari games of one training run, stepped in several processes: an emulator keeps the GIL, so threads do not help.

What a run sees does not depend on the number of processes: every game has its own start generator. Observations are in
memory that the processes share; actions, rewards and ends go through pipes.
"""

import multiprocessing
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import SpecError
from quarl_bench.training.sb3.games import serve_games, view_frames
from quarl_bench.training.sb3.vector import IMAGES, BareVector


class WorkerVector(BareVector):
    """Games like those of a GameVector, dealt out to `workers` processes, which end when this process does."""

    def __init__(self, environment: Environment, count: int, seed: int, workers: int) -> None:
        self._id = environment.id
        # Forking a process that has torch's threads can hang; `spawn` starts clean ones.
        context = multiprocessing.get_context("spawn")
        self._connections: list[Connection] = []
        self._processes = []
        # Whoever forgets to close: at the end Python waits for the processes, and they wait for our end of the line.
        Finalize(self, _close_connections, (self._connections,), exitpriority=0)
        shared = context.RawArray("B", count * int(np.prod(IMAGES.shape)))
        self._observations = view_frames(shared)
        for part in np.array_split(np.arange(count), min(workers, count)):
            ours, theirs = context.Pipe()
            arguments = (theirs, environment, range(part[0], part[-1] + 1), seed, shared)
            process = context.Process(target=serve_games, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)
        super().__init__(count, IMAGES, self._receive()[0])

    def reset(self) -> VecEnvObs:
        """The start of a new game in every environment."""
        for connection in self._connections:
            self._send(connection, None)
        self._receive()
        return self._observations.copy()  # stable-baselines3 keeps it beyond the next step

    def step_async(self, actions: NDArray[Any]) -> None:
        """Let all processes step their games."""
        parts = np.array_split(actions, len(self._connections))
        for connection, part in zip(self._connections, parts, strict=True):
            self._send(connection, part)

    def step_wait(self) -> VecEnvStepReturn:
        """What `GameVector.step_wait` returns, collected from the processes."""
        rewards, dones, infos = zip(*self._receive(), strict=True)
        return self._observations.copy(), np.concatenate(rewards), np.concatenate(dones), list(chain(*infos))

    def close(self) -> None:
        """Hang up the connections, on which every worker ends by itself, and wait for them."""
        _close_connections(self._connections)
        for process in self._processes:
            process.join()
        self._processes = []

    def _send(self, connection: Connection, actions: NDArray[Any] | None) -> None:
        try:
            connection.send(actions)
        except OSError as error:
            raise self._worker_died() from error

    def _receive(self) -> list[Any]:
        try:
            return [connection.recv() for connection in self._connections]
        except (EOFError, OSError) as error:
            raise self._worker_died() from error

    def _worker_died(self) -> SpecError:
        return SpecError(f"{self._id}: a process that stepped games has died; go on with --resume, or --workers 1")


def _close_connections(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()
