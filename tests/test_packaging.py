"""The package beside what an environment has already: installing it moves nothing."""

import json
import subprocess
import sys
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
