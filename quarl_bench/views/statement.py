"""A main statement of a paper: which rows answer it, and what the paper prints."""

from collections.abc import Callable
from dataclasses import dataclass

FORMATS: dict[str, Callable[[float], str]] = {"share": "{:z.0%}".format, "times": "{:.2f}x".format}


@dataclass(frozen=True)
class Statement:
    """One sentence that a paper is read for, answered by a row or by a count of many.

    `says` is in our words, `printed` is the paper's number with the place that it stands in; ours have none. `item` is
    the id of the row that answers; without one, the cases of `claim` under `scheme` are counted by verdict. `unit` says
    how a row's estimate is written, and `measure` what it is of. `beside` says where ours was measured instead, where
    the paper's hardware is not here. A row that is not in a run leaves the statement unanswered.
    """

    says: str
    printed: str
    claim: str
    item: str = ""
    scheme: str = ""
    measure: str = ""
    unit: str = "share"
    beside: str = ""

    def write(self, value: float) -> str:
        """A number in the statement's unit."""
        return FORMATS[self.unit](value)
