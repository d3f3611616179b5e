"""Numbers in sentences: links whose titles say which row of the stored nightly, or which policies, they are of.

`[0.79](claims.md#table2-cell "dqn-spaceinvaders-w8: estimate")` is that row's estimate, with its interval unless
that is a point; `[643](policies.md "dqn-qbert: return")` is what those policies' manifests say.
The text between the brackets is made.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quarl_bench.views.rows import Row, Rows

Manifests = Mapping[str, Sequence[Mapping[str, Any]]]
TEXT = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]"  # of a link; an interval stands in brackets of its own
CITED = re.compile(
    rf'{TEXT}(?P<target>\((?:claims\.md#(?P<claim>[\w-]+)|policies\.md) "(?P<id>[\w-]+): (?P<what>[\w ]+)"\))'
)
SMALL = 100  # from here on numbers are whole


def cite_numbers(text: str, rows: Sequence[Row], manifests: Manifests) -> str:
    """The page with the text of every such link made anew; ValueError where a link names what is not there."""
    found = Rows(rows)

    def write(link: re.Match[str]) -> str:
        words = _tell_row(found, link) if link["claim"] else _tell_policies(manifests, link)
        return f"[{words}]{link['target']}"

    return CITED.sub(write, text)


def _tell_row(found: Rows, link: re.Match[str]) -> str:
    row = found.find(link["claim"], id=link["id"])
    if row is None or link["what"] not in ROWS:
        raise ValueError(f"{link[0]}: no such row is stored, or none of {', '.join(ROWS)} is asked of it")
    return ROWS[link["what"]](row)


def _tell_policies(manifests: Manifests, link: re.Match[str]) -> str:
    members = manifests.get(link["id"])
    if not members or link["what"] not in POLICIES:
        raise ValueError(f"{link[0]}: no such policies are there, or none of {', '.join(POLICIES)} is asked of them")
    return POLICIES[link["what"]](members)


def _tell_estimate(row: Row, scale: float = 1.0, unit: str = "") -> str:
    """The estimate, with its interval unless that is a point."""
    digits = 0 if unit == "%" else 2
    told = [_show(scale * value, digits) + unit for value in (row.estimate, *(row.interval or ())) if value is not None]
    return f"{told[0]} [{told[1]}, {told[2]}]" if len(told) == 3 and told[1] != told[2] else told[0]


def _list_returns(values: Sequence[float]) -> str:
    *others, last = map(_show, values)
    return f"{', '.join(others)} and {last}" if others else last


def _average_sampled(side: Mapping[str, Any]) -> float:
    (episodes,) = side["sampled"]["returns"]
    return sum(episodes) / len(episodes)


def _show(value: float, digits: int | None = None) -> str:
    if abs(value) >= SMALL:
        return f"{value:.0f}"
    return f"{value:.3g}" if digits is None else f"{round(value, digits) + 0.0:.{digits}f}"  # no -0


def _average(members: Sequence[Mapping[str, Any]], key: str) -> float:
    return sum(member[key]["mean"] for member in members) / len(members)


ROWS: Mapping[str, Callable[[Row], str]] = {
    "estimate": _tell_estimate,
    "percent": lambda row: _tell_estimate(row, 100, "%"),
    "times": lambda row: _tell_estimate(row, unit="x"),
    "verdict": lambda row: row.verdict,
    "line": lambda row: row.line,
    "return": lambda row: _show(row.measured["mean"]),
    "fp32 return": lambda row: _show(row.reference["mean"]),
    "returns": lambda row: _list_returns(row.measured["per_policy"]),
    "fp32 returns": lambda row: _list_returns(row.reference["per_policy"]),
    "sampled return": lambda row: _show(_average_sampled((row.returns or {})["measured"])),
    "fp32 sampled return": lambda row: _show(_average_sampled((row.returns or {})["reference"])),
}
POLICIES: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    "return": lambda members: _show(_average(members, "return")),
    "returns": lambda members: _list_returns([member["return"]["mean"] for member in members]),
    "sampled return": lambda members: _show(_average(members, "sampled_return")),
    "steps": lambda members: f"{members[0]['run']['timesteps']:,}",
}
