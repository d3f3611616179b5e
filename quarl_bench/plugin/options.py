"""Command line options, their ini twins, and markers. Loaded in every run of pytest; `settings` reads the values."""

import argparse
import os
from typing import Any

import pytest

from quarl_bench.evaluation.profiles import PROFILES
from quarl_bench.system.counts import read_episodes

TRAIN = ("never", "missing", "always")
INI_KEYS = ("profile", "train", "episodes", "cache_dir", "baselines", "zoo", "boards")
VARIABLES = ("QUARL_ZOO", "QUARL_BOARDS")  # paths that must be there
MARKERS = (
    "claim(id, ...): run this test once for each verdict that these claims ask for",
    "hardware: this test runs on a board of --quarl-boards",
    "gpu: this test runs on a CUDA device",
    "fpga: this test runs on an FPGA board behind the serial port $QUARL_FPGA_PORT",
)


def read_shard(text: str) -> tuple[int, int]:
    """Read `i/n`, part i (from 1) of n; argparse reports anything else."""
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N, part I (from 1) of N, as 2/3")
    return int(part), int(parts)


def add_options(parser: pytest.Parser) -> None:
    """Register `--quarl-*` and the ini keys `quarl_*`; the command line wins over ini."""
    group = parser.getgroup("quarl", "quantized reinforcement learning")

    def add(name: str, help: str, *, default: str, **arguments: Any) -> None:
        group.addoption(f"--quarl-{name}", help=f"{help} Default: {default}.", default=None, **arguments)
        if (key := name.replace("-", "_")) in INI_KEYS:
            parser.addini(f"quarl_{key}", f"{help} Default: {default}.", default=None)

    add("profile", "How much to evaluate.", default="quick", choices=tuple(PROFILES))
    add("train", "When to train a policy.", default="never (paper profile: missing)", choices=TRAIN)
    add("episodes", "Episodes per policy.", default="the profile's", type=read_episodes, metavar="N")
    add("cache-dir", "Where policies and measurements are kept.", default="$QUARL_CACHE_DIR, else ~/.cache/quarl_bench",
        metavar="PATH")  # fmt: skip
    add("baselines", "Folder of committed policies.", default="<rootdir>/baselines", metavar="PATH")
    add("zoo", "Folder of stable-baselines3 agents that others trained.", default="$QUARL_ZOO", metavar="PATH")
    add("boards", "File of boards (TOML) for cases marked `hardware`.", default="$QUARL_BOARDS", metavar="FILE")
    add("claims", "More claims, a tuple of a module of yours; repeatable.", default="none", action="append",
        metavar="MODULE:CLAIMS")  # fmt: skip
    add("json", "Write rows as JSON.", default="not written", metavar="PATH")
    add("html", "Write a report as one HTML page.", default="not written", metavar="PATH")
    add("compare", "Results file (JSON) of the last run: say what moved, and fail on changed verdicts.", default="none",
        metavar="PATH")  # fmt: skip
    add("shard", "Run part I of N, balanced by the durations in the file of --quarl-compare.", default="1/1",
        type=read_shard, metavar="I/N")  # fmt: skip
    add("require", "Fail, not skip, when NAME (an extra, a board, `baselines`) is missing; repeatable.", default="none",
        action="append", metavar="NAME")  # fmt: skip
    group.addoption(
        "--quarl-strict",
        action="store_true",
        default=False,
        help="Fail on inconclusive, undecidable and partial verdicts. Default: of assert_quantizable alone.",
    )
    parser.addini(
        "quarl_strict",
        "Whether undecided verdicts fail: true as --quarl-strict, false not even those of assert_quantizable. "
        "Default: those of assert_quantizable fail.",
        type="bool",
        default=None,
    )


def is_configured(config: pytest.Config) -> bool:
    """Whether an option, an ini key or the environment says something to this plugin: then it is read at once."""
    named = any(value for name, value in vars(config.option).items() if name.startswith("quarl_"))
    return (
        named
        or any(map(os.environ.get, VARIABLES))
        or any(config.getini(f"quarl_{name}") for name in (*INI_KEYS, "strict"))
    )
