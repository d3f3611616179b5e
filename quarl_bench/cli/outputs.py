"""What a command writes is nothing that it reads: said before anything is read, so that nothing is lost."""

import argparse
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path

from quarl_bench.errors import SpecError

WRITTEN = ("output", "html", "export", "repair", "figures", "video", "qonnx", "plot", "curves")  # options
READ = ("policy", "normalization", "against", "results", "compare", "published")


def keep_inputs(options: argparse.Namespace) -> None:
    """SpecError where what the command is to write is what it reads, or twice the same."""
    written = {name: path for name in WRITTEN if (path := getattr(options, name, None)) is not None}
    if not written:
        return
    read: list[Path] = []
    for name in READ:
        given = getattr(options, name, None)
        for one in given if isinstance(given, list) else [given]:
            read += [] if one is None else [Path(one)]
    if getattr(options, "policy", None) is not None and any(path.exists() for path in written.values()):
        from quarl_bench.experiments.policy_source import find_baseline

        read.append(find_baseline(options.policy))
    refuse_overlap({f"--{name}": path for name, path in written.items()}, read)


def refuse_overlap(written: Mapping[str, Path], read: Iterable[Path]) -> None:
    """SpecError where a path in `written`, by option, is one of `read`, or where two options name the same."""
    sources = [path for path in read if path.exists()]
    for option, path in written.items():
        if path.exists() and any(path.samefile(source) for source in sources):
            raise SpecError(f"{option} {path}: it is read, and would be lost; choose another name")
    for (one, first), (other, second) in combinations(written.items(), 2):
        if first.resolve() == second.resolve():
            raise SpecError(f"{one} and {other} {second}: the same name twice; choose another for one of them")
