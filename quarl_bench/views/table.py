"""A table of texts: what a paper prints beside what was measured here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quarl_bench.views.rows import Row

NOT_RUN = "not run"


@dataclass(frozen=True)
class TableView:
    """A table of texts; the first of a line names it, a verdict stands as its word."""

    title: str
    note: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def judge_cell(row: Row | None) -> tuple[str]:
    """The verdict of a row as a word; nothing without a row."""
    return (row.verdict if row else "",)


def format_number(value: Any) -> str:
    """Four digits, and whole numbers from 10,000 on; nothing for None."""
    return "" if value is None else f"{float(value):,.4g}" if abs(float(value)) < 1e4 else f"{float(value):,.0f}"


def format_percent(value: Any) -> str:
    """A share with two decimals of a percent; nothing for None."""
    return "" if value is None else f"{float(value):.2%}"


def format_range(limits: Sequence[float]) -> str:
    """An estimate with its limits, given in this order."""
    middle, low, high = map(float, limits)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def format_spread(mean: float, sd: float) -> str:
    """A mean and its standard deviation, as whole numbers."""
    return f"{mean:,.0f} ± {sd:,.0f}"
