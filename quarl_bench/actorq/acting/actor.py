"""An actor: plays, explores, sends transitions, and takes new weights when they have arrived."""

import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quarl_bench.actorq.acting.exploration import CorrelatedNoise, choose_exploration, draw
from quarl_bench.actorq.acting.inference import RUNTIMES
from quarl_bench.actorq.acting.task import ActorTask, Player
from quarl_bench.actorq.breakdown import ACTING, Stopwatch
from quarl_bench.actorq.delta import Unpacker
from quarl_bench.actorq.learning.replay import Assembler, Transitions
from quarl_bench.actorq.message import Broadcast, Bytes, build, deserialize
from quarl_bench.actorq.settings import RunSettings
from quarl_bench.quantization.net import Floats

COMPARED_STATES = 16  # states of a chunk in which learner and actor are compared
NO_VERSION = -1  # the version before the first broadcast


@dataclass(frozen=True, eq=False)
class Chunk:
    """What an actor sends: transitions, by which weights it acted, and how it would have acted without exploring."""

    actor: int
    life: int  # how often this actor has died before
    version: int
    transitions: Transitions
    steps: int  # environment steps in this chunk
    states: Floats  # (n, *shape)
    greedy: NDArray[Any]  # (n,) indices, or (n, actions) in [-1, 1], or logits (n, actions) of what is drawn
    returns: tuple[float, ...]  # of the episodes that ended
    cpu: float  # seconds of the actor's process so far


class Ports(Protocol):
    """How an actor reaches its learner: it pulls weights from there and sends transitions there."""

    def count_steps(self) -> int:
        """Environment steps of all actors so far: where an actor that replaces another goes on exploring."""

    def pull(self, known: int) -> list[Bytes]:
        """What has arrived of a message newer than `known`: it, or it as changes, behind what they refer to if lacking.

        Never waits, but asks for the next one.
        """

    def wait(self) -> bool:
        """Wait while the learner is behind; False when there is nothing more to do."""

    def send(self, chunk: Chunk) -> None:
        """Send a chunk of transitions to the learner."""


class Behaviour:
    """The exploring policy: random before the first broadcast, then greedy with this actor's noise, or drawn."""

    def __init__(
        self, settings: RunSettings, task: ActorTask, actor: int, generator: np.random.Generator, begun: int = 0
    ) -> None:
        self._task, self._generator, self._drawn = task, generator, settings.log_probs
        self.rung = choose_exploration(settings.exploration, actor, settings.actors)
        self._anneal = settings.anneal / settings.actors
        self._steps = max(begun - settings.warmup, 0) / settings.actors  # all is random before
        self._noise = CorrelatedNoise(task.outputs, settings.correlation, generator)
        self._inference = RUNTIMES[settings.runtime]()
        self._broadcast: Broadcast | None = None
        self._unpacker = Unpacker()

    @property
    def version(self) -> int:
        """Which broadcast the actor's weights are from, counted from 0."""
        return NO_VERSION if self._broadcast is None else self._broadcast.version

    def unpack(self, messages: list[Bytes]) -> Bytes:
        """The plain message that the last of what arrived stands for."""
        return self._unpacker.unpack(messages)

    def load(self, broadcast: Broadcast) -> None:
        """Replace the actor's net by the one of `broadcast`; called whenever a pull brought newer weights."""
        self._inference.load(broadcast)
        self._broadcast = broadcast

    def infer(self, observation: Floats) -> Floats | None:
        """The net's outputs (outputs,); None as long as there is no net."""
        if self._broadcast is None:
            return None
        return np.asarray(self._inference.forward(self._broadcast.transform.apply(observation[None]))[0])

    def explore(self, outputs: Floats | None) -> tuple[Any, Any, float]:
        """(what is done, what would be done without exploring, log-probability of what is done where it is asked for).

        What is done is an index, or values in [-1, 1]; what is drawn from a softmax stands beside its logits.
        """
        if self._drawn:
            logits = np.zeros(self._task.outputs, dtype=np.float32) if outputs is None else outputs
            action, log_prob = draw(logits, self._generator)
            return action, logits, log_prob
        if self._task.head.discrete:
            random = int(self._generator.integers(self._task.outputs))
            if outputs is None:
                return random, random, 0.0
            greedy = int(outputs.argmax())
            self._steps += 1
            epsilon = max(self.rung, 1 - self._steps / self._anneal) if self._anneal else self.rung
            return (random if self._generator.random() < epsilon else greedy), greedy, 0.0
        if outputs is None:
            drawn = np.clip(self._noise.draw(), -1, 1).astype(np.float32)
            return drawn, drawn, 0.0
        greedy_values = np.tanh(outputs)
        noisy = greedy_values + self.rung * self._noise.draw()
        return np.clip(noisy, -1, 1).astype(np.float32), greedy_values, 0.0

    def to_environment(self, action: Any) -> Any:
        """The action in the environment's own units."""
        head = self._task.head
        if head.low is None or head.high is None:
            return action
        return head.low + np.float32(0.5) * (action + np.float32(1)) * (head.high - head.low)


def play(
    settings: RunSettings, task: ActorTask, actor: int, life: int, ports: Ports, limit: int | None = None
) -> dict[str, Any]:
    """Act until the learner has enough, or for `limit` steps; the breakdown and CPU seconds of this actor."""
    generator = np.random.default_rng([settings.seed, actor, life])
    behaviour = Behaviour(settings, task, actor, generator, ports.count_steps())
    assembler = Assembler(settings.n_step, settings.discount)
    player = Player(task.environment, generator)
    states: list[Floats] = []
    greedy: list[Any] = []
    steps = sent = pulls = counted = 0
    watch, base = Stopwatch(ACTING), time.process_time()
    while limit is None or steps < limit:
        if steps % settings.update_period == 0 or behaviour.version == NO_VERSION:
            messages = ports.pull(behaviour.version)
            watch.lap("pull")
            if messages:
                if behaviour.version == NO_VERSION:  # what went before was random, and is not counted
                    watch, counted = Stopwatch(ACTING), steps
                pulls += 1
                load_message(behaviour, messages, watch)
        observation = player.observation
        outputs = behaviour.infer(observation)
        watch.lap("inference")
        action, preferred, log_prob = behaviour.explore(outputs)
        done = behaviour.to_environment(action)
        watch.lap("other")
        after, reward, terminated, over = player.step(done)
        steps += 1
        watch.lap("environment")
        assembler.add(observation, action, reward, after, terminated=terminated, log_prob=log_prob)
        if over:
            assembler.end(after)
        if outputs is not None and len(states) < COMPARED_STATES:
            states.append(observation)
            greedy.append(preferred)
        if len(assembler) >= settings.chunk:
            shape = observation.shape
            chunk = Chunk(
                actor, life, behaviour.version, assembler.take(), steps - sent,
                np.array(states, dtype=np.float32).reshape(-1, *shape), np.array(greedy), tuple(player.returns),
                time.process_time() - base,
            )  # fmt: skip
            states, greedy, sent = [], [], steps
            player.returns.clear()
            watch.lap("other")
            go_on = ports.wait()
            watch.lap("wait")
            if not go_on:
                break
            ports.send(chunk)
            watch.lap("send")
        watch.lap("other")
    player.close()
    return {"breakdown": watch.read(steps - counted).as_dict(), "cpu": time.process_time() - base, "pulls": pulls}


def load_message(behaviour: Behaviour, messages: list[Bytes], watch: Stopwatch) -> None:
    """From the bytes of a broadcast to new weights."""
    plain = behaviour.unpack(messages)
    watch.lap("decompress")
    parts = deserialize(plain)
    watch.lap("deserialize")
    behaviour.load(build(parts))
    watch.lap("load")
