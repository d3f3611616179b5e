"""What a judgement hands to whoever runs the test: its row, and that nothing is decided. Imports nothing heavy."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quarl_bench.views.rows import Row

RECORD: ContextVar["Callable[[Row], None]"] = ContextVar("quarl_record")  # set while the plugin runs a test

# Whether an undecided verdict fails, given what the caller says of it; set while the plugin runs a test.
STRICT: ContextVar[Callable[[bool | None], bool]] = ContextVar("quarl_strict")

MARGIN = 0.05  # share of the return that may be lost, where nobody says otherwise
QUANTIZABLE = "quantizable"  # the claim of rows that `assert_quantizable` records
PROVES_NOTHING = "proves nothing"  # ends the caveat of a verdict on a policy that does not beat random play


class Undecided(AssertionError):
    """The verdict is inconclusive or undecidable, and the gate is closed."""


class ClaimRefuted(AssertionError):
    """The interval lies wholly on the wrong side of the claim's threshold."""
