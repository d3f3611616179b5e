"""LQCC's authors' own runs: mean returns of ten policies per task and configuration, from two CSV files.

The files belong to the authors' follow-up repository and are not part of this package; whoever has them names the
folder. Every policy was scored on the same 1,000 episodes, of which the files hold the mean.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quarl_bench.errors import StoreError
from quarl_bench.papers.lqcc.parity import Returns
from quarl_bench.papers.lqcc.selection import Configuration

FP32_FILE, QUANTIZED_FILE = "sac_fp.csv", "sac_quant.csv"
FP32_COLUMNS = ("env", "seed", "return")
QUANTIZED_COLUMNS = ("size", "env", "input_quant", "quant", "output_quant", "seed", "return")
EPISODES = 1000  # of every mean return
TASKS = ("humanoidv4", "walker2dv4", "antv4", "halfcheetahv4", "hopperv4")


@dataclass(frozen=True)
class PublishedRuns:
    """Returns by task and, for quantized policies, configuration; ordered by training seed."""

    fp32: Mapping[str, Returns]
    quantized: Mapping[str, Mapping[Configuration, Returns]]

    def find(self, task: str, configuration: Configuration) -> Returns | None:
        """Returns of a configuration; None when it was not run."""
        return self.quantized.get(task, {}).get(configuration)


def read_published(folder: Path) -> PublishedRuns:
    """Both files of `folder`; StoreError, naming file and line, when one is missing or not what it should be."""
    fp32: dict[str, dict[int, float]] = defaultdict(dict)
    quantized: dict[str, dict[Configuration, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for task, _, seed, value in _read_rows(folder / FP32_FILE, FP32_COLUMNS):
        fp32[task][seed] = value
    for task, configuration, seed, value in _read_rows(folder / QUANTIZED_FILE, QUANTIZED_COLUMNS):
        quantized[task][configuration][seed] = value
    return PublishedRuns(
        {task: _order(runs) for task, runs in fp32.items()},
        {task: {name: _order(runs) for name, runs in found.items()} for task, found in quantized.items()},
    )


def _read_rows(path: Path, columns: tuple[str, ...]) -> list[tuple[str, Configuration, int, float]]:
    try:
        with path.open(newline="") as stream:
            reader = csv.DictReader(stream)
            names, rows = reader.fieldnames or (), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        said = getattr(error, "strerror", None) or error
        raise StoreError(f"{path}: {said}; name the folder of {FP32_FILE} and {QUANTIZED_FILE}") from error
    if not set(columns) <= set(names):
        raise StoreError(f"{path}: its columns are not {', '.join(columns)}; restore it")
    found: dict[tuple[str, Configuration, int], float] = {}
    for line, row in enumerate(rows, 2):
        if None in (row[name] for name in columns):
            raise StoreError(f"{path}, line {line}: fewer columns than the first line has; restore it")
        try:
            bits = [int(row[name]) for name in ("quant", "size", "input_quant", "output_quant") if name in columns]
            key = _name_task(row["env"]), Configuration(*bits), int(row["seed"])
            twice, found[key] = key in found, _read_return(row["return"])
        except (TypeError, ValueError) as error:
            raise StoreError(f"{path}, line {line}: {error}; restore it") from error
        if twice:
            raise StoreError(f"{path}, line {line}: seed {key[2]} of this configuration comes twice; restore it")
    return [(*key, value) for key, value in found.items()]


def _read_return(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(f"a return of {value}")
    return value


def _name_task(identifier: str) -> str:
    return identifier.lower().replace("-", "")


def _order(runs: dict[int, float]) -> Returns:
    return np.array([runs[seed] for seed in sorted(runs)])
