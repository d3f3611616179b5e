"""Progress bars inside fixtures: silent in workers of xdist and without a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def show_blocks(config: pytest.Config, total: int, name: str) -> Iterator[Callable[[str], None]]:
    """A bar over `total` blocks of a measurement; what it yields is called behind each, with a word that it drops."""
    from tqdm import tqdm

    quiet = hasattr(config, "workerinput") or not config.get_terminal_writer().hasmarkup
    with tqdm(total=total, desc=name, disable=quiet, leave=False) as bar:

        def advance(_: str) -> None:
            bar.update()

        yield advance
