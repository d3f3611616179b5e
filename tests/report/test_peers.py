"""Runs of benches/peers: kept contest by contest, read as written, chosen before anything runs."""

import importlib.util
import json
import os
import sys
from dataclasses import replace

import pytest

from quarl_bench.errors import StoreError
from quarl_bench.judging.times.contest import Contest, Pair
from quarl_bench.report.peers import PeerRun, read_run, read_runs, write_run
from tests.support.forks import run_python
from tests.support.places import ROOT

PEERS = ROOT / "benches" / "peers"
CONTESTS = (
    Contest("a task", "s", {"quarl": (1.0, 2.0), "other": (3.0, 3.0)}, (Pair("quarl", "other", 1.5),), note="small"),
    Contest("files", "bytes", {"quarl": (10,)}),
)
RUN = PeerRun(
    command="python benches/peers/race.py", rounds=2, quick=False, date="2026-11-26", load=(0.1, 0.2, 0.3),
    machine={"processor": "A processor", "cores": 2, "instructions": ["avx2", "amx_int8"]},
    versions={"torch": "2.13.0"}, commit="0123456789abcdef+", absent={"far": "faraway"}, seconds=3.5, others=0.01,
    contests=CONTESTS,
)  # fmt: skip
RACE = """
import os
import sys
from pathlib import Path

from turns import Script, main, pick

from quarl_bench.errors import QuarlError
from quarl_bench.judging.times.contest import Contest, Pair


def measure(name, options):
    with Path("order").open("a") as file:
        file.write(f"{name} {len(os.sched_getaffinity(0))} {os.environ['OMP_NUM_THREADS']}\\n")
    print("a library says hello")
    if Path("stop").exists() and len(Path("order").read_text().splitlines()) >= int(Path("stop").read_text()):
        sys.exit(7)
    if options.break_ == name:
        sys.exit(7)
    return 1.0 if name == "quarl" else 2.0, 5.0


def compare(turns):
    taken = turns.take(("quarl", "other", "far"))
    yield Contest("first", "s", pick(taken), (Pair("quarl", "other"),))
    if turns.options.break_ == "itself":
        raise QuarlError("no luck")
    yield Contest("second", "MB", pick(turns.take(("quarl", "other"), "--break", turns.options.break_), 1))


def add_options(parser):
    parser.add_argument("--break", dest="break_", default="nothing")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 2, measure, {"far": "faraway"}, add_options))
"""

ALONE = """
from turns import Script, main

from quarl_bench.judging.times.contest import Contest


def compare(turns):
    if not turns.absent:
        import faraway

        yield Contest("first", "s", {"far": (faraway.SECONDS,)})


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 1, needs={"far": "faraway"}))
"""


@pytest.fixture
def race(tmp_path, monkeypatch):
    """Runs a script of two contenders and an absent one."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{PEERS}")
    (tmp_path / "race.py").write_text(RACE)
    return lambda *arguments: run_python("race.py", *arguments, cwd=tmp_path)


@pytest.fixture(scope="module")
def peers():
    """The command's module."""
    spec = importlib.util.spec_from_file_location("peers_command", PEERS / "__main__.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_is_read_as_it_was_written(tmp_path):
    write_run(tmp_path / "race.json", RUN)
    assert read_run(tmp_path / "race.json") == RUN
    assert read_runs(tmp_path) == {"race": RUN}
    assert json.loads((tmp_path / "race.json").read_text())["contests"][0]["pairs"][0]["median"] == 2.25


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda text: text[:-9], "not JSON, or cut short"),
        (lambda _: "[]", "schema_version is None, not 1"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "schema_version is 2, not 1"),
        (lambda text: text.replace('"commit"', '"comet"'), "ill-formed"),
        (lambda text: text.replace("2.25", "2.5"), "not what the rounds give"),
    ],
)
def test_what_is_no_run_is_told_in_one_line(tmp_path, change, line):
    path = tmp_path / "race.json"
    write_run(path, RUN)
    path.write_text(change(path.read_text()))
    with pytest.raises(StoreError, match=line) as caught:
        read_run(path)
    assert "run python -m benches.peers race again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_quick_run_measures_nothing(tmp_path):
    write_run(tmp_path / "race.json", replace(RUN, quick=True))
    with pytest.raises(StoreError, match="a quick run"):
        read_runs(tmp_path)


def test_contenders_take_turns_and_are_kept(race, tmp_path):
    done = race("--output", tmp_path / "kept" / "race.json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "far is left out: faraway is not installed\n"
    assert (tmp_path / "order").read_text().splitlines() == ["quarl 1 1", "other 1 1"] * 4
    assert "quarl against other: 2.00x (2.00x to 2.00x)" in done.stdout
    (kept,) = (tmp_path / "kept").iterdir()
    run = read_run(kept)
    assert [contest.name for contest in run.contests] == ["first", "second"]
    assert run.contests[0].rounds == {"quarl": (1.0, 1.0), "other": (2.0, 2.0)}
    assert (run.command, run.rounds, run.absent) == ("python benches/peers/race.py", 2, {"far": "faraway"})
    assert run.machine["cores"] == os.cpu_count()
    assert run.seconds > 0


@pytest.mark.parametrize(
    ("broken", "line"),
    [("itself", "race: no luck\n"), ("other", "race: other gave no numbers, exit code 7\n")],
)
def test_half_a_run_loses_nothing(race, tmp_path, broken, line):
    path = tmp_path / "race.json"
    write_run(path, RUN)
    done = race("--output", path, "--break", broken, "--rounds", 1)
    assert done.returncode == 2
    assert done.stderr.endswith(line)
    assert read_run(path) == RUN
    assert (tmp_path / "race.json.part").exists()
    assert read_runs(tmp_path) == {"race": RUN}
    again = race("--output", path, "--rounds", 1)
    assert (again.returncode, "of another command, commit or machine; measured anew" in again.stderr) == (0, True)
    assert len(read_run(path).contests) == 2
    assert not (tmp_path / "race.json.part").exists()


def test_a_killed_run_goes_on_behind_its_last_number(race, tmp_path):
    path, order = tmp_path / "race.json", tmp_path / "order"
    (tmp_path / "stop").write_text("4")
    assert race("--output", path).returncode == 2
    assert order.read_text().splitlines() == ["quarl 1 1", "other 1 1"] * 2
    part = tmp_path / "race.json.part"
    with part.open("a") as file:
        file.write('{"key": ["second')  # killed while it wrote
    (tmp_path / "stop").unlink()
    done = race("--output", path)
    assert done.returncode == 0, done.stderr
    assert "race.json.part: goes on behind 3 measurements" in done.stderr
    assert order.read_text().splitlines()[4:] == ["other 1 1", *["quarl 1 1", "other 1 1"] * 2]
    run = read_run(path)
    assert [contest.rounds for contest in run.contests] == [{"quarl": (1.0, 1.0), "other": (2.0, 2.0)}, {
        "quarl": (5.0, 5.0), "other": (5.0, 5.0)}]  # fmt: skip
    assert not part.exists()


@pytest.mark.parametrize("head", ["", "[]\n", '{"schema_version": 1}\n{"key": []}\n', "no JSON"])
def test_what_is_no_journal_of_this_run_is_measured_anew(race, tmp_path, head):
    (tmp_path / "race.json.part").write_text(head)
    done = race("--output", tmp_path / "race.json", "--rounds", 1)
    assert done.returncode == 0, done.stderr
    assert "measured anew" in done.stderr
    assert len((tmp_path / "order").read_text().splitlines()) == 4


@pytest.mark.parametrize("wrong", [("--rounds", "0"), ("--packages", "nowhere"), ("--output", ".")])
def test_bad_input_runs_nothing(race, tmp_path, wrong):
    done = race(*wrong)
    assert done.returncode == 2
    assert not (tmp_path / "order").exists()


def test_a_library_of_its_own_is_found_in_its_folder(race, tmp_path):
    (tmp_path / "apart" / "faraway").mkdir(parents=True)
    done = race("--packages", tmp_path / "apart", "--rounds", 1)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "order").read_text().startswith("quarl 1 1\nother 1 1\nfar 1 1\n")


def test_it_is_found_too_where_all_is_measured_in_one_process(race, tmp_path):
    (tmp_path / "apart" / "faraway").mkdir(parents=True)
    (tmp_path / "apart" / "faraway" / "faraway.py").write_text("SECONDS = 4.0")
    (tmp_path / "race.py").write_text(ALONE)
    assert "far is left out: faraway is not installed" in race().stderr
    done = race("--packages", tmp_path / "apart")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  far           4  (4 to 4)" in done.stdout


@pytest.fixture
def command(peers, tmp_path, monkeypatch, capfd):
    """Runs the command on entries of the script above: (exit code, what it said, what was kept)."""
    monkeypatch.setattr(peers, "HERE", tmp_path)
    monkeypatch.setattr(peers, "STORED", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", str(PEERS))  # of which scripts that lie there need nothing
    monkeypatch.chdir(tmp_path)
    (tmp_path / "race.py").write_text(RACE)
    entries = {
        "broken": peers.Entry("race", 1, arguments=("--break", "itself")),
        "race": peers.Entry("race", 1),
        "poor": peers.Entry("race", 1, ("faraway", "quarl_bench")),
        "long": peers.Entry("race", 99, named=True),
    }
    monkeypatch.setattr(peers, "ENTRIES", entries)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["peers", *arguments])
        code = 0
        try:
            peers.main()
        except SystemExit as error:
            code = error.code
        kept = {path.name for path in (tmp_path / "runs").glob("*")}
        return code, capfd.readouterr(), kept

    return run


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("race", "rice", "rate"), "nothing is called rice, rate; there are broken, race, poor, long"),
        (("race", "poor"), "poor needs faraway; install it, or say where it is by --packages"),
    ],
)
def test_names_are_judged_before_anything_runs(command, names, line):
    code, said, kept = command(*names)
    assert (code, said.out, said.err, kept) == (2, "", f"benches.peers: {line}\n", set())


def test_one_that_fails_stops_no_other(command):
    code, said, kept = command("--rounds", "1")
    assert code == 1
    assert kept == {"broken.json.part", "race.json"}
    lines = said.err.splitlines()
    assert lines[0] == "poor is left out: it needs faraway"
    assert lines[-1] == "benches.peers: failed: broken"
    assert "[1/2] broken: failed after 0:" in said.out
    assert "[2/2] race: done in 0:" in said.out


def test_a_quick_run_is_kept_only_where_it_is_told(command, tmp_path):
    code, _, kept = command("race", "--quick")
    assert (code, kept) == (0, set())
    assert command("race", "--quick", "--output", "tried")[0] == 0
    assert read_run(tmp_path / "tried" / "race.json").quick


def test_what_there_is_is_listed(command):
    code, said, _ = command("--list")
    assert code == 0
    assert [line.split()[2] for line in said.out.splitlines()] == ["broken", "race", "poor", "long"]
    assert "(needs faraway)" in said.out
    assert "has to be named" in said.out.splitlines()[-1]


def test_every_script_has_an_entry(peers):
    scripts = {path.stem for path in PEERS.glob("*.py")} - {"__main__", "turns", "journal"}
    assert scripts == {entry.script for entry in peers.ENTRIES.values()}


def test_a_script_of_ours_runs_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = run_python(PEERS / "collection.py", "--quick", "--output", "plugin.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (contest,) = read_run(tmp_path / "plugin.json").contests
    assert set(contest.rounds) == {"with", "without"}
