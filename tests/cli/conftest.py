"""A folder with a policy, and commands that run there."""

import json

import pytest

from quarl_bench import cli
from quarl_bench.policies.storage.fp32 import save_policy
from tests.support.balancer import ABOUT, BALANCER


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A policy on disk, in a working folder with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    save_policy(BALANCER, tmp_path / "policy", ABOUT)
    return tmp_path


@pytest.fixture
def quarl(capsys):
    """Run a command; exit code, standard output, standard error."""

    def run(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse's way out
            code = stop.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


@pytest.fixture
def quarl_json(quarl):
    """Run a command with --json that has to succeed."""

    def run(*arguments):
        code, out, err = quarl(*arguments, "--json")
        assert (code, err) == (0, "")
        assert out.count("\n") == 1
        return json.loads(out)

    return run
