"""Types of the whole package: as a test, so that it runs beside the others and not before them."""

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.support.places import ROOT

pytest.importorskip("mypy", reason="mypy is in the extra test")
TYPED = ("mypy", "numpy", "pandas-stubs", "torch")  # what says types differently from version to version


def test_every_type_holds():
    exact = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    here = {name: version(name).partition("+")[0] for name in TYPED}
    if others := [f"{name} {here[name]}" for name in TYPED if here[name] != exact[name]]:
        pytest.skip(f"types are checked with the versions of constraints.txt, not with {', '.join(others)}")
    found = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
