"""The package beside what an environment has already: installing it moves nothing."""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from importlib.util import find_spec

import pytest

from tests.support.places import ROOT

CARRIED = "baselines/policies/ppo-cartpole-seed0"
FILES = (
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "README.md", "conftest.py",
    "constraints.txt", "mkdocs.yml", "pyproject.toml", "tox.ini",
)  # fmt: skip
UNREACHABLE = ("NewConnectionError", "ConnectionError", "ConnectTimeout", "NameResolutionError", "for setuptools")


def test_an_installation_changes_nothing_that_is_there(tmp_path):
    if find_spec("pip") is None or not (ROOT / "pyproject.toml").exists():
        pytest.skip("needs pip and a checkout")
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", str(report), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    if done.returncode and any(sign in done.stderr for sign in UNREACHABLE):
        pytest.skip("needs an index: pip builds the package with setuptools from there")
    assert done.returncode == 0, done.stderr
    installed = {one["metadata"]["name"].replace("-", "_") for one in json.loads(report.read_text())["install"]}
    assert installed <= {"quarl_bench"}


def build(kind, folder, *names):
    """A distribution of the project, made of a copy of these folders."""
    if find_spec("setuptools") is None or int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("needs setuptools 77")
    pytest.importorskip("packaging.licenses", reason="needs packaging 24.2, by which setuptools reads the licence")
    for name in names:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    program = f"from setuptools import build_meta; print(build_meta.build_{kind}('.'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def test_the_sdist_has_its_tests_and_what_they_read(tmp_path):
    """Every file of tests, benches, documentation and hardware; not the trained policies, but for the carried one."""
    folders = ("quarl_bench", "tests", "benches", "docs", "hw")
    made = build("sdist", tmp_path, *folders)
    with tarfile.open(made) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        str(path.relative_to(ROOT))
        for folder in folders[1:]
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "tests/support/places.py" in wanted
    assert not wanted - names
    assert set(FILES) <= names
    assert "quarl_bench/hw/mcu/Makefile" in names


def test_the_wheel_carries_a_policy(tmp_path):
    if not (ROOT / CARRIED).is_dir():
        pytest.skip("needs a checkout with its baselines")
    names = zipfile.ZipFile(build("wheel", tmp_path, "quarl_bench", CARRIED)).namelist()
    for file in ("manifest.json", "policy.safetensors"):
        assert f"quarl_bench/policies/carried/ppo-cartpole-seed0/{file}" in names
