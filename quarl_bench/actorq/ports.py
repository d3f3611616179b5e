"""The processes of a run as Ray actors, and an actor's connections to the two others."""

import os
import signal
from pathlib import Path
from typing import Any

import torch

from quarl_bench.actorq.acting.actor import Chunk, play
from quarl_bench.actorq.acting.task import open_task
from quarl_bench.actorq.delta import is_delta
from quarl_bench.actorq.learning.learner import Learner
from quarl_bench.actorq.message import Bytes
from quarl_bench.actorq.server import ParameterServer
from quarl_bench.actorq.settings import RunSettings
from quarl_bench.distributed.engine import import_ray
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.net import Floats

CHUNKS_AHEAD = 2  # chunks that an actor sends ahead
LEARNER_CORE = 0  # of a pinned run


class ServerProcess:
    """The parameter server: the last message in the object store, and the whole one that it is a change of, if it is.

    They are handed out by reference, so that a message goes to every node once, whatever the number of its actors.
    """

    def __init__(self, settings: RunSettings) -> None:
        start_process(settings, learning=True)
        self._server = ParameterServer(settings)
        self._version = -1
        self._whole: tuple[int, Any] = -1, None  # version and reference
        self._changes: Any = None  # reference, where the last message is not whole

    def publish(self, policy: PolicyNet, version: int, states: Floats) -> None:
        """Quantize and store; the message before goes when its last reader has read it."""
        message = self._server.prepare(policy, version, states)
        reference, self._version = import_ray().put(message), version
        if is_delta(message):
            self._changes = reference
        else:
            self._whole, self._changes = (version, reference), None

    def pull(self, known: int, whole: int) -> tuple[int, list[Any]]:
        """Which whole message the latest one refers to, and what an actor lacks that has `known` and that `whole`."""
        version, reference = self._whole
        if self._version <= known:
            return version, []
        lacked = [] if version == whole else [reference]
        return version, lacked if self._changes is None else [*lacked, self._changes]

    def report(self) -> dict[str, Any]:
        """What the parameter server has sent, as `Server.report` says it."""
        return self._server.report()


class LearnerProcess:
    """The learner, with one thread for learning and others for what comes in."""

    def __init__(self, settings: RunSettings, folder: Path, server: Any, *, save_seconds: float) -> None:
        start_process(settings, learning=True)
        self._ray, self._server, self._pending = import_ray(), server, None
        self._learner = Learner(settings, open_task(settings), folder, self._publish, save_seconds)

    def resume(self) -> None:
        """Go on from the checkpoint, before anything is inserted; see `Learner.resume`."""
        self._learner.resume()

    def learn(self) -> dict[str, Any]:
        """Update until all steps of the run are done."""
        return self._learner.learn()

    def insert(self, chunk: Chunk, acknowledged: int) -> bool:
        """Hand transitions to the learner; see `Learner.insert`."""
        return self._learner.insert(chunk, acknowledged)

    def stop(self) -> None:
        """End the learner's loop; see `Learner.stop`."""
        self._learner.stop()

    def status(self) -> tuple[int, float]:
        """Steps so far, and the mean return of the actors' last episodes."""
        returns = self._learner.returns
        return self._learner.steps, sum(returns) / len(returns) if returns else float("nan")

    def _publish(self, policy: PolicyNet, version: int, states: Floats) -> None:
        """Hand over, and wait for the one before: broadcasts never pile up."""
        if self._pending is not None:
            self._ray.get(self._pending)
        self._pending = self._server.publish.remote(policy, version, states)


class ActorProcess:
    """An actor as a Ray actor: it plays until the learner is done."""

    def __init__(self, settings: RunSettings, actor: int, life: int) -> None:
        start_process(settings, learning=False, index=actor)
        self._settings, self._actor, self._life = settings, actor, life

    def play(self, learner: Any, server: Any) -> dict[str, Any]:
        """Until the learner has enough, or is gone."""
        task = open_task(self._settings)
        ports = RayPorts(learner, server)
        report = play(self._settings, task, self._actor, self._life, ports)
        return report | {
            "actor": self._actor,
            "life": self._life,
            "node": import_ray().get_runtime_context().get_node_id(),
            "acknowledged": ports.acknowledged,
            "orphaned": ports.orphaned,
        }


class RayPorts:
    """An actor's connections: pulls that are never waited for, inserts that are waited for two chunks later."""

    def __init__(self, learner: Any, server: Any) -> None:
        self._ray, self._learner, self._server = import_ray(), learner, server
        self._sent: list[tuple[Any, int]] = []  # what is not answered yet, and of how many transitions
        self.acknowledged = 0  # transitions of which the learner said that it has them
        self._asked: Any = None
        self._whole = -1  # version of the last whole message
        self.orphaned = False

    def count_steps(self) -> int:
        """Environment steps of all actors so far; 0 where nobody answers."""
        try:
            steps, _ = self._ray.get(self._learner.status.remote())
        except self._ray.exceptions.RayError:
            self.orphaned = True  # the next `wait` ends it
            return 0
        return int(steps)

    def pull(self, known: int) -> list[Bytes]:
        """What has arrived, or nothing; asks the server for the next message and never waits for it."""
        if self._asked is None:
            self._asked = self._server.pull.remote(known, self._whole)
            return []
        ready, _ = self._ray.wait([self._asked], timeout=0)
        if not ready:
            return []
        self._asked = None
        try:
            whole, lacked = self._ray.get(ready[0])
            messages: list[Bytes] = self._ray.get(lacked)
        except self._ray.exceptions.RayError:
            self.orphaned = True  # the next `wait` ends it
            return []
        self._whole = whole if messages else self._whole
        return messages

    def wait(self) -> bool:
        """Wait while the learner is behind; without a learner there is nothing to do."""
        go_on = not self.orphaned
        while go_on and len(self._sent) >= CHUNKS_AHEAD:
            answer, count = self._sent.pop(0)
            try:
                go_on = bool(self._ray.get(answer))
                self.acknowledged += count if go_on else 0
            except self._ray.exceptions.RayError:
                go_on, self.orphaned = False, True
        return go_on

    def send(self, chunk: Chunk) -> None:
        """Send a chunk of transitions to the learner's process."""
        self._sent.append((self._learner.insert.remote(chunk, self.acknowledged), len(chunk.transitions)))


def start_process(settings: RunSettings, *, learning: bool, index: int = 0) -> None:
    """One thread; the driver alone answers to the keyboard; pinned to its core where that is asked for."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if settings.pin:
        cores = sorted(os.sched_getaffinity(0))
        others = cores[1:] or cores
        os.sched_setaffinity(0, {cores[LEARNER_CORE] if learning else others[index % len(others)]})
