"""How a command that trains is stopped: it ends at a checkpoint, with an exit code of its own."""

import signal
from collections.abc import Callable
from typing import Any

STOPPED = 3  # exit code
STOPPING = "exit codes: 0 done, 2 wrong input (one line on stderr), 3 stopped at a checkpoint, 130 interrupted"


def listen_for_stop(*numbers: signal.Signals) -> Callable[[], bool]:
    """Whether the process was asked to end: by one of these signals; the second from the keyboard ends it at once."""
    asked: list[int] = []

    def note(number: int, _: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    for number in numbers:
        signal.signal(number, note)
    return lambda: bool(asked)
