"""The schemes of a check, played on the other cores as well.

A helper is a copy of this process that plays the last schemes first; one of them plays random actions before these.
What it measures is left in the store, where whoever comes to it finds it: every scheme is played once, whole, in one
process, so that no number depends on how many cores there are. What fails in a helper is left to be played, and to
fail, where it is asked for.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from quarl_bench.checking.subject import Subject
from quarl_bench.quantization.scheme import Scheme

PATIENCE = 0.5  # seconds that a helper is given to end, before it is told again


@contextmanager
def play_ahead(subject: Subject, schemes: Sequence[Scheme], seeds: Sequence[int]) -> Iterator[None]:
    """Helpers play `schemes` on environment `seeds` while the block runs; none of them is left behind it.

    Nobody helps where nothing is stored, as of environments of a user's own, nor under pytest-xdist, whose workers have
    the cores already.
    """
    helpers = _count_helpers(len(schemes)) if subject.store is not None else 0
    context: Any = multiprocessing.get_context("fork" if helpers else None)
    started = []
    try:
        for number in range(helpers):
            end = len(schemes) - number * len(schemes) // helpers
            order = [*reversed(schemes[:end]), *reversed(schemes[end:])]
            plays = [partial(subject.play, scheme, seeds) for scheme in order]
            if not number:
                plays.insert(0, partial(subject.play_randomly, seeds))
            helper = context.Process(target=_help, args=(subject, plays, os.getpid()), daemon=True)
            helper.start()
            started.append(helper)
        yield
    finally:
        for helper in started:
            while helper.is_alive():  # an exception in a destructor is swallowed, that of being ended too
                helper.terminate()
                helper.join(PATIENCE)


def _count_helpers(schemes: int) -> int:
    """One for each further core; elsewhere than on Linux a copy of a process may not compute."""
    if sys.platform != "linux" or "PYTEST_XDIST_WORKER" in os.environ:
        return 0
    return min(len(os.sched_getaffinity(0)) - 1, schemes)


def _help(subject: Subject, plays: Sequence[Callable[[], Any]], parent: int) -> None:
    """Play until all is there, or nobody waits for it; being ended is an exception, which leaves no file behind."""
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        subject.shown = False
        for play in plays:
            if os.getppid() == parent:
                play()
    except BaseException:  # noqa: BLE001, S110  (whoever asks for the scheme meets it again)
        pass
