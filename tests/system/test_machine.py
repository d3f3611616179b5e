"""A training's account of itself: from a checkout with its commit, from anywhere else without."""

import json
import subprocess

import pytest

from quarl_bench.system import machine
from quarl_bench.system.machine import describe_machine, describe_run, read_commit
from quarl_bench.system.processor import list_fast_instructions
from tests.support.places import ROOT


def test_a_machine_says_what_last_digits_depend_on():
    assert describe_machine()["instructions"] == list_fast_instructions()
    assert json.loads(json.dumps(describe_machine())) == describe_machine()


@pytest.mark.needs("git")
def test_a_run_from_a_checkout_names_its_commit():
    if not (ROOT / ".git").exists():
        pytest.skip("needs a checkout with its history")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = describe_run(61.4)
    assert found["commit"].removesuffix("+") == commit.stdout.strip()
    assert (found["seconds"], bool(found["processor"])) == (61, True)


def test_an_installed_package_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CHECKOUT", tmp_path)
    assert describe_run(1)["commit"] == read_commit(tmp_path) == ""


@pytest.mark.needs("git")
def test_changes_that_are_set_aside_are_none(tmp_path):
    def git(*arguments):
        author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(tmp_path), *author, *arguments], check=True, capture_output=True)

    git("init")
    for name in ("code", "runs/one"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    git("add", ".")
    git("commit", "-m", "first")
    assert not read_commit(tmp_path).endswith("+")
    (tmp_path / "runs" / "one").write_text("new")
    assert read_commit(tmp_path).endswith("+")
    assert not read_commit(tmp_path, "runs").endswith("+")
    (tmp_path / "code").write_text("new")
    assert read_commit(tmp_path, "runs").endswith("+")
