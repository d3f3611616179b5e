"""`quarl nightly` before anything runs; tests/distributed/test_cluster.py runs it."""

import json
import lzma
import re
from functools import partial
from types import SimpleNamespace

import pytest

from quarl_bench.cli import main
from quarl_bench.cli.stopping import STOPPED
from quarl_bench.distributed.parts import Part, PartPlan, run_part
from quarl_bench.distributed.tasks import run_tasks
from quarl_bench.errors import EngineError
from tests.support.rows import make_document


@pytest.mark.parametrize("word", ["--quarl-shard=1/2", "--quarl-json", "--quarl-compare=last.json"])
def test_what_the_command_sets_is_refused(word, tmp_path, capsys):
    assert main(["nightly", "--output", str(tmp_path / "out.json"), "--", word, "benches"]) == 2
    said = f"{word.partition('=')[0]} is for the command to set; give --parts, --output or --compare before `--`"
    assert said in capsys.readouterr().err.replace(word, word.partition("=")[0])
    assert not list(tmp_path.iterdir())


def test_a_file_to_compare_with_is_read_first(tmp_path, capsys):
    assert main(["nightly", "--output", str(tmp_path / "out.json"), "--compare", str(tmp_path / "absent.json")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "absent.json: No such file" in line


def test_a_packed_file_balances_the_parts_too(tmp_path, monkeypatch):
    last, plans = make_document().data, []
    monkeypatch.setattr("quarl_bench.distributed.parts.run_parts", lambda plan, *_, **__: plans.append(plan) or ())
    for name, write in (("last.json", bytes), ("last.json.xz", lzma.compress)):
        path = tmp_path / name
        path.write_bytes(write(json.dumps(last).encode()))
        assert main(["nightly", "--output", str(tmp_path / "out.json"), "--compare", str(path)]) == STOPPED
    assert [json.loads(plan.compared) for plan in plans] == [last, last]


def test_a_node_without_the_checkout_says_so(tmp_path):
    with pytest.raises(EngineError, match=r"part 1/2: no folder .*absent; check the project out there on every node"):
        run_part(Part(1, 2), PartPlan(tmp_path / "absent", ()))


def test_a_part_that_pytest_refuses_says_why(tmp_path):
    with pytest.raises(EngineError, match=r"part 1/2: pytest ended with 4; it said: .*no-such-option"):
        run_part(Part(1, 2), PartPlan(tmp_path, ("--no-such-option",)))


class RemoteError(Exception):
    """What Ray makes of an exception."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class FakeRay:
    """Runs what it was given when somebody asks for the result."""

    exceptions = SimpleNamespace(
        RayError=RemoteError, WorkerCrashedError=ConnectionError, NodeDiedError=ConnectionError,
        OutOfMemoryError=MemoryError,
    )  # fmt: skip

    def wait(self, results, timeout):
        return results[:1], results[1:]

    def get(self, result):
        try:
            return result()
        except EngineError as error:
            raise RemoteError(error) from error


@pytest.mark.parametrize(("lives", "told"), [(1, ""), (9, r"its worker died 4 times \(part 1/1: .* ended by signal 9")])
def test_a_part_whose_pytest_is_killed_is_tried_again(tmp_path, lives, told):
    """As by a system without memory: pytest is what needs it."""
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib\ndef test_it():\n"
        f"    with pathlib.Path('lives').open('a') as file: file.write('.')\n"
        f"    len(pathlib.Path('lives').read_text()) > {lives} or os.kill(os.getpid(), 9)\n"
    )
    said, plan = [], PartPlan(tmp_path, ("-p", "no:xdist"))
    (done,) = run_tasks(
        FakeRay(), [Part(1, 1)], lambda part: partial(run_part, part, plan), lambda part: part.name, "parts",
        progress=False, should_stop=lambda: False, note=said.append,
    )  # fmt: skip
    assert said[0] == "1/1: its worker died and it is tried again (1 of 3)"
    assert (done.retries, len(said)) == ((3, 3) if told else (1, 1))
    assert re.match(told, done.failure) if told else json.loads(done.value)["rows"] == []
