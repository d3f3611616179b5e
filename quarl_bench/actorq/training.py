"""A run of ActorQ on Ray: starts its processes, counts and replaces actors that die, and ends all of them."""

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.actorq.acting.task import ActorTask, open_task
from quarl_bench.actorq.breakdown import ACTING, Breakdown, sum_breakdowns
from quarl_bench.actorq.evaluator import TEST_EPISODES, VALIDATION_EPISODES, discard_curve, score_run
from quarl_bench.actorq.learning.checkpoint import FOLDER as CHECKPOINT
from quarl_bench.actorq.learning.checkpoint import has_checkpoint, read_state
from quarl_bench.actorq.learning.device import open_device
from quarl_bench.actorq.learning.learner import SAVE_SECONDS
from quarl_bench.actorq.learning.ledger import count_lost
from quarl_bench.actorq.record import RECORD, describe_libraries
from quarl_bench.actorq.settings import GPU, RunSettings
from quarl_bench.distributed.engine import open_engine, unwrap_remote_error
from quarl_bench.distributed.nodes import (
    avoid,
    check_everywhere,
    check_gpu,
    check_room,
    check_stores,
    check_versions,
    find_silent,
    list_nodes,
)
from quarl_bench.errors import EngineError, QuarlError, StoreError, first_line
from quarl_bench.system.atomic import lock_run, remove_folder, write_file
from quarl_bench.system.bars import open_bar
from quarl_bench.system.interruption import Interrupted

if TYPE_CHECKING:
    from tqdm import tqdm

POLL_SECONDS = 0.5  # seconds between two looks at the processes
MAX_DEATHS = 10  # of actors, per actor; then something else is wrong
OTHER_PROCESSES = 2  # processes beside the actors: learner and parameter server, on the node that asks for the run
STORE_FULL = ("ObjectStoreFullError", "OutOfDiskError")  # Ray's, also inside another's message
ELSEWHERE = "choose another --output"  # where another process trains in this one
LAST_ACTORS_SECONDS = 30.0  # seconds for the last actors to end behind the learner


@dataclass(frozen=True)
class RunOptions:
    """What a caller may decide about a run; nothing here changes what is learned."""

    address: str | None = None
    store: int | None = None  # bytes of a local object store
    resource: str | None = None  # of Ray, of which every actor takes one: it plays where there is some
    save_seconds: float = SAVE_SECONDS  # between two checkpoints
    resume: bool = False
    progress: bool = False
    validation: int = VALIDATION_EPISODES
    test: int = TEST_EPISODES
    metadata: dict[str, Any] = field(default_factory=dict)  # joins the record
    should_stop: Callable[[], bool] = lambda: False
    note: Callable[[str], None] = lambda _: None


def train(settings: RunSettings, folder: Path, options: RunOptions | None = None) -> dict[str, Any]:
    """Train into `folder` and return the record, which is also written there; the policy is `folder`/policy.

    Raises StoreError for an unfinished run without `resume`, another network's with it, or one that another process
    trains, EngineError where Ray or the learner fails, Interrupted when asked to stop.
    """
    options = options or RunOptions()
    task = open_task(settings)
    open_device(settings.device)
    if has_checkpoint(folder):
        if not options.resume:
            with lock_run(folder, ELSEWHERE):  # of one that is not unfinished, but under way
                pass
            raise StoreError(f"{folder} holds an unfinished run; pass --resume to go on, or delete it to start over")
        read_state(folder, settings)
    elif options.resume:
        options = dataclasses.replace(options, resume=False)
        options.note(f"{folder} holds no checkpoint; the run starts anew")
    with lock_run(folder, ELSEWHERE):
        _check_store(settings, task, options.store)
        before = os.getloadavg()[0]
        processes = settings.actors + OTHER_PROCESSES
        with open_engine(options.address, processes, options.store, progress=options.progress) as ray:
            folder.mkdir(parents=True, exist_ok=True)
            _check_nodes(ray, settings, task, options)
            report = _Run(ray, settings, folder.absolute(), options).watch(options.should_stop)
        if report["stopped"]:
            raise Interrupted(f"stopped at {report['steps']:,} of {settings.steps:,} steps; --resume goes on")
        scored = score_run(
            settings, task, folder, report.pop("curve"), validation=options.validation, test=options.test,
            progress=options.progress,
        )  # fmt: skip
        metadata = {"settings": settings.as_dict(), "versions": describe_libraries(), "load_before": before}
        record: dict[str, Any] = metadata | options.metadata | report | scored
        write_file(folder / RECORD, json.dumps(record, indent=1) + "\n")
        remove_folder(folder / CHECKPOINT)
        discard_curve(folder)
    return record


def observe(settings: RunSettings, folder: Path, options: RunOptions, is_over: Callable[[int], bool]) -> dict[str, Any]:
    """Train into `folder` until `is_over` says so of the steps so far; the report, with nothing scored or kept.

    Raises EngineError as `train` does.
    """
    open_device(settings.device)
    with open_engine(options.address, settings.actors + OTHER_PROCESSES, options.store) as ray:
        _check_nodes(ray, settings, open_task(settings), options)
        run = _Run(ray, settings, folder.absolute(), options)
        return run.watch(lambda: is_over(run.count_steps()))


class _Run:
    """The Ray processes of one run: started, watched, replaced, ended."""

    def __init__(self, ray: Any, settings: RunSettings, folder: Path, options: RunOptions) -> None:
        from quarl_bench.actorq.ports import ActorProcess, LearnerProcess, ServerProcess

        self._ray, self._settings, self._options = ray, settings, options
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        beside = {"num_cpus": 1, "scheduling_strategy": here}  # the folder is on this machine
        gpus = int(settings.device == GPU)
        threads = 2 * settings.actors + 4
        self._server = ray.remote(ServerProcess).options(**beside).remote(settings)
        self._learner = (
            ray.remote(LearnerProcess)
            .options(max_concurrency=threads, num_gpus=gpus, **beside)
            .remote(settings, folder, self._server, save_seconds=options.save_seconds)
        )
        self._names = {node.id: node.name for node in list_nodes(ray)}
        self._actor_class = ray.remote(ActorProcess)
        self._playing: dict[Any, tuple[int, Any]] = {}  # (which actor, its process) by the result it owes
        self._lives = [0] * settings.actors
        self.deaths = 0
        self._reports: list[dict[str, Any]] = []

    def count_steps(self) -> int:
        """Steps that the learner has; 0 where it does not answer."""
        with suppress(self._ray.exceptions.RayError):  # told when its result is collected
            steps, _ = self._ray.get(self._learner.status.remote())
            return int(steps)
        return 0

    def watch(self, should_stop: Callable[[], bool]) -> dict[str, Any]:
        """Until the learner is done, or is told to stop; its report with those of the others."""
        if self._options.resume:
            self._collect_learned(self._learner.resume.remote())
        learned = self._learner.learn.remote()
        for actor in range(self._settings.actors):
            self._start(actor)
        stopping, load = False, []
        with open_bar(self._settings.steps, "step", self._settings.name, shown=self._options.progress) as bar:
            while True:
                ready, _ = self._ray.wait([learned, *self._playing], timeout=POLL_SECONDS)
                load.append(os.getloadavg()[0])
                if learned in ready:
                    break
                self._collect(ready)
                if should_stop() and not stopping:
                    self._learner.stop.remote()
                    stopping = True
                self._show(bar)
        report: dict[str, Any] = self._collect_learned(learned)
        self._finish()
        server = self._ask_server()
        acting = [Breakdown.from_dict(found["breakdown"]) for found in self._reports]
        return report | {
            "acting": sum_breakdowns(acting, ACTING).as_dict(),
            "server": server,
            "cpu": report["cpu"] + sum(server["breakdown"]["cpu"].values()),
            "pulls": sum(found["pulls"] for found in self._reports),
            "deaths": self.deaths,
            **self._account(report["lives"]),
            "load": sum(load) / len(load),
        }

    def _start(self, actor: int, silent: Sequence[str] = ()) -> None:
        own = {} if self._options.resource is None else {self._options.resource: 1}
        placing = avoid(self._ray, silent)
        placed = self._actor_class.options(num_cpus=1, resources=own, scheduling_strategy=placing)
        process = placed.remote(self._settings, actor, self._lives[actor])
        self._playing[process.play.remote(self._learner, self._server)] = actor, process

    def _collect(self, ready: list[Any]) -> None:
        """Reports of actors that ended, and new actors for those that died."""
        for result in ready:
            actor, _ = self._playing.pop(result)
            try:
                report = self._ray.get(result)
                self._reports.append(report)
                if report["orphaned"]:
                    self._ask_server()  # without it nobody plays, and the learner would wait for ever
            except self._ray.exceptions.RayActorError as error:
                self.deaths += 1
                self._lives[actor] += 1
                if self._lives[actor] > MAX_DEATHS:
                    raise EngineError(
                        f"actor {actor} died {self._lives[actor]} times; last: {first_line(error)}"
                    ) from error
                self._options.note(f"actor {actor} died and is replaced ({self.deaths} deaths so far)")
                self._start(actor, find_silent(list_nodes(self._ray)))
            except self._ray.exceptions.RayTaskError as error:
                raise _explain_error(error, f"actor {actor}") from error

    def _collect_learned(self, result: Any) -> Any:
        """What the learner returned; EngineError where it, or the parameter server behind it, is dead."""
        lost = self._ray.exceptions.RayActorError
        try:
            return self._ray.get(result)
        except self._ray.exceptions.RayTaskError as error:  # first: one of a lost server is of both kinds
            cause = unwrap_remote_error(error)
            if isinstance(cause, lost):
                raise _explain_death(cause, "the parameter server") from error
            raise _explain_error(error, "the learner") from error
        except lost as error:
            raise _explain_death(error, "the learner") from error

    def _ask_server(self) -> dict[str, Any]:
        """What the parameter server has sent; EngineError where it is dead."""
        try:
            report: dict[str, Any] = self._ray.get(self._server.report.remote())
        except self._ray.exceptions.RayActorError as error:
            raise _explain_death(error, "the parameter server") from error
        return report

    def _finish(self) -> None:
        """Give actors a moment to see that the run is over; the engine ends who does not."""
        until = time.monotonic() + LAST_ACTORS_SECONDS
        while self._playing and time.monotonic() < until:
            ready, _ = self._ray.wait(list(self._playing), timeout=POLL_SECONDS)
            for result in ready:
                del self._playing[result]
                with suppress(self._ray.exceptions.RayError):  # died behind the end: nothing is lost
                    self._reports.append(self._ray.get(result))

    def _account(self, lives: list[dict[str, Any]]) -> dict[str, Any]:
        """The lives with what those that saw the end know of it, transitions that are lost, and actors by node."""
        known = {(found["actor"], found["life"]): found["acknowledged"] for found in self._reports}
        whole = [
            life | {"acknowledged": known.get((life["actor"], life["life"]), life["acknowledged"])} for life in lives
        ]
        places = [self._name(found["node"]) for found in self._reports]
        return {
            "lives": whole,
            "lost": count_lost(whole),
            "nodes": {name: places.count(name) for name in sorted(set(places))},
        }

    def _name(self, node: str) -> str:
        if node not in self._names:  # it joined while the run went on
            self._names |= {found.id: found.name for found in list_nodes(self._ray)}
        return self._names.get(node, node)

    def _show(self, bar: "tqdm[Any]") -> None:
        if self._options.progress:
            with suppress(self._ray.exceptions.RayError):  # told when its result is collected
                steps, value = self._ray.get(self._learner.status.remote())
                bar.update(steps - bar.n)
                bar.set_postfix_str(f"return {value:.1f}, {self.deaths} deaths")


def _explain_death(error: BaseException, who: str) -> EngineError:
    return EngineError(f"{who} died ({first_line(error)}); --resume goes on from the learner's checkpoint")


def _explain_error(error: Exception, who: str) -> QuarlError:
    """One line for what a remote process raised."""
    cause = unwrap_remote_error(error)
    if isinstance(cause, QuarlError):
        return cause
    kind = type(cause).__name__
    if kind in STORE_FULL or any(name in str(cause) for name in STORE_FULL):
        return EngineError(
            f"the object store is full ({kind} in {who}); pass a larger --object-store, or free the disk"
        )
    return EngineError(f"{who} failed ({kind}: {first_line(cause)})")


def _check_store(settings: RunSettings, task: ActorTask, store: int | None) -> None:
    """Refuse a local object store that cannot hold what is under way."""
    needed = _size_messages(settings, task)
    if store is not None and needed > store:
        raise EngineError(
            f"an object store of {store >> 20} MB is full with {needed >> 20} MB of weights; pass a larger "
            "--object-store, or smaller --widths"
        )


def _size_messages(settings: RunSettings, task: ActorTask) -> int:
    """Bytes that are under way at once: the learner's weights and two messages."""
    sizes = [task.inputs, *settings.widths, task.outputs]
    return 3 * 4 * sum(a * b + b for a, b in itertools.pairwise(sizes))


def _check_nodes(ray: Any, settings: RunSettings, task: ActorTask, options: RunOptions) -> None:
    """Refuse a cluster on which the run would wait for ever, or its actors would fail."""
    nodes = list_nodes(ray)
    check_room(nodes, OTHER_PROCESSES, settings.actors, options.resource)
    if settings.device == GPU:
        check_gpu(nodes[0])
    if options.address is None:
        return
    check_stores(nodes, _size_messages(settings, task))
    players = [node for node in nodes if node.count_places(options.resource)]
    check_versions(ray, players)
    check_everywhere(ray, players, _try_task, settings)


def _try_task(settings: RunSettings) -> None:
    """On the node of an actor: what its task needs is installed."""
    open_task(settings)
