"""Types of the whole package: as a test, so that it runs beside the others and not before them."""

import subprocess
import sys

import pytest

from tests.support.places import ROOT

pytest.importorskip("mypy", reason="mypy is in the extra test")


def test_every_type_holds():
    found = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
