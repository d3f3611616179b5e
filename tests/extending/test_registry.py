"""A registry: what is ours, what others add, and what happens where they contradict each other or do not load."""

import subprocess
import sys
import warnings
from dataclasses import dataclass

import pytest

from quarl_bench.errors import DeploymentError
from quarl_bench.system.registry import EntryPointWarning, Registry
from tests.support.distributions import install

GROUP = "quarl_bench.test_registry"


@dataclass(frozen=True)
class Tool:
    name: str
    aliases: tuple[str, ...] = ()


SAW, DRILL = Tool("saw"), Tool("drill", ("driver",))
OWN = {tool.name: f"{__name__}:{tool.name.upper()}" for tool in (SAW, DRILL)}


def make(monkeypatch, **overrides):
    """A registry of two tools of ours; this module is importable by the name that pytest gave it."""
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    return Registry("tool", GROUP, Tool, OWN, DeploymentError, **overrides)


def add(folder, monkeypatch, name, points, text="", module=None):
    module = module or f"module_of_{name}"
    source = f"from {__name__} import Tool\n{text}" if text else "raise RuntimeError('out of glue\\nand of nails')"
    install(
        folder / name,
        name,
        {GROUP: {point: f"{module}:{value}" for point, value in points.items()}},
        **{module: source},
    )
    monkeypatch.syspath_prepend(folder / name)
    monkeypatch.delitem(sys.modules, module, raising=False)


def test_ours_come_first_and_others_follow(tmp_path, monkeypatch):
    add(tmp_path, monkeypatch, "garage", {"plane": "PLANE"}, "PLANE = Tool('plane', ('planer',))")
    tools = make(monkeypatch)
    assert tuple(tools) == tools.names == ("saw", "drill", "plane")
    assert [tool.name for tool in tools.values()] == ["saw", "drill", "plane"]
    assert tools.find("driver") is DRILL
    assert tools.find("planer") is tools.find("plane")
    assert "plane" in tools
    assert "planer" not in tools


def test_an_unknown_name_is_one_line_with_the_nearest(tmp_path, monkeypatch):
    add(tmp_path, monkeypatch, "garage", {"plane": "PLANE"}, "PLANE = Tool('plane')")
    tools = make(monkeypatch)
    with pytest.raises(
        DeploymentError, match=r"^unknown tool 'plain'; did you mean 'plane'\? known are saw, drill, plane$"
    ):
        tools.find("plain")
    with pytest.raises(DeploymentError, match="did you mean 'driver'"):
        tools.find("drivr")


def test_a_name_that_two_give_names_both(tmp_path, monkeypatch):
    for name in ("garage", "cellar"):
        add(tmp_path, monkeypatch, name, {"plane": "PLANE"}, "PLANE = Tool('plane')")
    with pytest.raises(
        DeploymentError, match=r"tool 'plane' is given twice, by (garage|cellar) 1.0 and by (garage|cellar) 1.0;"
    ):
        make(monkeypatch).find("saw")


def test_a_name_of_ours_is_not_to_be_taken(tmp_path, monkeypatch):
    add(tmp_path, monkeypatch, "garage", {"saw": "SAW"}, "SAW = Tool('saw')")
    with pytest.raises(
        DeploymentError, match=r"tool 'saw' is given twice, by quarl_bench and by garage 1\.0; uninstall one"
    ):
        list(make(monkeypatch))


BROKEN = {
    "raises": ("", "RuntimeError: out of glue"),
    "absent": ("OTHER = Tool('plane')", "AttributeError: module 'module_of_broken' has no attribute 'PLANE'"),
    "another kind": ("PLANE = 'plane'", "TypeError: module_of_broken:PLANE is no Tool called 'plane'"),
    "another name": ("PLANE = Tool('planer')", "TypeError: module_of_broken:PLANE is no Tool called 'plane'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_that_does_not_load_is_one_line_and_the_rest_works(case, tmp_path, monkeypatch):
    text, reason = BROKEN[case]
    add(tmp_path, monkeypatch, "broken", {"plane": "PLANE"}, text)
    add(tmp_path, monkeypatch, "sound", {"file": "FILE"}, "FILE = Tool('file')")
    tools = make(monkeypatch)
    line = f"tool 'plane' of broken 1.0 does not load ({reason}); mend or uninstall it"
    with pytest.warns(EntryPointWarning) as caught:
        assert [tool.name for tool in tools.values()] == ["saw", "drill", "file"]
    assert [str(warning.message) for warning in caught] == [line]
    with warnings.catch_warnings(action="error"):  # it is said once
        list(tools.values())
    with pytest.raises(DeploymentError) as error:
        tools.find("plane")
    assert str(error.value) == line
    assert tools.find("file").name == "file"


WATCH = """
import importlib.metadata, sys
def watch(**given):
    if str(given.get("group", "")).startswith("quarl_bench."):
        raise AssertionError(f"{given} is read before it is needed")
    return genuine(**given)
genuine, importlib.metadata.entry_points = importlib.metadata.entry_points, watch
"""


def run(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize(
    "line",
    [
        "import quarl_bench.plugin",
        "from quarl_bench.cli import main; main(['--help'])",
        "from quarl_bench.cli import main; main(['deploy', '--help'])",
        "import quarl_bench.backends.registry, quarl_bench.papers.registry, quarl_bench.experiments.policy_source",
        "import quarl_bench.training.recipes, quarl_bench.boards.board",
    ],
)
def test_nothing_is_read_before_it_is_needed(line):
    done = run(f"{WATCH}\n{line}")
    assert done.returncode == 0, done.stderr
    assert "entry_points" not in done.stderr


def test_a_run_without_claims_reads_nothing(tmp_path):
    (tmp_path / "conftest.py").write_text(WATCH)
    (tmp_path / "test_own.py").write_text("def test_own():\n    assert True\n")
    done = run("import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
