"""The marker `needs`: a test is skipped for what is missing, before its fixtures, and with a reason that helps."""

from pathlib import Path

import pytest

from tests.support.inner import run_inside
from tests.support.places import ROOT

CONFTEST = ROOT / "conftest.py"
TESTS = """
import pytest

pytestmark = pytest.mark.needs("cc")

@pytest.fixture
def broken():
    raise AssertionError("a fixture of a test that is skipped")

@pytest.mark.needs("verilator", "litert")
def test_both(broken): ...

@pytest.mark.parametrize("name", [pytest.param(1, marks=pytest.mark.needs("qonnx")), 2])
def test_one_parameter(name): ...

def test_body(require):
    require("hub")
    raise AssertionError
"""


@pytest.fixture
def bare(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.Pytester:
    """A machine with a C compiler only, and without what the extras bring."""
    (tmp_path / "cc").write_text("#!/bin/sh\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    text = CONFTEST.read_text().replace("from importlib.util import find_spec", "find_spec = lambda name: None")
    pytester.makeconftest(text)
    return pytester


def test_what_is_missing_skips_and_says_how_to_get_it(bare: pytest.Pytester) -> None:
    bare.makepyfile(TESTS)
    result = run_inside(bare, "-rs", "-p", "no:quarl_bench.plugin")
    assert result.parseoutcomes() == {"skipped": 3, "passed": 1}
    result.stdout.fnmatch_lines_random(
        [
            "*needs verilator (apt install verilator), ai_edge_litert (pip install 'quarl_bench[[]litert[]]')",
            "*needs qonnx (pip install qonnx)",
            "*needs huggingface_hub (pip install 'quarl_bench[[]hub[]]')",
        ]
    )


def test_a_name_that_nobody_knows_is_no_skip(bare: pytest.Pytester) -> None:
    bare.makepyfile('import pytest\n@pytest.mark.needs("verilog")\ndef test(): ...\n')
    result = run_inside(bare, "-p", "no:quarl_bench.plugin")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*needs 'verilog': no tool, extra or module that conftest.py knows; add it there"])


def test_servers_are_found_off_the_path(bare: pytest.Pytester, tmp_path: Path) -> None:
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin" / "sshd").write_text("#!/bin/sh\n")
    (tmp_path / "sbin" / "sshd").chmod(0o755)
    bare.makepyfile('import pytest\n@pytest.mark.needs("sshd")\ndef test(): ...\n')
    text = bare.path.joinpath("conftest.py").read_text()
    bare.makeconftest(text.replace('"/usr/sbin"', f'"{tmp_path / "sbin"}"'))
    assert run_inside(bare, "-p", "no:quarl_bench.plugin").parseoutcomes() == {"passed": 1}
