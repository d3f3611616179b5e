"""The package beside what an environment has already: installing it moves nothing."""

import json
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from importlib.util import find_spec

import pytest

from tests.support.places import ROOT

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


def test_the_wheel_carries_a_policy(tmp_path):
    if find_spec("setuptools") is None or int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("needs setuptools 77")
    if not (ROOT / "baselines" / "policies" / "ppo-cartpole-seed0").is_dir():
        pytest.skip("needs a checkout with its baselines")
    for name in ("quarl_bench", "baselines/policies/ppo-cartpole-seed0"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    program = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]).namelist()
    for file in ("manifest.json", "policy.safetensors"):
        assert f"quarl_bench/policies/carried/ppo-cartpole-seed0/{file}" in names
