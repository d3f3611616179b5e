"""The documentation: its code runs, its generated parts are current, its site builds, its figures are the code's."""

import configparser
import html
import inspect
import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from xml.sax.saxutils import escape

import gymnasium
import pytest

import quarl_bench.environments
import quarl_bench.plugin
from quarl_bench.environments.registry import Environment, make_environment
from quarl_bench.papers.registry import read_catalog
from quarl_bench.report.documents import Document, read_document
from quarl_bench.report.page.overview import describe_kept, view_kept
from quarl_bench.report.stored import list_outcomes
from quarl_bench.training.recipes import Recipe
from tests.support.browser import open_chromium, open_file
from tests.support.distributions import install_project
from tests.support.forks import run_python
from tests.support.pages import DOCS, load_script, read_files
from tests.support.places import ROOT
from tests.support.sizes import choose, exhaustive

BUILT = pytest.mark.needs("material", "mkdocstrings_handlers", "ruff")
PAGES = sorted((DOCS / "extending").glob("*.md"))
# tests/extending installs the files of the other pages, and runs commands on them.
RUN = choose([page for page in PAGES if page.stem == "add_environment"], PAGES)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {"python": [], "pytest": ["-m", "pytest", "-p", "no:cacheprovider"], "quarl": ["-m", "quarl_bench.cli"]}


@pytest.fixture(scope="module")
def generator():
    return load_script("generate")


@pytest.mark.needs("report")
def test_the_robots_numbers_are_those_of_their_starts():
    pictures = load_script("robot_pictures")
    starts = pictures.read_starts()
    page = (DOCS / "examples" / "robots" / "README.md").read_text(encoding="utf-8").splitlines()
    schemes = next(line for line in page if line.startswith("| | fp32 |")).strip("| ").split(" | ")
    assert len(starts) == len(pictures.FILES) * len(schemes) * len(pictures.SEEDS)
    for robot in pictures.FILES:
        for name, digits in (("upright", 2), ("tracking", 3)):
            _, *cells = next(line for line in page if line.startswith(f"| {robot}: {name}")).strip("| ").split(" | ")
            means = pictures.summarize(starts, name)
            assert [float(cell) for cell in cells] == [round(means[robot, scheme], digits) for scheme in schemes]


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
        done = run_python(*PROGRAMS[program], *arguments, cwd=tmp_path, timeout=600)
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


def test_what_is_made_of_stored_results_is_current(generator):
    claims, verdicts = read_catalog(), read_document(generator.STORED).data
    remedy = "run python docs/scripts/generate.py"
    assert generator.PAGE.read_text() == generator.write_page(claims, verdicts), remedy
    for path, blocks in generator.list_blocks(verdicts).items():
        text = path.read_text()
        for name, lines in blocks.items():
            assert text == generator.insert_block(text, name, lines), remedy
    words = describe_kept(view_kept(Document(generator.STORED.name, verdicts).rows))
    assert escape(words) in (generator.PICTURES / "bits.svg").read_text(), remedy
    ids = generator.list_ids(claims)
    outcomes = list_outcomes(verdicts)
    unknown = [id_ for claim, found in outcomes.items() for id_ in found if id_ not in ids.get(claim, ())]
    assert not unknown, f"{generator.STORED} has what the claims files have no more: put a results file into it"


def test_a_table_of_numbers_is_made_of_a_record_or_has_a_date():
    by_hand = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = re.sub(r"<!-- ([^:\n]+): made by generate\.py -->.*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
        blocks = [] if "<!-- Made by generate.py" in text else re.split(r"\n\s*\n", made)
        for before, table in itertools.pairwise(blocks):
            cells = [cell.strip() for line in table.splitlines()[2:] for cell in line.strip("|").split("|")]
            numbers = sum(bool(re.fullmatch(r"-?\d[\d.,%x() -]*", cell)) for cell in cells)
            if table.startswith("|") and numbers > 3 and not re.search(r"\b20\d\d-\d\d-\d\d\b", before):
                by_hand.append((page.relative_to(DOCS).as_posix(), cells[0]))
    assert by_hand == [("examples/robots/README.md", "Go1: upright, s of 10")], "that one is compared with its starts"


def test_the_page_of_policies_is_current(generator):
    if not generator.BASELINES.is_dir():
        pytest.skip(f"no baselines in {generator.BASELINES}")
    printed = tomllib.loads(generator.PRINTED.read_text())["table2"]
    page = generator.write_policies(generator.read_manifests(generator.BASELINES), printed)
    page += generator.write_untrained(generator.QUEUE, generator.BASELINES)
    assert generator.POLICIES.read_text() == page, "run python docs/scripts/generate.py"


def test_the_page_of_policies_says_what_falls_short(generator):
    def row(mean, sampled=None, source="a table"):
        manifest = {"seed": 0, "recipe": {"timesteps": 2_000}, "return": {"mean": mean}}
        manifest["published"] = {"mean": 20.0, "sd": 1.0, "source": source}
        manifest |= {} if sampled is None else {"sampled_return": {"mean": sampled}, "run": {"seconds": 1800}}
        return generator.write_policies(
            {"ppo-pong": [manifest, manifest]}, {"ppo": {"pong": {"fp32": 21}}}
        ).splitlines()[-1]

    assert row(19.5) == "| `ppo-pong` | 2,000 |  | 19.5, 19.5 | 19.5 |  | 21 | 20 |"
    assert row(18.5).endswith("| 20 (below) |")
    assert row(18.5, source="LQCC, Table 6").endswith("| 20 (below) |  |")
    assert row(18.5, sampled=19.0) == "| `ppo-pong` | 2,000 | 0.5 | 18.5, 18.5 | 18.5 | 19, 19 | 21 | 20 |"


def test_the_page_needs_both_marks(generator):
    with pytest.raises(ValueError, match="no block"):
        generator.insert_block("text", "findings", [])


def test_the_floors_on_the_page_are_those_that_are_enforced(generator):
    layers = generator.read_floors(generator.PROJECT)
    assert generator.HOUSE.read_text() == generator.draw_house(layers), "run python docs/scripts/generate.py"
    lines = re.findall(r"^\| (`[\w` ]+`) \|", (DOCS / "architecture.md").read_text(), re.MULTILINE)
    assert [re.findall(r"\w+", line) for line in lines] == layers


def test_the_example_on_the_page_is_that_of_the_project():
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "check.md").read_text(), re.DOTALL)
    for block, name in zip(blocks, ("test_release.py", "train.py"), strict=True):
        assert block in (DOCS / "example_project" / name).read_text()


@pytest.mark.needs("sb3")
@exhaustive
def test_the_training_of_the_project_runs():
    done = run_python("train.py", cwd=DOCS / "example_project", check=True)
    assert re.fullmatch(r"(\d+ steps: int8 keeps \d+%, int4 \d+%\n){2}", done.stdout)


def test_options_on_the_pages_exist(pytester):
    text = "\n".join(path.read_text(encoding="utf-8") for path in [*DOCS.rglob("*.md"), ROOT / "README.md"])
    options = pytester.runpytest_inprocess("--help").stdout.str()
    for option in sorted(set(re.findall(r"--quarl-[a-z-]+[a-z]", text))):
        assert option in options, option


def test_the_pages_of_the_reference_name_all_that_is_public():
    named = set(re.findall(r"^::: quarl_bench\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    assert named == {name for name in quarl_bench.__all__ if not name.startswith("_")} | {"QuantizationCallback"}
    rooms = re.findall(r"^::: (quarl_bench\.plugin\.\w+)$", (DOCS / "pytest_plugin.md").read_text(), re.MULTILINE)
    assert sorted(rooms) == sorted(module.__name__ for module in quarl_bench.plugin.FIXTURES)


def test_the_extra_is_the_environment_that_builds_the_site():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    tox = configparser.ConfigParser(inline_comment_prefixes="#")
    tox.read(ROOT / "tox.ini")
    assert extras["docs"] == tox["testenv:docs"]["deps"].split()
    assert "{[testenv:docs]deps}" in tox["testenv:lint"]["deps"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built without a network and without importing the package."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@BUILT
def test_the_site_loads_nothing_from_a_network(site):
    loaded = r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//'
    for page in site.rglob("*.html"):
        assert not re.search(loaded, page.read_text(encoding="utf-8")), page


@BUILT
def test_the_reference_is_made_from_docstrings(site):
    api = html.unescape(re.sub(r"<[^>]+>", "", (site / "api.html").read_text()))
    for name in ("check", "load_policy", "quantize", "evaluate", "repair", "assert_quantizable"):
        function = getattr(quarl_bench, name)
        first = inspect.getdoc(function).splitlines()[0].replace("`", "")
        assert first in api, name
        for argument in inspect.signature(function).parameters:
            assert argument in api, (name, argument)
    assert "margin: float = 0.05" in api
    assert not re.findall(r"= [A-Z][A-Z0-9_]+,", api)  # a default is its value, not a constant's name
    shown = set(re.findall(r'id="quarl_bench\.plugin\.\w+\.(\w+)"', (site / "pytest_plugin.html").read_text()))
    fixtures = set()
    for module in quarl_bench.plugin.FIXTURES:
        members = [name for name in vars(module) if not name.startswith("_")]
        fixtures |= {name for name in members if type(getattr(module, name)).__name__ == "FixtureFunctionDefinition"}
    assert shown == fixtures


@BUILT
@pytest.mark.needs("chromium", "playwright")
@pytest.mark.parametrize("page", ["extending/add_board.html", *choose([], ["index.html"])])
def test_search_works_from_a_disk(page, site):
    with open_chromium() as browser, open_file(browser, site / page) as shown:
        shown.get_by_role("textbox", name="Search").press_sequentially("requantization")
        link = shown.locator(".md-search-result__link").first
        link.wait_for()
        link.click()
        shown.wait_for_load_state()
        assert "requantization" in shown.locator("article").inner_text().lower()
