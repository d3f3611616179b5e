"""Tasks on Ray, all submitted at once: what became of each, as they finish; where a worker dies it is tried again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from quarl_bench.distributed.engine import unwrap_remote_error
from quarl_bench.errors import EngineError, QuarlError, first_line
from quarl_bench.system.bars import open_bar

RETRIES = 3  # of a task whose worker dies
POLL_SECONDS = 0.5  # seconds between two looks
Task = TypeVar("Task")


class ProcessKilled(EngineError):
    """A process that a task had started was killed, by a system without memory for one: the task is tried again."""


@dataclass(frozen=True)
class Outcome(Generic[Task]):
    """What a task returned, or why it did not."""

    task: Task
    value: Any = None
    retries: int = 0
    failure: str = ""


def run_tasks(
    ray: Any, tasks: Sequence[Task], submit: Callable[[Task], Any], name: Callable[[Task], str], bar_name: str,
    *, progress: bool, should_stop: Callable[[], bool], note: Callable[[str], None],
) -> Iterator[Outcome[Task]]:  # fmt: skip
    """`submit` starts a task with Ray's own retries off and returns what it owes; ends early when asked to stop.

    With `progress` a bar counts the tasks and estimates what is left.
    """
    waiting = {submit(task): (task, 0) for task in tasks}
    with open_bar(len(tasks), "task", bar_name, shown=progress) as bar:
        while waiting and not should_stop():
            ready, _ = ray.wait(list(waiting), timeout=POLL_SECONDS)
            for result in ready:
                task, tried = waiting.pop(result)
                done = _collect(ray, result, task, tried)
                if done is None:
                    note(f"{name(task)}: its worker died and it is tried again ({tried + 1} of {RETRIES})")
                    waiting[submit(task)] = task, tried + 1
                    continue
                bar.update()
                yield done


def _collect(ray: Any, result: Any, task: Task, tried: int) -> Outcome[Task] | None:
    """What became of a task; None where it is to be tried again."""
    died = (
        ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError, ProcessKilled,
    )  # fmt: skip
    try:
        return Outcome(task, ray.get(result), tried)
    except ray.exceptions.RayError as error:
        cause = unwrap_remote_error(error)
        if isinstance(cause, died):
            if tried < RETRIES:
                return None
            return Outcome(task, None, tried, f"its worker died {tried + 1} times ({first_line(cause)})")
        kind = "" if isinstance(cause, QuarlError) else f"{type(cause).__name__}: "
        return Outcome(task, None, tried, f"{kind}{first_line(cause)}")
