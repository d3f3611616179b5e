"""A shell completes commands, options and names."""

import os

import pytest

from quarl_bench.cli.completion import ASKED, complete
from tests.support.commands import PROCESS
from tests.support.forks import run_python

pytestmark = pytest.mark.needs("terminal")


def ask(line, folder):
    """What stands behind the cursor at the end of `line`, as argcomplete's shell code asks."""
    found = folder / "found"
    env = os.environ | {
        ASKED: "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "IFS": "\n",
        "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(found), "_ARGCOMPLETE_COMP_WORDBREAKS": "",
    }  # fmt: skip
    done = run_python(*PROCESS, env=env, timeout=60, check=True)
    assert done.stdout == ""
    return found.read_text().split("\n")


@pytest.mark.parametrize(
    ("line", "there", "absent"),
    [
        ("quarl ev", "evaluate ", "check "),
        ("quarl check policy --flo", "--floor ", "--margin "),
        ("quarl check policy --environment CartP", "CartPole-v1 ", "Pendulum-v1 "),
        ("quarl train ppo lunar", "lunarlander ", "cartpole "),
        ("quarl deploy policy --backend tf", "tflite ", "onnx "),
        ("quarl check policy --scheme int", "int8 ", "w8 "),
        ("quarl list env", "environments ", "schemes "),
    ],
)
def test_names_are_completed(line, there, absent, tmp_path):
    found = [f"{word.rstrip()} " for word in ask(line, tmp_path)]
    assert there in found
    assert absent not in found


def test_nothing_happens_where_nobody_asks(monkeypatch):
    monkeypatch.delenv(ASKED, raising=False)
    assert complete(None) is None
