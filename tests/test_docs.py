"""The documentation: its code runs, its generated parts are current, its site builds, its figures are the code's."""

import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import sys
import tomllib

import gymnasium
import pytest

import quarl_bench.environments
from quarl_bench.checking.subject import open_subject
from quarl_bench.environments.registry import Environment, make_environment
from quarl_bench.papers.registry import read_catalog
from quarl_bench.testing import assert_quantizable
from quarl_bench.training.recipes import Recipe
from tests.support.distributions import install_project
from tests.support.pages import DOCS, read_files
from tests.support.places import ROOT
from tests.support.sizes import choose, exhaustive

PAGES = sorted((DOCS / "extending").glob("*.md"))
# tests/extending installs the files of the other pages, and runs commands on them.
RUN = choose([page for page in PAGES if page.stem == "add_environment"], PAGES)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {"python": [], "pytest": ["-m", "pytest", "-p", "no:cacheprovider"], "quarl": ["-m", "quarl_bench.cli"]}


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_code_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name, text in read_files(page).items():
        (tmp_path / name).write_text(text)
    commands = [line for block in CONSOLE.findall(page.read_text(encoding="utf-8")) for line in block.splitlines()]
    assert commands
    for command in commands:
        program, *arguments = shlex.split(command)
        if program == "pip":
            install_project(tmp_path)
            continue
        call = [sys.executable, *PROGRAMS[program], *arguments]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_an_environment_of_ours_is_made_as_its_page_says(tmp_path, monkeypatch):
    page = DOCS / "extending" / "add_environment.md"
    files = read_files(page)
    (registration,) = re.findall(r"^gymnasium\.register.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    (tmp_path / "pond.py").write_text(f"{files['pond.py']}\n\n{registration}\n")
    monkeypatch.setattr(quarl_bench.environments, "__path__", [*quarl_bench.environments.__path__, str(tmp_path)])
    ((slug, entry),) = tomllib.loads(files["environments.toml"]).items()
    environment = Environment(slug, **entry)
    _, limit = make_environment(environment)
    assert (environment.cap, limit) == (25.0, 25)
    monkeypatch.delitem(sys.modules, "quarl_bench.environments.pond")
    gymnasium.registry.pop("Pond-v0")


def test_the_table_of_a_recipe_is_well_formed():
    files = read_files(DOCS / "extending" / "add_environment.md")
    ((slug, entry),) = tomllib.loads(files["ppo.toml"]).items()
    assert Recipe("ppo", slug, **entry).timesteps == 20_000


def test_the_page_of_claims_and_the_table_of_findings_are_current(generator):
    claims, verdicts = read_catalog(), json.loads(generator.VERDICTS.read_text())
    remedy = "run python docs/generate.py"
    assert generator.PAGE.read_text() == generator.write_page(claims, verdicts), remedy
    findings = generator.FINDINGS.read_text()
    assert findings == generator.insert_table(findings, claims, verdicts), remedy
    ids = generator.list_ids(claims)
    unknown = [id_ for claim, found in verdicts["verdicts"].items() for id_ in found if id_ not in ids.get(claim, ())]
    assert not unknown, f"{generator.VERDICTS} has what the claims files have no more: put a results file into it"


def make_results(commit, **rows):
    """A results file with one row per id of the claim "cell"; `known` where the verdict says so."""
    split = {id_: verdict.partition(" ")[::2] for id_, verdict in rows.items()}
    return {
        "commit": commit,
        "settings": {"profile": "nightly", "episodes": 100},
        "machine": {"processor": commit, "cores": 2, "python": "3.11"},
        "rows": [{"claim": "cell", "id": id_, "verdict": v, "known": known} for id_, (v, known) in split.items()],
    }


def test_a_part_of_a_nightly_replaces_what_it_ran(generator):
    ids, nothing = {"cell": {"a", "b", "c"}}, {"runs": [], "verdicts": {}}
    whole = generator.merge(nothing, make_results("1", a="supported", b="refuted", c="supported"), "2026-01-01", ids)
    part = generator.merge(whole, make_results("2", b="refuted reason"), "2026-01-02", ids)
    assert part["verdicts"] == {"cell": {"a": ["supported", 0], "b": ["refuted (known)", 1], "c": ["supported", 0]}}
    assert [run["date"] for run in part["runs"]] == ["2026-01-01", "2026-01-02"]
    rest = generator.merge(part, make_results("3", a="supported", c="inconclusive"), "2026-01-03", {"cell": {"a", "b"}})
    assert rest["verdicts"] == {"cell": {"a": ["supported", 1], "b": ["refuted (known)", 0]}}
    assert [run["commit"] for run in rest["runs"]] == ["2", "3"]
    assert generator.merge(rest, make_results("4"), "2026-01-04", {}) == {"runs": [], "verdicts": {}}


def test_the_page_of_policies_is_current(generator):
    if not generator.BASELINES.is_dir():
        pytest.skip(f"no baselines in {generator.BASELINES}")
    printed = tomllib.loads(generator.PRINTED.read_text())["table2"]
    page = generator.write_policies(generator.read_manifests(generator.BASELINES), printed)
    assert generator.POLICIES.read_text() == page, "run python docs/generate.py"


@pytest.mark.needs("sb3")
def test_the_page_of_the_interface_is_current(generator):
    assert generator.API.read_text() == generator.write_api(), "run python docs/generate.py"


def test_the_page_of_policies_says_what_falls_short(generator):
    def row(mean, sampled=None, source="a table"):
        manifest = {"seed": 0, "recipe": {"timesteps": 2_000}, "return": {"mean": mean}}
        manifest["published"] = {"mean": 20.0, "sd": 1.0, "source": source}
        manifest |= {} if sampled is None else {"sampled_return": {"mean": sampled}}
        return generator.write_policies(
            {"ppo-pong": [manifest, manifest]}, {"ppo": {"pong": {"fp32": 21}}}
        ).splitlines()[-1]

    assert row(19.5) == "| `ppo-pong` | 2,000 | 19.5, 19.5 | 19.5 |  | 21 | 20 |"
    assert row(18.5).endswith("| 20 (below) |")
    assert row(18.5, source="LQCC, Table 6").endswith("| 20 (below) |  |")
    assert row(18.5, sampled=19.0) == "| `ppo-pong` | 2,000 | 18.5, 18.5 | 18.5 | 19, 19 | 21 | 20 |"


def test_the_page_needs_both_marks(generator):
    with pytest.raises(ValueError, match="no block"):
        generator.insert_table("text", (), {})


def test_the_floors_on_the_page_are_those_that_are_enforced(generator):
    layers = generator.read_floors(generator.PROJECT)
    assert generator.HOUSE.read_text() == generator.draw_house(layers), "run python docs/generate.py"
    lines = re.findall(r"^\| (`[\w` ]+`) \|", (DOCS / "architecture.md").read_text(), re.MULTILINE)
    assert [re.findall(r"\w+", line) for line in lines] == layers


@pytest.mark.parametrize(
    ("name", "function"), [("assert_quantizable", assert_quantizable), ("quarl_subject", open_subject)]
)
def test_a_signature_on_the_page_is_the_function_s(name, function):
    """What stands for `**named` is what `open_subject` takes."""
    page = (DOCS / "check.md").read_text()
    told = re.search(rf"```text\n({name}\(.*?\))\n```", page, re.DOTALL)[1]
    exec(f"def {told}: ...", scope := {})
    written = {key: value.default for key, value in inspect.signature(scope[name]).parameters.items()}
    own = {key: value.default for key, value in inspect.signature(function).parameters.items()}
    named = {key: value.default for key, value in inspect.signature(open_subject).parameters.items()}
    wanted = own | named if own.pop("named", None) else own
    assert written == {key: value for key, value in wanted.items() if key != "baselines"}  # --quarl-baselines says it
    for key in written:
        assert re.search(rf"^\| [^|]*`{key}`", page, re.MULTILINE), f"{key}: no line of the table"


def test_the_example_on_the_page_is_that_of_the_project():
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "check.md").read_text(), re.DOTALL)
    for block, name in zip(blocks, ("test_release.py", "train.py"), strict=True):
        assert block in (DOCS / "example_project" / name).read_text()


@pytest.mark.needs("sb3")
@exhaustive
def test_the_training_of_the_project_runs():
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=DOCS / "example_project", capture_output=True, text=True, check=True)
    assert re.fullmatch(r"(\d+ steps: int8 keeps \d+%, int4 \d+%\n){2}", done.stdout)


def test_options_on_the_pages_exist(pytester):
    text = "\n".join(path.read_text(encoding="utf-8") for path in [*DOCS.rglob("*.md"), ROOT / "README.md"])
    options = pytester.runpytest_inprocess("--help").stdout.str()
    for option in sorted(set(re.findall(r"--quarl-[a-z-]+[a-z]", text))):
        assert option in options, option


@pytest.mark.needs("mkdocs")
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
