"""What a judgement hands to whoever runs the test: its row, and that nothing is decided. Imports nothing heavy."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quarl_bench.views.rows import Row

RECORD: ContextVar["Callable[[Row], None]"] = ContextVar("quarl_record")  # set while the plugin runs a test


class Undecided(AssertionError):
    """The interval contains the threshold: neither supported nor refuted. The plugin makes it an outcome of its own."""


class ClaimRefuted(AssertionError):
    """The interval lies wholly on the wrong side of the claim's threshold."""
