"""Pages and pictures made of data: docs/claims.md, docs/policies.md, docs/pictures/*.svg, the picture of the floors,
docs/house.svg, and between their marks the findings of README.md and docs/findings.md, the options of
docs/pytest_plugin.md, the table of docs/repair.md and those of docs/speed.md. What docs/api.md shows of docstrings is
made when the site is built.

python docs/generate.py                  write them from claims, baselines, plugin, pyproject.toml, and what is stored
                                         of the nightly and of benches/peers
python docs/generate.py FILE [FILE ...]  the same, with the rows of results files put into the stored nightly first: of
                                         a whole one, a part of one, or timings measured on an idle machine; void
                                         timings (a busy machine's) replace no stored row, and are named, as are rows
                                         of no claim

docs/results/nightly.json.xz is the stored nightly: the last row of every case that was run, with every return, and in
which run it was. The lander is no part of it:

quarl play dqn-lunarlander-seed0 --scheme fp32,int8eqacc,int8 --width 200 --video docs/pictures/landing.gif
"""

import json
import lzma
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from quarl_bench.judging.claim import Claim, expand
from quarl_bench.papers.registry import read_catalog
from quarl_bench.plugin.options import MARKERS, add_options
from quarl_bench.report.documents import Document, read_document, read_results
from quarl_bench.report.findings import list_findings
from quarl_bench.report.page.export import write_figures
from quarl_bench.report.peers import read_runs
from quarl_bench.report.repaired import list_few_bits, list_repairs
from quarl_bench.report.speed import list_comparison
from quarl_bench.report.stored import find_unknown, find_void, list_outcomes, merge_stored
from quarl_bench.system.atomic import write_file

HERE = Path(__file__).parent
FINDINGS, PAGE, STORED = HERE / "findings.md", HERE / "claims.md", HERE / "results" / "nightly.json.xz"
POLICIES, BASELINES = HERE / "policies.md", HERE.parent / "baselines" / "policies"
PRINTED = HERE.parent / "quarl_bench" / "papers" / "quarl" / "numbers.toml"
REPAIRED = BASELINES.parent / "repaired"
PLUGIN, REPAIR = HERE / "pytest_plugin.md", HERE / "repair.md"
SPEED, RUNS = HERE / "speed.md", HERE.parent / "benches" / "peers" / "runs"
HOUSE, PROJECT = HERE / "house.svg", HERE.parent / "pyproject.toml"
README, PICTURES = HERE.parent / "README.md", HERE / "pictures"
BEGIN, END = "<!-- {}: made by docs/generate.py -->", "<!-- end of {} -->"
SECOND = "LQCC"  # so the sources of the second paper's returns begin; other policies stand beside the zoo's
ORDER = ("supported", "refuted", "inconclusive", "undecidable", "partial")


def main(arguments: list[str]) -> None:
    """Write what is named in the module's docstring."""
    claims = read_catalog()
    for path in map(Path, arguments):
        date = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"
        results, stored = read_results(path).data, read_document(STORED).data
        for line in find_unknown(results, list_ids(claims)):
            sys.stderr.write(f"{path}: {line}\n")
        for (claim, id_), needed in find_void(stored, results).items():
            sys.stderr.write(f"{path}: the stored {id_} of {claim} stays, because the new one is {needed}\n")
        write_file(STORED, pack_stored(merge_stored(stored, results, date, list_ids(claims))))
    verdicts = read_document(STORED).data
    write_file(PAGE, write_page(claims, verdicts))
    printed = tomllib.loads(PRINTED.read_text(encoding="utf-8"))["table2"]
    write_file(POLICIES, write_policies(read_manifests(BASELINES), printed))
    for path, blocks in list_blocks(verdicts).items():
        text = path.read_text(encoding="utf-8")
        for name, lines in blocks.items():
            text = insert_block(text, name, lines)
        write_file(path, text)
    write_figures(PICTURES, Document(STORED.name, verdicts).rows, (".svg",))
    write_file(HOUSE, draw_house(read_floors(PROJECT)))


def read_floors(project: Path) -> list[list[str]]:
    """The rooms of every floor as import-linter checks them, the highest floor first."""
    contracts = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return [layer.replace("quarl_bench.", "").split(" | ") for layer in contracts[0]["layers"]]


def draw_house(floors: list[list[str]], width: int = 640, height: int = 34) -> str:
    """An SVG with a line of boxes per floor; imports go down only, so no arrow is needed."""
    box = f'viewBox="0 0 {width} {height * len(floors)}"'
    text = 'font-family="sans-serif" font-size="14" text-anchor="middle"'
    fill = f'height="{height - 4}" rx="4" fill="#eef2f7" stroke="#5b6b7f"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {box} {text}>']
    for number, rooms in enumerate(floors):
        wide, top = width / len(rooms), height * number
        for index, room in enumerate(rooms):
            left = wide * index
            lines.append(f'<rect x="{left + 2:g}" y="{top + 2}" width="{wide - 4:g}" {fill}/>')
            lines.append(f'<text x="{left + wide / 2:g}" y="{top + 22}" fill="#1d2733">{room}</text>')
    return "\n".join([*lines, "</svg>", ""])


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
    findings = [f"- {line}" for line in list_findings(Document(STORED.name, verdicts).rows)]
    runs = [_tell_runs(verdicts)]
    return {
        README: {"findings": [*findings, "", _tell_shortly(verdicts)]},
        FINDINGS: {"findings": findings, "runs": runs},
        REPAIR: {"repairs": list_repairs(REPAIRED), "few bits": list_few_bits(REPAIRED, BASELINES)},
        PLUGIN: {"options": list_options(), "markers": list_markers()},
        SPEED: list_comparisons(SPEED.read_text(encoding="utf-8"), RUNS),
    }


def list_comparisons(page: str, folder: Path) -> dict[str, list[str]]:
    """Of every name that the page has a block for, what is stored in `folder`; ValueError for a run without a block."""
    names = re.findall(BEGIN.format("(.+)"), page)
    runs = read_runs(folder)
    if homeless := runs.keys() - names:
        raise ValueError(f"no block in {SPEED} for {', '.join(sorted(homeless))}")
    return {name: list_comparison(name, runs.get(name)) for name in names}


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


def write_page(claims: tuple[Claim, ...], verdicts: dict[str, Any]) -> str:
    """The page "Claims and verdicts"."""
    lines = [HEAD.rstrip()]
    for paper in dict.fromkeys(claim.paper for claim in claims):
        lines += ["", f"## {paper}", ""]
        for claim in (claim for claim in claims if claim.paper == paper):
            lines += list(_describe(claim, verdicts))
    lines += ["## Judgements", "", "| judgement | what the interval is on |", "|---|---|"]
    kinds = dict.fromkeys(type(claim.judgement) for claim in claims)
    lines += [f"| `{kind.__name__}` | {kind.meaning} |" for kind in kinds]
    return "\n".join([*lines, "", _tell_runs(verdicts), ""])


def read_manifests(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Manifests below `folder` by the policies' name without its seed, in the order of their seeds."""
    cells: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*-seed*/manifest.json")):
        cells[path.parent.name.rpartition("-seed")[0]].append(json.loads(path.read_text(encoding="utf-8")))
    return {name: sorted(found, key=lambda manifest: int(manifest["seed"])) for name, found in cells.items()}


def write_policies(cells: dict[str, list[dict[str, Any]]], printed: dict[str, Any]) -> str:
    """The page "Trained policies"; `printed` is the paper's Table 2."""
    lines = [POLICIES_HEAD]
    for name, members in cells.items():
        algo, environment, *variant = name.split("-")
        argmax = [member["return"]["mean"] for member in members]
        sampled = [member["sampled_return"]["mean"] for member in members if "sampled_return" in member]
        published = members[0]["published"] or {}
        paper = None if variant else printed.get(algo, {}).get(environment, {}).get("fp32")
        score = _average(sampled or argmax)
        short = published.get("sd") is not None and score < published["mean"] - published["sd"]
        beside = f"{_show(published['mean'])}{' (below)' if short else ''}" if published else ""
        second = published.get("source", "").startswith(SECOND)
        columns = (
            f"`{name}`",
            _tell_steps(members[0]),
            ", ".join(_show(value) for value in argmax),
            _show(_average(argmax)),
            ", ".join(_show(value) for value in sampled),
            beside if second else "" if paper is None else _show(paper),
            "" if second else beside,
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join([*lines, ""])


def _tell_steps(manifest: dict[str, Any]) -> str:
    """Environment steps of the recipe, behind those that were trained where they are fewer."""
    planned = manifest["recipe"]["timesteps"]
    trained = manifest.get("run", {}).get("timesteps", planned)  # older manifests do not say
    return f"{planned:,}" if trained >= planned else f"{trained:,} of {planned:,}"


def _average(values: list[float]) -> float:
    return sum(values) / len(values)


def _show(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _describe(claim: Claim, verdicts: dict[str, Any]) -> list[str]:
    schemes = ", ".join(f"`{scheme}`" for scheme in claim.schemes)
    lines = [
        f"### {claim.id}",
        "",
        f"{claim.where}: {claim.says}.",
        "",
        f"- `{claim.judgement}`; {schemes}",
        f"- {_count(claim)}: {_tell(claim, verdicts)}",
    ]
    if claim.replay:
        lines.append("- replay: it follows from the paper's own data, and counts with no measurement")
    known = [f"- `{name}` is known not to hold: {reason}" for name, reason in claim.known.items()]
    return [*lines, *known, ""]


def _count(claim: Claim) -> str:
    count = len(expand(claim))
    return f"{count} {'case' if claim.judgement.each else 'item'}{'' if count == 1 else 's'}"


def _tell(claim: Claim, verdicts: dict[str, Any]) -> str:
    found = Counter(verdict for verdict, _ in list_outcomes(verdicts).get(claim.id, {}).values())
    told = ", ".join(f"{found[name]} {name}" for name in (*ORDER, "refuted (known)") if name in found)
    open_ = len(expand(claim)) - found.total()
    return told + (f"{', ' if told else ''}{open_} not run" if open_ > 0 else "")


def _tell_dates(verdicts: dict[str, Any]) -> str:
    dates = sorted({run["date"] for run in verdicts["runs"]})
    return f"Measured {'on' if len(dates) == 1 else 'from'} {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"


def _tell_shortly(verdicts: dict[str, Any]) -> str:
    runs = verdicts["runs"]
    episodes, processors = (
        " or ".join(dict.fromkeys(str(run[key][name]) for run in runs))
        for key, name in (("settings", "episodes"), ("machine", "processor"))
    )
    more = "[commits and machines](docs/findings.md#where-the-numbers-are-from)"
    return f"{_tell_dates(verdicts)}, {episodes} episodes per policy, on {processors}: {more}."


def _tell_runs(verdicts: dict[str, Any]) -> str:
    runs = verdicts["runs"]
    commits = ", ".join(dict.fromkeys(f"`{run['commit'][:12]}`" for run in runs))
    settings = dict.fromkeys(
        f"profile {run['settings']['profile']}, {run['settings']['episodes']} episodes per policy" for run in runs
    )
    machines = dict.fromkeys(
        f"{run['machine']['processor']} ({run['machine']['cores']} cores), Python {run['machine']['python']}"
        for run in runs
    )
    return (
        f"{_tell_dates(verdicts)}, {' or '.join(settings)}, on {' or on '.join(machines)}. Commits: {commits}. "
        "docs/results/nightly.json.xz names the run of each verdict. "
        "What was not run had no policy, no board or no runtime there; each skip says why."
    )


POLICIES_HEAD = """# Trained policies

<!-- Made by docs/generate.py from the manifests; nothing to edit. -->

Every committed policy was trained by `quarl train`. Its folder below `baselines/policies` holds the weights and a
manifest. The manifest has the recipe, the learning curve, the return and the hash of the weights. A test plays the
policy again.

Returns are means over 100 episodes, of each training seed and of all. Actions are the argmax or the mean action. The
column `sampled` has the return with sampled actions, where the published agents sample theirs.

Beside our returns stand published ones: fp32 in the paper's Table 2, and the agent of rl-baselines3-zoo. For `lqcc`
they are the second paper's own policies, of 1,000,000 steps. `below` marks a mean (sampled where there is one) that is
too far below the published one: by more than the SD of the zoo's episodes, or of the second paper's ten policies.

A name says how a policy was trained: `qat<bits>` with the quantizer, to integers; `bf16` in mixed precision; `lqcc` by
the second paper's hyperparameters. `layernorm` and `control` were trained for comparisons.

| policies | steps | return by seed | mean | sampled | paper | zoo |
|---|---:|---|---:|---|---:|---:|"""
HEAD = """# Claims and verdicts

<!-- Made by docs/generate.py from the claims; edit those. -->

A claim is a statement of a paper, in our words, with a threshold. A cell is one algorithm on one environment in one
scheme. A *case* judges one cell alone, and an *item* judges a statement over many cells. Both get an interval, and the
interval decides: [what a verdict means](usage.md#what-a-verdict-means).

![Verdicts by environment, algorithm and scheme](pictures/verdicts.svg)

A2C and PPO on Atari play in two ways, argmax and sampled. A case is refuted if one of them refutes it at 2.5%, or
both at 5%. An item is refuted if either refutes it at 5%, which is wrong in up to 10%. A ratio to an fp32 return near
0 means nothing: `Gains` and `Tracks` leave such cells out and name them, and other judgements give no interval.

A claim that is known not to hold is an expected failure in pytest, with its reason; it fails when it is not refuted.
Some reasons are about one profile (`in quick`). A time or a resident memory is a processor's own: a refuted one fails,
unless it is known on that processor. On a processor of which no session is stored it is reported, and fails under
`--quarl-strict`. These reasons are about the committed policies, not about those of `--quarl-baselines`. `ours` marks
statements that the paper does not make.
"""


if __name__ == "__main__":
    main(sys.argv[1:])
