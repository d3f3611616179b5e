"""Atari games of one training run, stepped in several processes: an emulator keeps the GIL, so threads do not help.

What a run sees does not depend on the number of processes: every game has its own start generator.
"""

import multiprocessing
import signal
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import SpecError
from quarl_bench.training.sb3.vector import BareVector, GameVector


class WorkerVector(BareVector):
    """A GameVector whose games are dealt out to `workers` processes, which end when this process does."""

    def __init__(self, environment: Environment, count: int, seed: int, workers: int) -> None:
        self._id = environment.id
        # Forking a process that has torch's threads can hang; `spawn` starts clean ones.
        context = multiprocessing.get_context("spawn")
        self._connections: list[Connection] = []
        self._processes = []
        # Whoever forgets to close: at the end Python waits for the processes, and they wait for our end of the line.
        Finalize(self, _close_connections, (self._connections,), exitpriority=0)
        for part in np.array_split(np.arange(count), min(workers, count)):
            ours, theirs = context.Pipe()
            arguments = (theirs, environment, range(part[0], part[-1] + 1), seed)
            process = context.Process(target=_run_worker, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)
        observations, actions = self._receive()[0]
        super().__init__(count, observations, actions)

    def reset(self) -> VecEnvObs:
        """The start of a new game in every environment."""
        for connection in self._connections:
            self._send(connection, None)
        observations: NDArray[np.uint8] = np.concatenate(self._receive())
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Let all processes step their games."""
        parts = np.array_split(actions, len(self._connections))
        for connection, part in zip(self._connections, parts, strict=True):
            self._send(connection, part)

    def step_wait(self) -> VecEnvStepReturn:
        """What `GameVector.step_wait` returns, collected from the processes."""
        observations, rewards, dones, infos = zip(*self._receive(), strict=True)
        return np.concatenate(observations), np.concatenate(rewards), np.concatenate(dones), list(chain(*infos))

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


def _run_worker(connection: Connection, environment: Environment, games: range, seed: int) -> None:
    """Answer None with the first observations, actions with a step, and the end of the connection with the end."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they may reach the whole group; the parent decides
        signal.signal(number, signal.SIG_IGN)
    vector = GameVector(environment, len(games), seed, first=games.start)
    try:
        connection.send((vector.observation_space, vector.action_space))
        while True:
            actions = connection.recv()
            if actions is None:
                connection.send(vector.reset())
            else:
                vector.step_async(actions)
                connection.send(vector.step_wait())
    except (EOFError, OSError):
        vector.close()
