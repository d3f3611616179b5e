"""The learner: full precision, one thread that updates, others that take in what actors send."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from quarl_bench.actorq.acting.actor import Chunk
from quarl_bench.actorq.acting.exploration import choose_exploration, diverge_gaussian, diverge_greedy, diverge_softmax
from quarl_bench.actorq.acting.task import ActorTask
from quarl_bench.actorq.breakdown import LEARNING, Stopwatch
from quarl_bench.actorq.learning.agents import CLOSE, act_greedily, make_agent
from quarl_bench.actorq.learning.checkpoint import load_checkpoint, save_checkpoint
from quarl_bench.actorq.learning.device import name_gpu
from quarl_bench.actorq.learning.ledger import Ledger
from quarl_bench.actorq.learning.limiter import Limiter, Ratio
from quarl_bench.actorq.learning.replay import Replay, Transitions
from quarl_bench.actorq.settings import RunSettings
from quarl_bench.errors import StoreError
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.quantization.net import Floats

CALIBRATION = 256  # states on which int8 actors are calibrated, and an evaluated policy is
CURVE = "curve"
SAVE_SECONDS = 60.0  # seconds between two checkpoints, where nobody says
REPLAY_STREAM = 205

Publish = Callable[[PolicyNet, int, Floats], None]


@dataclass
class Drift:
    """How far behind actors are, over all chunks."""

    staleness: list[float] = field(default_factory=list)  # updates since the weights that an actor acted by
    agreement: list[float] = field(default_factory=list)  # share of states with the learner's greedy action
    kl: list[float] = field(default_factory=list)  # nats, per state

    def summarise(self) -> dict[str, float | None]:
        """The mean of every measured list (None where nothing was measured), and the worst staleness in updates."""
        means = {name: float(np.mean(values)) if values else None for name, values in vars(self).items()}
        return means | {"longest_staleness": max(self.staleness, default=None)}


class Learner:
    """Owns networks, replay and the rate limiter. `insert` may be called by any thread, `learn` by one."""

    def __init__(
        self, settings: RunSettings, task: ActorTask, folder: Path, publish: Publish, save_seconds: float = SAVE_SECONDS
    ) -> None:
        self.settings, self.task, self.folder, self._publish = settings, task, folder, publish
        self._save_seconds = save_seconds
        self.agent = make_agent(settings, task)
        self.replay = Replay(settings.replay, np.random.default_rng([settings.seed, REPLAY_STREAM]))
        ahead = settings.chunk * settings.actors
        self.limiter = Limiter(Ratio.balance(settings.samples_per_insert, settings.warmup, ahead, settings.batch))
        self.steps, self.elapsed, self.drift = 0, 0.0, Drift()
        self.curve: list[dict[str, Any]] = []  # policies that were kept, and what they had cost
        self.returns: list[float] = []  # of the actors' last episodes, noise included
        self._ledger = Ledger()
        self._cpu: dict[tuple[int, int], float] = {}  # seconds, by actor and life
        self._inherited = 0.0  # CPU seconds before a resume
        self._resumed: tuple[int, int, float] = 0, 0, 0.0  # at which steps, updates and seconds
        self._versions: dict[int, int] = {}  # updates at the time of each version
        self._probe: Chunk | None = None
        self._lock = Lock()
        self._begin: float | None = None
        self._stopped = False
        self._watch = Stopwatch(LEARNING)
        self._own = time.process_time()

    def resume(self) -> None:
        """Go on from the checkpoint in the folder; StoreError when it is another network's, or policies are gone."""
        facts = load_checkpoint(self.folder, self.settings, self.agent, self.replay)
        self.steps, self.elapsed, self.curve = facts["steps"], facts["elapsed"], facts["curve"]
        for point in self.curve:
            if not (kept := self.folder / CURVE / point["name"]).exists():
                raise StoreError(f"{kept}: this policy of the run is gone; restore it, or start over in another folder")
        self._inherited = facts["cpu"]
        self._resumed = self.steps, self.agent.updates, self.elapsed
        self.limiter.ratio.inserts, self.limiter.ratio.samples = facts["inserts"], facts["samples"]

    def insert(self, chunk: Chunk, acknowledged: int = 0) -> bool:
        """Take in a chunk, waiting while the learner is behind; False when the run is over.

        `acknowledged` are the transitions of its actor for which this returned, as the actor knows.
        """
        inserted = self.limiter.insert(len(chunk.transitions), lambda: self._add_chunk(chunk, acknowledged))
        if not self._has_work():  # and nothing will come any more for which a learner could wait
            self.limiter.close()
        return inserted and self.steps < self.settings.steps and not self._stopped

    def _add_chunk(self, chunk: Chunk, acknowledged: int) -> None:
        with self._lock:
            if self._begin is None:
                self._begin = time.perf_counter() - self.elapsed
            self.replay.add(chunk.transitions)
            self.steps += chunk.steps
            self._ledger.add(
                chunk.actor, chunk.life, steps=chunk.steps, transitions=len(chunk.transitions),
                acknowledged=acknowledged, now=time.monotonic(),
            )  # fmt: skip
            self._cpu[chunk.actor, chunk.life] = chunk.cpu
            self.returns = [*self.returns, *chunk.returns][-20:]
            if chunk.version in self._versions:
                self.drift.staleness.append(self.agent.updates - self._versions[chunk.version])
                self._probe = chunk

    def learn(self) -> dict[str, Any]:
        """Until all steps are inserted and used, or `stop`; the run's account."""
        settings, interval = self.settings, max(self.settings.steps // self.settings.points, 1)
        self._watch.resume()
        saved = time.monotonic()
        due = (self.steps // interval + 1) * interval
        if self.agent.updates:  # resumed
            self._broadcast()
        while not self._stopped and self._has_work():
            if not self.limiter.sample(settings.batch):
                break
            self._watch.lap("idle")
            if not self._versions:
                self._broadcast()
            with self._lock:
                batch = self._sample()
            self.agent.update(batch)
            self._watch.lap("update")
            if self.agent.updates % settings.publish_period == 0:
                self._broadcast()
            if self.steps >= due:
                self._save_curve_point()
                due = (self.steps // interval + 1) * interval
            if time.monotonic() - saved > self._save_seconds:
                self._save()
                saved = time.monotonic()
        self._watch.lap("idle")
        self.limiter.close()
        if self._stopped:
            self._save()
        else:
            self._save_curve_point()
        return self.report()

    def stop(self) -> None:
        """Save, and end before all steps are done."""
        self._stopped = True
        if not self.limiter.ratio.may_sample(self.settings.batch):
            self.limiter.close()

    def report(self) -> dict[str, Any]:
        """The run so far, of built-in types; the breakdown begins where the run was resumed."""
        steps, updates, elapsed = self._resumed
        return {
            "stopped": self._stopped,
            "steps": self.steps,
            "updates": self.agent.updates,
            "elapsed": self._read_clock(),
            "cpu": self.cpu,
            "learner_cpu": time.process_time() - self._own,  # behind a resume, other threads too
            "curve": self.curve,
            "drift": self.drift.summarise(),
            "actor_returns": self.returns,
            "gpu": name_gpu(self.settings.device),
            "lives": self._ledger.list_lives(),
            "breakdown": self._watch.read(self.agent.updates - updates).as_dict(),
            "resumed": {"steps": steps, "elapsed": elapsed},
        }

    @property
    def cpu(self) -> float:
        """CPU seconds of learner and actors so far; those of a dead actor included."""
        return self._inherited + time.process_time() - self._own + sum(self._cpu.values())

    def _has_work(self) -> bool:
        ratio = self.limiter.ratio
        return self.steps < self.settings.steps or ratio.may_sample(self.settings.batch)

    def _sample(self) -> Transitions:
        """Steps as they followed each other where their probabilities are known, else single ones."""
        settings = self.settings
        if settings.log_probs:
            return self.replay.sample_runs(settings.batch, settings.chunk)
        return self.replay.sample(settings.batch)

    def _broadcast(self) -> None:
        with self._lock:
            states = self.replay.sample(CALIBRATION).observations
            probe, self._probe = self._probe, None
        policy = self.agent.export()
        version = len(self._versions)
        self._versions[version] = self.agent.updates
        self._publish(policy, version, states)
        if probe is not None and len(probe.states):
            self._compare(policy, probe)
        self._watch.lap("publish")

    def _compare(self, policy: PolicyNet, probe: Chunk) -> None:
        """Quantization and staleness together, in states that the actor visited."""
        if self.settings.log_probs:
            logits = policy.outputs(probe.states)
            self.drift.agreement.append(float((logits.argmax(axis=1) == probe.greedy.argmax(axis=1)).mean()))
            self.drift.kl.append(diverge_softmax(probe.greedy, logits))
            return
        ours = act_greedily(policy, probe.states)
        rung = choose_exploration(self.settings.exploration, probe.actor, self.settings.actors)
        if policy.head.discrete:
            self.drift.agreement.append(float((ours == probe.greedy).mean()))
            self.drift.kl.append(diverge_greedy(probe.greedy, ours, rung, self.task.outputs))
        else:
            self.drift.agreement.append(float((np.abs(ours - probe.greedy) <= CLOSE).all(axis=1).mean()))
            self.drift.kl.append(diverge_gaussian(probe.greedy, ours, rung))

    def _save_curve_point(self) -> None:
        """One policy for the evaluator, with what it had cost."""
        name = f"{len(self.curve):03d}"
        save_policy(self.agent.export(), self.folder / CURVE / name, {"steps": self.steps})
        with self._lock:
            states = self.replay.sample(CALIBRATION).observations
        np.save(self.folder / CURVE / f"{name}.npy", states)
        self.curve.append(
            {
                "name": name,
                "steps": self.steps,
                "updates": self.agent.updates,
                "elapsed": self._read_clock(),
                "cpu": self.cpu,
            }
        )
        self._watch.lap("save")

    def _save(self) -> None:
        ratio = self.limiter.ratio
        with self._lock:
            facts = {
                "steps": self.steps,
                "elapsed": self._read_clock(),
                "curve": self.curve,
                "cpu": self.cpu,
                "inserts": ratio.inserts,
                "samples": ratio.samples,
            }
            save_checkpoint(self.folder, self.settings, self.agent, self.replay, facts)
        self._watch.lap("save")

    def _read_clock(self) -> float:
        return self.elapsed if self._begin is None else time.perf_counter() - self._begin
