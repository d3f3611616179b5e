"""Tables as aligned lines, and numbers as words; standard library only."""

import math
from collections.abc import Sequence


def describe_returns(returns: Sequence[float]) -> str:
    """Mean +- sample standard deviation."""
    mean = sum(returns) / len(returns)
    variance = sum((value - mean) ** 2 for value in returns) / max(len(returns) - 1, 1)
    return f"{mean:.2f} +- {math.sqrt(variance):.2f}"


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines: the first column to the left, numbers to the right. The first row is the header."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0])] + [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)])
        for row in rows
    ]
