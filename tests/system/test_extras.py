"""What an extra brings: absent or of a wrong version it is one line, and most of the package does without."""

import importlib.metadata
import os
import pickle

import gymnasium
import numpy as np
import pytest
from packaging.requirements import Requirement

from quarl_bench.environments.images import is_channels_first, is_image_space
from quarl_bench.errors import MissingExtra
from quarl_bench.system import extras
from tests.support.forks import run_python
from tests.support.places import POLICIES

REQUIRES = [
    "numpy>=1.26",
    'beta>=2.1; extra == "one"',
    'quarl_bench[one]; extra == "both"',
    'gamma<4,>=3; extra == "both"',
    'delta>=1; python_version < "3.0" and extra == "both"',
    'zeta>=1; python_version < "3.10" and extra == "old"',
    'eta>=1; extra == "old"',
]
# Whoever imports one of these, or a part of it, is told that it is not there.
BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
for name in [name for name in sys.modules if name.partition(".")[0] in {{"quarl_bench", *{blocked}}}]:
    del sys.modules[name]
"""
OPTIONAL = ("stable_baselines3", "pandas", "matplotlib", "pytest_regressions", "pytest_datadir", "jinja2", "xdist")


@pytest.fixture
def metadata(monkeypatch):
    """The metadata of this package and the versions that are installed, made up."""
    versions = {"quarl_bench": "0.1.0"}

    def find(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "requires", lambda _: REQUIRES)
    monkeypatch.setattr(importlib.metadata, "version", find)
    extras.list_requirements.cache_clear()
    yield versions
    extras.list_requirements.cache_clear()


def test_an_extra_lists_those_of_others_and_of_this_machine(metadata):
    assert {requirement.name for requirement in extras.list_requirements("both")} == {"beta", "gamma"}


@pytest.mark.parametrize(
    ("installed", "line"),
    [
        ({"beta": "2.0.9"}, "a board needs beta >=2.1, not 2.0.9: pip install 'quarl_bench[both]'"),
        ({"beta": "2.1", "gamma": "4.0.1"}, "a board needs gamma <4,>=3, not 4.0.1: pip install 'quarl_bench[both]'"),
    ],
)
def test_a_version_that_does_not_do_is_one_line(metadata, installed, line):
    metadata.update(installed)
    with pytest.raises(MissingExtra) as caught:
        extras.require("math", "both", "a board")
    assert str(caught.value) == line


def test_what_is_absent_is_left_to_the_import(metadata):
    assert extras.require("math", "both", "a board").pi > 3  # of another distribution, say
    with pytest.raises(MissingExtra, match=r"^a board needs an extra: pip install 'quarl_bench\[both\]'$"):
        extras.require("surely_not_there", "both", "a board")
    with pytest.raises(MissingExtra):
        extras.require_version("gamma", "both", "a board")
    metadata["gamma"] = "3.5.dev1"
    assert extras.require_version("gamma", "both", "a board") == "3.5.dev1"


def test_what_only_an_older_python_has_is_not_told_to_be_installed(metadata):
    with pytest.raises(MissingExtra) as caught:
        extras.require("surely_not_there", "old", "a board")
    assert str(caught.value) == "a board needs Python 3.9 or older: newer ones have no zeta"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_mistake_of_ours_is_no_missing_extra(metadata):
    with pytest.raises(ModuleNotFoundError), extras.needing("both", "a board"):
        import quarl_bench.surely_not_there  # noqa: F401


def test_every_floor_of_ours_is_readable():
    listed = importlib.metadata.requires("quarl_bench")
    names = importlib.metadata.metadata("quarl_bench").get_all("Provides-Extra")
    assert {"sb3", "litert", "onnx", "report", "claims", "all"} <= set(names)
    for one in map(Requirement, listed):
        assert one.specifier or one.extras, one
    assert {"stable-baselines3", "pandas"} <= {one.name for one in extras.list_requirements("claims")}


def run_without(code, *arguments, cwd=None, env=None):
    """Python as if no extra were installed, and nothing of this package imported yet."""
    return run_python("-c", BLOCK.format(blocked={*OPTIONAL}) + code, *arguments, cwd=cwd, env=env)


MAIN = "from quarl_bench.cli import main; sys.exit(main(sys.argv[1:]))"


def test_check_needs_the_core_only(baseline, tmp_path):
    baseline("ppo-cartpole-seed0")

    policy = str(POLICIES / "ppo-cartpole-seed0")
    done = run_without(MAIN, "check", policy, "--episodes", "12", cwd=tmp_path)
    assert done.returncode in {0, 1, 3}, done.stderr
    assert "fewest bits that keep" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("train", "ppo", "cartpole"), "quarl train: training needs an extra: pip install 'quarl_bench[sb3]'"),
        (("report", "rows.json"), "quarl report: a page needs an extra: pip install 'quarl_bench[report]'"),
    ],
)
def test_commands_name_the_extra_they_lack(arguments, line, tmp_path):
    done = run_without(MAIN, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()) == (2, [line])


def test_the_plugin_loads_and_skips_without_any_extra(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "def test_it(): pass\n\ndef test_numbers(metrics_regression): metrics_regression.check(None)\n"
    )
    code = "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plain = ("-p", "quarl_bench.plugin", "-p", "no:cacheprovider", "-rs", "-q")
    done = run_without(code, *plain, tmp_path, cwd=tmp_path, env=environment)
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "metrics_regression needs an extra: pip install 'quarl_bench[claims]'" in done.stdout
    done = run_without(code, *plain, "--quarl-html=page.html", tmp_path, cwd=tmp_path, env=environment)
    assert done.stderr.strip() == "ERROR: --quarl-html needs an extra: pip install 'quarl_bench[report]'"


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("high", [255, 200])
@pytest.mark.parametrize("shape", [(84, 84, 4), (4, 84, 84), (3, 3, 3), (84, 84), (4,), (84, 3, 84)])
@pytest.mark.filterwarnings("ignore:Treating image space")
def test_images_are_what_stable_baselines3_takes_for_one(shape, high, dtype):
    theirs = pytest.importorskip("stable_baselines3.common.preprocessing", reason="compares with stable-baselines3")
    space = gymnasium.spaces.Box(0, high, shape, dtype)
    assert is_image_space(space) == theirs.is_image_space(space)
    if is_image_space(space):
        assert is_channels_first(space) == theirs.is_image_space_channels_first(space)
