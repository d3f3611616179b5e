"""Pages and pictures made of data: docs/claims.md, docs/policies.md, docs/pictures/*.svg, the picture of the floors,
docs/house.svg, and between their marks the findings of README.md and docs/findings.md, and tables of docs/findings.md,
actorq.md, fpga.md, nightly.md, pytest_plugin.md, repair.md, speed.md and training.md, and numbers in the sentences of
findings.md and repair.md (cited_numbers.py). What docs/api.md shows of docstrings is made when the site is built.

python docs/scripts/generate.py                  write them from claims, baselines, plugin, pyproject.toml, and what is
                                                 stored of the nightly and of benches/peers
python docs/scripts/generate.py FILE [FILE ...]  the same, with the rows of results files put into the stored nightly
                                                 first: of a whole one, a part of one, or timings measured on an idle
                                                 machine; void timings (a busy machine's) replace no stored row, and are
                                                 named, as are rows of no claim
python docs/scripts/generate.py --cached FILE    the same of runs that found their episodes in the cache: how long a row
                                                 took stays as it is stored

docs/results/nightly.json.xz is the stored nightly: the last row of every case that was run, with every return, and in
which run it was. The lander is no part of it:

quarl play dqn-lunarlander-seed0 --scheme fp32,int8eqacc,int8 --width 160 --video docs/pictures/landing.gif
"""

import io
import json
import lzma
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from cited_numbers import cite_numbers
from claims_page import tell_runs, tell_shortly, write_page
from designs_table import list_designs
from house_picture import draw_house, read_floors
from policies_page import read_manifests, write_policies
from queue_table import write_untrained

from quarl_bench.cli import main as run_command
from quarl_bench.judging.claim import Claim, expand
from quarl_bench.papers.registry import read_catalog
from quarl_bench.plugin.options import MARKERS, add_options
from quarl_bench.report.documents import Document, read_document, read_results
from quarl_bench.report.findings import list_findings
from quarl_bench.report.page.export import write_figures
from quarl_bench.report.peers import PeerRun, read_runs
from quarl_bench.report.stored import find_unknown, find_void, merge_stored
from quarl_bench.report.tables.actorq import (
    list_broadcasts,
    list_changes,
    list_contenders_once,
    list_paired_runs,
    list_times,
    list_verdicts,
)
from quarl_bench.report.tables.nightly import list_cells, list_dearest, list_exploration, list_mixed
from quarl_bench.report.tables.repaired import list_few_bits, list_repairs
from quarl_bench.report.tables.speed import list_comparison, list_floors
from quarl_bench.system.atomic import write_file
from quarl_bench.views.rows import Row

DOCS = Path(__file__).parents[1]
FINDINGS, PAGE, STORED = DOCS / "findings.md", DOCS / "claims.md", DOCS / "results" / "nightly.json.xz"
POLICIES, BASELINES = DOCS / "policies.md", DOCS.parent / "baselines" / "policies"
PRINTED = DOCS.parent / "quarl_bench" / "papers" / "quarl" / "numbers.toml"
REPAIRED, QUEUE = BASELINES.parent / "repaired", BASELINES.parent / "queue.toml"
PLUGIN, REPAIR = DOCS / "pytest_plugin.md", DOCS / "repair.md"
TRAINING, FPGA, DESIGNS = DOCS / "training.md", DOCS / "fpga.md", DOCS.parent / "benches" / "lqcc" / "test_fpga"
ACTORQ, PAIRED = DOCS / "actorq.md", DOCS.parent / "baselines" / "actorq"
SPEED, RUNS = DOCS / "speed.md", DOCS.parent / "benches" / "peers" / "runs"
FLOORS = "floors"  # the block of SPEED that two runs make together
NIGHTLY, PLANNED = DOCS / "nightly.md", "ppo-acrobot-qat4"  # a case that is undecided, whose plan is shown
HOUSE, PROJECT = DOCS / "house.svg", DOCS.parent / "pyproject.toml"
README, PICTURES = DOCS.parent / "README.md", DOCS / "pictures"
CITING = (FINDINGS, REPAIR)  # pages whose sentences have numbers of rows and manifests
CACHED = "--cached"
BEGIN, END = "<!-- {}: made by generate.py -->", "<!-- end of {} -->"


def main(arguments: list[str]) -> None:
    """Write what is named in the module's docstring."""
    claims, cached = read_catalog(), CACHED in arguments
    for path in (Path(argument) for argument in arguments if argument != CACHED):
        date = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"
        results, stored = read_results(path).data, read_document(STORED).data
        for line in find_unknown(results, list_ids(claims)):
            sys.stderr.write(f"{path}: {line}\n")
        for (claim, id_), needed in find_void(stored, results).items():
            sys.stderr.write(f"{path}: the stored {id_} of {claim} stays, because the new one is {needed}\n")
        write_file(STORED, pack_stored(merge_stored(stored, results, date, list_ids(claims), cached=cached)))
    verdicts = read_document(STORED).data
    write_file(PAGE, write_page(claims, verdicts))
    printed = tomllib.loads(PRINTED.read_text(encoding="utf-8"))["table2"]
    write_file(POLICIES, write_policies(read_manifests(BASELINES), printed) + write_untrained(QUEUE, BASELINES))
    for path, blocks in list_blocks(verdicts).items():
        text = path.read_text(encoding="utf-8")
        for name, lines in blocks.items():
            text = insert_block(text, name, lines)
        write_file(path, text)
    for path in CITING:
        text = path.read_text(encoding="utf-8")
        write_file(path, cite_numbers(text, Document(STORED.name, verdicts).rows, read_manifests(BASELINES)))
    write_figures(PICTURES, Document(STORED.name, verdicts).rows, (".svg",))
    write_file(HOUSE, draw_house(read_floors(PROJECT)))


def pack_stored(stored: dict[str, Any]) -> bytes:
    """JSON with a row a line, so that tools find their way, as .xz: returns that many rows share take no more room."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in stored["rows"])
    rest = json.dumps({name: value for name, value in stored.items() if name != "rows"}, indent=1)
    return lzma.compress(f'{rest[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'.encode(), preset=9 | lzma.PRESET_EXTREME)


def list_ids(claims: Iterable[Claim]) -> dict[str, set[str]]:
    """By claim, the ids of its cases or items."""
    return {claim.id: {item.id for item in expand(claim)} for claim in claims}


def list_blocks(verdicts: dict[str, Any]) -> dict[Path, dict[str, list[str]]]:
    """By page, what stands between its marks."""
    rows, runs = Document(STORED.name, verdicts).rows, read_runs(RUNS)
    findings = [f"- {line}" for line in list_findings(rows)]
    return {
        README: {"findings": [*findings, "", tell_shortly(verdicts)]},
        FINDINGS: {"findings": findings, "cells": list_cells(rows), "runs": [tell_runs(verdicts)]},
        REPAIR: {
            "repairs": list_repairs(REPAIRED),
            "few bits": list_few_bits(REPAIRED, BASELINES),
            "other tools": list_comparison("repair", runs.get("repair")),
            "decisions": list_comparison("decisions", runs.get("decisions"), list_contenders_once),
        },
        PLUGIN: {"options": list_options(), "markers": list_markers()},
        SPEED: list_comparisons(SPEED.read_text(encoding="utf-8"), RUNS)
        | {FLOORS: list_floors(runs.get("evaluation"), runs.get("parts"))},
        ACTORQ: list_actorq(rows, runs),
        TRAINING: {"exploration": list_exploration(rows), "half precision": list_mixed(rows)},
        NIGHTLY: {"dearest": list_dearest(rows), "plan": list_plan()},
        FPGA: {"designs": list_designs(DESIGNS)},
    }


def list_actorq(rows: Iterable[Row], runs: Mapping[str, PeerRun]) -> dict[str, list[str]]:
    """Blocks of docs/actorq.md."""
    replay, broadcast = (runs.get(name) for name in ("replay", "broadcast"))
    return {
        "replay": list_comparison("replay", replay, list_contenders_once),
        "broadcasts": list_comparison("broadcast", broadcast, list_broadcasts),
        "changes": list_changes(broadcast),
        "paired runs": list_paired_runs(PAIRED),
        "times": list_times(PAIRED),
        "verdicts": list_verdicts(rows),
    }


def list_comparisons(page: str, folder: Path) -> dict[str, list[str]]:
    """Of every name that the page has a block for, what is stored in `folder`; ValueError for a run without a block."""
    names = [name for name in re.findall(BEGIN.format("(.+)"), page) if name != FLOORS]
    runs = read_runs(folder)
    if homeless := runs.keys() - names:
        raise ValueError(f"no block in {SPEED} for {', '.join(sorted(homeless))}")
    return {name: list_comparison(name, runs.get(name)) for name in names}


def list_plan() -> list[str]:
    """What `quarl plan` prints of one case, in a block of the console."""
    with redirect_stdout(io.StringIO()) as shown:
        run_command(["plan", PLANNED, "--results", str(STORED), "--baselines", str(BASELINES)])
    lines = (wrapped for line in shown.getvalue().splitlines() for wrapped in textwrap.wrap(line, 120))
    return ["```console", f"$ quarl plan {PLANNED}", *lines, "```"]


class Options:
    """Stands in for pytest's parser, which does not tell what was added to it."""

    def __init__(self) -> None:
        self.options: dict[str, dict[str, Any]] = {}
        self.ini: list[str] = []

    def getgroup(self, *_: str) -> Self:
        """The one group that there is."""
        return self

    def addoption(self, name: str, **told: Any) -> None:
        """As `pytest.OptionGroup.addoption`."""
        self.options[name] = told

    def addini(self, name: str, *_: str, **__: Any) -> None:
        """As `pytest.Parser.addini`."""
        self.ini.append(name)


def list_options() -> list[str]:
    """The plugin's options as lines of a table."""
    add_options(added := Options())
    lines = ["| option | key of the ini file | what it does |", "|---|---|---|"]
    for name, told in added.options.items():
        value = told.get("metavar", f"{{{','.join(told['choices'])}}}" if "choices" in told else "")
        ini = name.strip("-").replace("-", "_")
        shown = f"`{name}{f'={value}' if value else ''}`"
        lines.append(f"| {shown} | {f'`{ini}`' if ini in added.ini else ''} | {told['help'].replace('<', '&lt;')} |")
    return lines


def list_markers() -> list[str]:
    """The plugin's markers as lines of a table."""
    pairs = (marker.partition(": ") for marker in MARKERS)
    return ["| marker | what it does |", "|---|---|", *(f"| `{name}` | {words} |" for name, _, words in pairs)]


def insert_block(text: str, name: str, lines: list[str]) -> str:
    """The page with the block of that name replaced; ValueError where its two marks are not there, once each."""
    before, begin, rest = text.partition(BEGIN.format(name))
    _, end, after = rest.partition(END.format(name))
    if not begin or not end:
        raise ValueError(f"no block {name!r} between {BEGIN.format(name)} and {END.format(name)}")
    return "\n".join([f"{before}{begin}", *lines, f"{end}{after}"])


if __name__ == "__main__":
    main(sys.argv[1:])
