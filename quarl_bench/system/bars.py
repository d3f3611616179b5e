"""Bars of long work: how far it is and what is left, on stderr, and on a terminal alone."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # `--help` takes no time
    from tqdm import tqdm

Result = TypeVar("Result")
AT_MOST = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f} of at most {total:.0f} {unit} [{elapsed}<{remaining}{postfix}]"
UNKNOWN = {"ncols": 80, "nrows": 24}  # of a terminal that does not say how large it is, as under `script`
INSIDE = 1.0  # seconds before a bar within another one appears
TICK = 1.0  # seconds between two moves of a clock


def open_bar(
    total: float | None, unit: str, name: str = "", *, shown: bool | None = None, **settings: Any
) -> "tqdm[Any]":
    """A bar; `shown` says whether a person sees it, None asks whether stderr is a terminal."""
    from tqdm import tqdm

    settings = {"leave": False} | _find_size() | settings
    hidden = None if shown is None else not shown
    return tqdm(total=total, unit=unit, desc=name or None, file=sys.stderr, disable=hidden, **settings)


def collect(results: Iterable[Result], total: int, unit: str, name: Callable[[Result], str]) -> list[Result]:
    """All `results`, with a bar that counts them in `unit`s and names the last one."""
    collected = []
    with open_bar(total, unit) as bar:
        for result in results:
            collected.append(result)
            step(bar, name(result))
    return collected


def step(bar: "tqdm[Any]", name: str = "") -> None:
    """One unit further; `name` says what is done."""
    bar.set_postfix_str(name)
    bar.update()


@contextmanager
def open_note(words: str, *, shown: bool | None = None) -> Iterator[None]:
    """One line such as "starting Ray ..." while something runs that has no measure; `shown` as of `open_bar`."""
    with open_bar(None, "", f"{words} ...", shown=shown, bar_format="{desc}"):
        yield


@contextmanager
def open_clock(seconds: float, name: str) -> "Iterator[tqdm[Any]]":
    """A bar of the time that a budget of `seconds` ends; it moves by itself."""
    begun, over = time.monotonic(), threading.Event()
    with open_bar(seconds, "s", name, bar_format=AT_MOST) as bar:

        def tick() -> None:
            while not over.wait(TICK):
                bar.update(min(time.monotonic() - begun, seconds) - bar.n)

        clock = threading.Thread(target=tick, daemon=True)
        if not bar.disable:
            clock.start()
        try:
            yield bar
        finally:
            over.set()
            if not bar.disable:
                clock.join()


def _find_size() -> dict[str, int]:
    """The size to take where the terminal claims to have none; nothing where the bar finds it by itself."""
    try:
        return {} if os.get_terminal_size(sys.stderr.fileno()).columns else UNKNOWN
    except (OSError, ValueError):  # no file, or no terminal
        return {}
