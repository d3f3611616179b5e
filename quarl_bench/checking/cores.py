"""Schemes played on all cores.

Helpers are copies of this process. They and it take the next play from one list, the fewest bits first: these last
longest, and what is short comes last, so that the cores end together. What is measured is left in the store, where
whoever asks finds it: every scheme is played once, whole, in one process, so that no number depends on how many cores
there are. What fails in a helper is left to be played, and to fail, where it is asked for.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import RawIOBase
from typing import Any

from quarl_bench.checking.answer import SchemeResult, play_schemes
from quarl_bench.checking.subject import Subject
from quarl_bench.evaluation.protocol import list_test_seeds
from quarl_bench.experiments.member import FP32
from quarl_bench.judging.outcomes import MARGIN
from quarl_bench.judging.pairs import align
from quarl_bench.judging.retention import check_floor
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.system.bars import open_bar

PATIENCE = 0.5  # seconds that a helper is given to end, before it is told again
Plays = Sequence[tuple[str, Callable[[], Any]]]  # with their names


def collect_lines(
    subject: Subject,
    schemes: Sequence[Scheme],
    episodes: int,
    unit: str,
    margin: float = MARGIN,
    floor: float | None = None,
    beside: Plays = (),
    meanwhile: Callable[[], object] = lambda: None,
) -> list[SchemeResult]:
    """What `play_schemes` yields, played on all cores, with a bar that counts `unit`s; the same errors.

    `beside` are further plays of the subject, for whoever asks the store about them later. `meanwhile` is called when
    nothing is left to be begun, while helpers may still play.
    """
    played, lines = play_schemes(subject, schemes, episodes, margin, floor), []
    seeds = list_test_seeds(episodes)
    plays = [(scheme.name, partial(subject.play, scheme, seeds)) for scheme in reversed(schemes)]
    with share_plays(subject, [*plays, *beside]) as share, open_bar(len(schemes), unit) as bar:
        reference = subject.play(FP32, seeds)
        check_floor(floor, float(align(reference)[0].mean()))  # before the others are played
        for begun, name in share:
            bar.set_postfix_str(name)
            bar.update(min(begun, len(schemes)) - bar.n)
        meanwhile()
        for line in played:
            lines.append(line)
            bar.set_postfix_str(line.scheme.name)
            bar.update(max(len(lines) - bar.n, 0))
    return lines


@contextmanager
def share_plays(subject: Subject, plays: Plays) -> Iterator[Iterator[tuple[int, str]]]:
    """Helpers play `plays` of the subject while the block runs, the first ones first; none is left behind it.

    The block gets what this process plays meanwhile: behind each play how many were begun, and the name of this one.
    Nobody helps, and it gets nothing, where nothing is stored, as of environments of a user's own, and under
    pytest-xdist, whose workers have the cores already.
    """
    helpers = _count_helpers(len(plays)) if subject.store is not None else 0
    context: Any = multiprocessing.get_context("fork" if helpers else None)
    started = []
    with _list_places(len(plays)) as places:
        try:
            for _ in range(helpers):
                helper = context.Process(target=_help, args=(subject, plays, places, os.getpid()), daemon=True)
                helper.start()
                started.append(helper)
            yield _take(plays, places) if helpers else iter(())
        finally:
            for helper in started:
                while helper.is_alive():  # an exception in a destructor is swallowed, that of being ended too
                    helper.terminate()
                    helper.join(PATIENCE)


def _list_places(count: int) -> RawIOBase:
    """A pipe with a byte for each place in a list: whoever reads it has that place, and nobody else."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as file:
        file.write(bytes(range(count)))
    return os.fdopen(reading, "rb", buffering=0)


def _take(plays: Plays, places: RawIOBase) -> Iterator[tuple[int, str]]:
    """Play what nobody has begun, until nothing is left."""
    while place := places.read(1):
        name, play = plays[place[0]]
        play()
        yield place[0] + 1, name


def _count_helpers(plays: int) -> int:
    """One for each further core; elsewhere than on Linux a copy of a process may not compute."""
    if sys.platform != "linux" or "PYTEST_XDIST_WORKER" in os.environ:
        return 0
    return min(len(os.sched_getaffinity(0)) - 1, plays)


def _help(subject: Subject, plays: Plays, places: RawIOBase, parent: int) -> None:
    """Play until nothing is left, or nobody waits for it; being ended is an exception, which leaves no file behind."""
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        subject.shown = False
        for _ in _take(plays, places):
            if os.getppid() != parent:
                break
    except BaseException:  # noqa: BLE001, S110  (whoever asks for the scheme meets it again)
        pass
