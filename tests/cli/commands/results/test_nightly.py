"""`quarl nightly` before anything runs; tests/distributed/test_cluster.py runs it."""

import json
import lzma

import pytest

from quarl_bench.cli import main
from quarl_bench.cli.stopping import STOPPED
from quarl_bench.distributed.parts import Part, PartPlan, run_part
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
