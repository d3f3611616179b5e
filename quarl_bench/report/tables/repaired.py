"""The tables of docs/repair.md: what repairs found, from the records that they left."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from quarl_bench.report.tables.markdown import write_row, write_table

HEAD = (
    "| policy | fp32 | plain | repaired | of fp32 | verdict | chosen | test | seconds |",
    "|---|---:|---:|---:|---|---|---|---:|---:|",
)
DECIDED = {"inconclusive": "not decided", "undecidable": "not decided"}
RECORDS = "records.json"  # of repairs whose integers are not kept
KEPT = re.compile(r"(?P<cell>.+)-seed(?P<seed>[0-9]+)-int(?P<bits>[2-7])")  # a form of fewer than 8 bits
FEW = 6, 4, 3, 2
COMPARED = range(3)  # training seeds of the means in few bits, so that those of one row have the same


def list_repairs(folder: Path) -> list[str]:
    """Lines of Markdown: how many repairs kept what, then a table with a row for each but those of `list_few_bits`."""
    records = {name: record for name, record in read_records(folder).items() if not KEPT.fullmatch(name)}
    return [count_repairs(records), "", *HEAD, *(describe_repair(name, record) for name, record in records.items())]


def list_few_bits(folder: Path, policies: Path) -> list[str]:
    """Lines of Markdown: by cell the mean return in fp32, and in few bits plain, repaired, and trained with them.

    What was trained stands below `policies`, what was repaired below `folder`; means are over those of
    `COMPARED` that are in both.
    """
    cells: dict[str, dict[int, list[tuple[float, Mapping[str, Any]]]]] = {}
    for name, record in read_records(folder).items():
        if (kept := KEPT.fullmatch(name)) and int(kept["seed"]) in COMPARED:
            trained = policies / f"{kept['cell']}-qat{kept['bits']}-seed{kept['seed']}"
            if trained.is_dir():
                pair = _read_return(trained), record
                cells.setdefault(kept["cell"], {}).setdefault(int(kept["bits"]), []).append(pair)
    ways = [f"{bits} bits: {way}" for bits in FEW for way in ("plain", "repaired", "trained")]
    rows = [["algorithm and environment", "fp32", *ways]]
    for cell, found_bits in sorted(cells.items()):
        columns = [_write_mean([record["reference_return"] for _, record in next(iter(found_bits.values()))])]
        for bits in FEW:
            found = found_bits.get(bits, [])
            columns += [_write_mean([record[arm]["return"] for _, record in found]) for arm in ("plain", "test")]
            columns.append(_write_mean([trained for trained, _ in found]))
        rows.append([cell, *columns])
    return write_table(rows)


def read_records(folder: Path) -> dict[str, dict[str, Any]]:
    """By policy and bits, what the manifests below `folder` and its file of records say of their repair."""
    found = {}
    for path in folder.glob("*/manifest.json"):
        found[path.parent.name] = json.loads(path.read_text(encoding="utf-8"))["quantization"]["repair"]
    if (folder / RECORDS).exists():
        found |= json.loads((folder / RECORDS).read_text(encoding="utf-8"))
    return dict(sorted(found.items(), key=lambda pair: (-int(pair[1]["plain"]["bits"]), pair[0])))


def count_repairs(records: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence on the repairs to 8 bits."""
    tests = [record["test"] for record in records.values() if record["asked"] == "int8" and "w" not in record["chosen"]]
    refuted = _count(tests, "refuted")
    kept = sum(test["ratio"] >= 0.95 and test["verdict"] != "refuted" for test in tests)
    return (
        f"Of {len(tests)} policies, {_count(tests, 'supported')} are supported, {_count(tests, 'inconclusive')} not "
        f"decided, {refuted} refuted. {kept} keep 95% or more by the estimate and are not refuted."
    )


def describe_repair(name: str, record: Mapping[str, Any]) -> str:
    """One repair as a row of the table."""
    test, plain = record["test"], record["plain"]
    interval = "" if test["ratio_low"] is None else f" [{test['ratio_low']:.1%}, {test['ratio_high']:.1%}]"
    return write_row((
        name,
        f"{record['reference_return']:,.4g}",
        f"{plain['return']:,.4g}",
        f"{test['return']:,.4g}",
        f"{test['ratio']:.1%}{interval}",
        DECIDED.get(test["verdict"], test["verdict"]),
        f"`{record['chosen']}`",
        f"{record['test_number']}: {record['episodes']:,}",
        f"{record['seconds']}",
    ))  # fmt: skip


def _read_return(folder: Path) -> float:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return float(manifest["return"]["mean"])


def _write_mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):,.4g}" if values else ""


def _count(tests: Iterable[Mapping[str, Any]], verdict: str) -> int:
    return sum(test["verdict"] == verdict for test in tests)
