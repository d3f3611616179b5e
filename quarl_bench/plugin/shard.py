"""`--quarl-shard i/n`: the same part of a run on every machine, and all parts about as long as each other."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence

import pytest

from quarl_bench.plugin.state import CASE

UNKNOWN = 1.0  # seconds of an item of which no run says how long it takes, where none of the others is known either


def pick_shard(items: Sequence[pytest.Item], shard: tuple[int, int], durations: Mapping[str, float]) -> set[str]:
    """Node ids of part `shard`, (i, n) with i from 1; `durations` are seconds by node id, of an earlier run."""
    groups: dict[str, list[str]] = {}
    for item in items:
        groups.setdefault(_name_group(item), []).append(item.nodeid)
    return {
        nodeid for name in split(group_durations(groups, durations), shard[1])[shard[0] - 1] for nodeid in groups[name]
    }


def hash_selection(items: Sequence[pytest.Item], durations: Mapping[str, float]) -> str:
    """What a run was cut by: parts that differ in it leave items out, or run them twice."""
    text = json.dumps([sorted(item.nodeid for item in items), sorted(durations.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def group_durations(groups: Mapping[str, Sequence[str]], durations: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each group, to the nearest step of the square root of two: what varies by less moves nothing.

    An item of unknown length counts as the median one does.
    """
    known = sorted(durations[nodeid] for nodeids in groups.values() for nodeid in nodeids if nodeid in durations)
    usual = known[len(known) // 2] if known else UNKNOWN
    total = {name: sum(durations.get(nodeid, usual) for nodeid in nodeids) for name, nodeids in groups.items()}
    return {name: 2.0 ** (round(2.0 * math.log2(max(seconds, 2.0**-10))) / 2.0) for name, seconds in total.items()}


def split(weights: Mapping[str, float], parts: int) -> list[list[str]]:
    """Names in `parts` lists: the heaviest first, each to the list that is lightest so far.

    No list then weighs more than 4/3 of what the best partition's heaviest does (Graham, 1969).
    """
    lists: list[list[str]] = [[] for _ in range(parts)]
    loads = [0.0] * parts
    for name in sorted(weights, key=lambda name: (-weights[name], name)):
        lightest = min(range(parts), key=lambda index: (loads[index], index))
        lists[lightest].append(name)
        loads[lightest] += weights[name]
    return lists


def _name_group(item: pytest.Item) -> str:
    """Cases of one cell stay together, since they share policies and their fp32 episodes."""
    case = dict(item.user_properties).get(CASE)
    file = item.nodeid.partition("::")[0]
    return item.nodeid if case is None else f"{file}::{'-'.join(str(case).split('-')[:2])}"
