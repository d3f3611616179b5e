"""Progress bars inside fixtures: silent in workers of xdist and without a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from quarl_bench.system.bars import open_bar


def is_watched(config: pytest.Config) -> bool:
    """Whether a person sees what this process writes: it is no worker of xdist, and writes to a terminal."""
    return not hasattr(config, "workerinput") and config.get_terminal_writer().hasmarkup


@contextmanager
def show_blocks(config: pytest.Config, total: int, name: str) -> Iterator[Callable[[str], None]]:
    """A bar over `total` blocks of a measurement; what it yields is called behind each, with a word that it drops."""
    with open_bar(total, "block", name, shown=is_watched(config)) as bar:

        def advance(_: str) -> None:
            bar.update()

        yield advance
