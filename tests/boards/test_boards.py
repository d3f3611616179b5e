"""Boards on this machine: files, sessions, golden pairs, timing, and what makes a timing void."""

import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.boards import session
from quarl_bench.boards.board import THIS_MACHINE, Board, find_board, read_boards
from quarl_bench.boards.session import find_runner, open_session
from quarl_bench.boards.speedup import judge_growth
from quarl_bench.boards.timing import BoardComparison, Timing, TimingPlan, find_faults
from quarl_bench.cli import main
from quarl_bench.errors import BoardError, MissingBoard, QuarlError, SpecError
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.spec import LOCAL
from tests.support.artefacts import exchange_output, export_pair
from tests.support.boards import CHECK, PI, STATE, make_block, measure_once
from tests.support.forks import Fork
from tests.support.places import ROOT
from tests.support.strategies import make_linear_policy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.needs("litert")


QUICK = TimingPlan(blocks=2, calls=50, seconds=0.05, warmup=0.01, insist=True)
FEW = TimingPlan(blocks=2, calls=10, seconds=0.0, warmup=0.0, insist=True)
EXAMPLE = ROOT / "hw" / "boards.example.toml"
GOOD = '[pi4]\ntransport = "ssh"\nhost = "pi4.lan"\n'


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return export_pair(tmp_path_factory.mktemp("artefacts"))


@pytest.fixture(scope="module")
def pair_in_c(tmp_path_factory):
    return export_pair(tmp_path_factory.mktemp("c"), backend="c")


@pytest.fixture
def board(tmp_path):
    """This machine with a folder of its own, so that tests do not wait for each other's lease."""
    return replace(THIS_MACHINE, folder=str(tmp_path))


# --- board files ----------------------------------------------------------------------------------------------------


def test_the_example_describes_every_key():
    boards = read_boards(EXAMPLE)
    assert list(boards) == [LOCAL, "raspi3b", "emulated"]
    assert boards["raspi3b"].transport == "ssh"
    text = EXAMPLE.read_text()
    assert not [
        key for key in vars(THIS_MACHINE) if key != "name" and not re.search(rf"^#? ?{key} = ", text, re.MULTILINE)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD.replace("ssh", "telnet"),
            r"board 'pi4', key 'transport': 'telnet' is unknown; known are local, ssh, emul",
        ),
        (GOOD.replace("transport", "transporter"), r"key 'transporter': is unknown; did you mean 'transport'\?"),
        ('[pi4]\nhost = "x"\n', r"key 'transport': is missing"),
        ('[pi4]\ntransport = "ssh"\n', r"key 'host': is missing; transport ssh needs it"),
        ('[pi4]\ntransport = "emulated"\n', r"key 'rootfs': is missing"),
        (GOOD + "port = '22'", r"key 'port': must be of type int"),
        (GOOD + "threads = true", r"key 'threads': must be of type int"),
        (GOOD + "quiet = nan", r"key 'quiet': nan is not a number of at least 0"),
        (GOOD + "options = [1]", r"key 'options': must be a list of strings"),
        (GOOD.replace("[pi4]", "[Pi-4]"), r"board 'Pi-4': a name is one or more of \[a-z0-9\]"),
        ("pi4 = 3", r"board 'pi4': must be a table, \[pi4\]"),
        ("pi4 = = 3", r"not TOML: .*line 1"),
    ],
)
def test_an_ill_formed_board_file_is_named_by_file_board_and_key(tmp_path, text, message):
    file = tmp_path / "boards.toml"
    file.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        read_boards(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


VALUES = st.sampled_from(['""', "3", "-1.5", "[]", "{}", "true", '["a"]', "[[1]]", "nan", '"ssh"', "1979-05-27"])


@given(st.dictionaries(st.sampled_from([*vars(THIS_MACHINE), "colour"]), VALUES, max_size=4))
def test_no_board_file_ends_in_a_traceback(tmp_path_factory, table):
    file = tmp_path_factory.mktemp("boards") / "boards.toml"
    file.write_text("[pi4]\n" + "".join(f"{key} = {value}\n" for key, value in table.items()))
    lines = [str(file)]
    try:
        read_boards(file)
    except SpecError as error:
        lines = str(error).splitlines()
    assert len(lines) == 1


def test_a_board_that_no_file_describes_is_missing(tmp_path):
    assert find_board(LOCAL, None) is THIS_MACHINE
    with pytest.raises(MissingBoard, match="no board 'pi4': no board file: pass --quarl-boards=FILE"):
        find_board("pi4", None)
    with pytest.raises(MissingBoard, match="has local, raspi3b, emulated"):
        find_board("pi4", EXAMPLE)
    with pytest.raises(SpecError, match="no-such"):
        find_board("pi4", tmp_path / "no-such.toml")


# --- a session on this machine --------------------------------------------------------------------------------------


def bound_counters():
    """Bytes by which one reading of a process's resident memory may be wrong.

    The trace reads VmRSS of /proc/PID/status, the peak is ru_maxrss of wait4, and Linux has no one number behind both.
    It counts pages of files, of shared and of other memory apart, each in a sum and a part per processor, which joins
    the sum when it reaches a batch of 32 pages or two per processor. The peak is of sums alone, at the moments when
    memory is unmapped; VmRSS is so too in older kernels, and adds up the parts in newer ones. So a trace may exceed its
    peak by the parts of both readings, on the processors that the process may have run on. An interpreter that does no
    more than wait exceeds it by 76 to 152 kB on two processors with Linux 6.18, where the bound is 786 kB a reading.
    """
    batch = max(32, 2 * os.cpu_count())
    return 3 * len(os.sched_getaffinity(0)) * batch * os.sysconf("SC_PAGE_SIZE")


def test_two_artefacts_are_proven_timed_and_gone(board, pair, tmp_path, tmp_path_factory):
    told = []
    meter = tmp_path_factory.mktemp("hwmon") / "power1_input"
    meter.write_text("2500000\n")
    with open_session(replace(board, power=str(meter))) as leased:
        compared = leased.compare(pair, QUICK, progress=told.append)
        assert len(list(tmp_path.glob("quarl-*"))) == 2  # the lease and its folder
    assert list(tmp_path.iterdir()) == []
    assert told == [f"local: {scheme}, block {block} of 2" for block in (1, 2) for scheme in ("fp32", "int8")]
    for timing, scheme in ((compared.first, "fp32"), (compared.second, "int8")):
        assert timing.check.scheme == scheme
        assert timing.check.first is None
        assert timing.check.kernel == "xnnpack"
        assert timing.calls >= QUICK.blocks * QUICK.calls
        assert 0 < timing.find_ns("p50") <= timing.find_ns("p90") <= timing.find_ns("p99") <= timing.find_ns("max")
        assert timing.hertz == pytest.approx(1e9 / timing.find_ns("p50"))
        assert all(block.seconds >= QUICK.seconds for block in timing.blocks)
        assert all(0 < block.init_ms < 5e3 and 0 < block.first_ms < 5e3 for block in timing.blocks)
        # The trace begins at an interpreter that waits, with neither NumPy nor runtime, and never exceeds the peak.
        resident = [point[1] for point in timing.trace]
        assert max(resident) <= timing.peak_rss + 2 * bound_counters()
        assert all(0 < block.trace[0][1] < timing.peak_rss / 2 for block in timing.blocks)
        assert timing.millijoules == pytest.approx(2.5 * 1e-6 * timing.find_ns("p50"))
    assert compared.second.check.output_sha256 == compared.second.check.golden_sha256
    assert len({block.phases["begin"] for t in (compared.first, compared.second) for block in t.blocks}) == 4
    estimate, low, high = compared.find_speedup()
    assert low < estimate < high


def test_what_is_there_is_not_sent_again(board, pair, monkeypatch):
    with open_session(board) as leased:
        assert leased.check(pair[0]).first is None
        monkeypatch.setattr(leased.channel, "push", None)
        assert leased.check(pair[0]).first is None


def test_a_divergence_is_the_first_pair_expected_and_got(board, pair, tmp_path_factory):
    changed = [exchange_output(artefact, tmp_path_factory.mktemp("artefact") / "other") for artefact in pair]
    with open_session(board) as leased:
        checks = [leased.check(folder) for folder in changed]
    for found in checks:
        assert (found.wrong, found.first.pair, found.first.element) == (1, 7, (2,))
        assert found.first.expected - found.first.got == pytest.approx(1)
        assert found.output_sha256 != found.golden_sha256
        assert re.search(r"1 of \d+ outputs differ, by 1 at most; first pair 7, element \[2\]: expected", str(found))


def test_the_exit_code_tells_a_divergence_and_void_times(board, pair, tmp_path, monkeypatch, capsys):
    """A release script reads no lines: 0 is equal and timed, 1 differs, 3 is to be timed again."""
    other = exchange_output(pair[1], tmp_path / "other")
    monkeypatch.setattr("quarl_bench.boards.board.THIS_MACHINE", board)
    monkeypatch.setattr("quarl_bench.boards.timing.TimingPlan", lambda: FEW)
    measure_once(monkeypatch)
    assert main(["board", "local", str(pair[1])]) == 0
    assert "all equal" in capsys.readouterr().out
    assert main(["board", "local", str(other)]) == 1
    assert main(["board", "local", str(pair[0]), str(other)]) == 1
    capsys.readouterr()
    sessions = tmp_path / "sessions.csv"
    timed = ["board", "local", str(pair[0]), str(pair[1]), "--sessions", str(sessions)]
    monkeypatch.setattr("quarl_bench.boards.timing.find_faults", lambda *_: ["others were at work"])
    assert main(timed) == 3
    assert "VOID: others were at work" in capsys.readouterr().out
    assert not sessions.exists()
    monkeypatch.setattr("quarl_bench.boards.timing.find_faults", lambda *_: [])
    monkeypatch.setattr("quarl_bench.boards.board.THIS_MACHINE", replace(board, quiet=1000.0))
    assert main(timed) == 0
    said = capsys.readouterr().out
    assert f"{sessions}: this session was added" in said
    assert re.search(r"golden pairs re-run, outputs within \S+\n", said)
    text = sessions.read_text()
    sessions.write_text(text.replace(text.splitlines()[1].partition(",")[0], "2026-01-01T00:00Z"))
    assert main(timed) == 0
    assert re.search(r"ratio \S+ \[.*\], 2 sessions on 2 days \(5 on 2 days are wanted\)", capsys.readouterr().out)


def test_a_damaged_or_missing_artefact_is_one_line(board, pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("artefact")
    with open_session(board) as leased:
        with pytest.raises(BoardError, match=r"manifest\.json: No such file"):
            leased.check(folder)
        for file in pair[1].iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / "model.tflite").write_bytes(b"not a model")
        with pytest.raises(BoardError, match=r"model\.tflite: not the manifest's; copy"):
            leased.check(folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"backend": "abacus"}))
        (folder / "model.tflite").write_bytes((pair[1] / "model.tflite").read_bytes())
        with pytest.raises(BoardError, match=r"backend 'abacus' does not run here; known"):
            leased.compare((folder, folder), QUICK)


def test_only_what_the_manifest_names_is_pushed(board, pair, tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("artefact") / "int8"
    shutil.copytree(pair[1], folder)
    (folder / "build").mkdir()
    (folder / "build" / "policy.o").write_bytes(bytes(1 << 20))
    (folder / "core").write_bytes(bytes(1 << 20))
    with open_session(board) as leased:
        leased.state = replace(leased.state, disk_free=1 << 20)  # what stays here needs no room there
        assert leased.check(folder).first is None
        (manifest,) = tmp_path.glob("quarl-*/*/manifest.json")
        assert {file.name for file in manifest.parent.iterdir()} == {file.name for file in pair[1].iterdir()}
        leased.state = replace(leased.state, disk_free=1)
        with pytest.raises(BoardError, match=r"disk full: .* fp32 has"):
            leased.check(pair[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"file": "../secret"}}, r"manifest\.json: no artefact's \(.*'\.\./secret' lies outside.*; export"),
        ({"golden": {}}, r"manifest\.json: no artefact's \(KeyError\('file'\)\); export again"),
        ({"others": {"gone.h": "0"}}, r"gone\.h: No such file or directory; name"),
        ({"others": {"folder": "0"}}, r"folder: Is a directory; mend this file here"),
    ],
)
def test_a_manifest_of_other_files_is_one_line(board, pair, tmp_path_factory, change, message):
    folder = tmp_path_factory.mktemp("artefact") / "int8"
    shutil.copytree(pair[1], folder)
    (folder / "folder").mkdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | change))
    with open_session(board) as leased, pytest.raises(BoardError, match=message) as caught:
        leased.check(folder)
    assert "\n" not in str(caught.value)


def test_a_wrong_folder_is_named_as_it_was_typed(board, pair, tmp_path, monkeypatch, capsys):
    """And before the board is asked for anything."""
    monkeypatch.setattr("quarl_bench.boards.session.open_session", lambda *_: pytest.fail("a board was leased"))
    monkeypatch.chdir(tmp_path)
    save_policy(make_linear_policy(np.eye(2)), tmp_path / "policy", {})
    shutil.copytree(pair[1], tmp_path / "damaged")
    (tmp_path / "damaged" / "model.tflite").write_bytes(b"not a model")
    for name, said in (
        ("nowhere", "nowhere/manifest.json: No such file or directory; an artefact holds manifest.json, golden"),
        ("policy", "policy: a policy, no artefact; `quarl deploy` makes one"),
        ("damaged", "damaged/model.tflite: its sha256 is not the manifest's"),
    ):
        assert main(["board", "local", str(pair[0]), name]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith(f"quarl board: {said}")


def test_a_second_run_is_told_who_has_the_board(board, tmp_path):
    with open_session(board, run="one") as _:
        for run in ("", "two"):
            expect_one_line(board, r"in use by .* on .*, at most for another \d+ s; wait", run=run)
    assert list(tmp_path.iterdir()) == []


def test_processes_of_one_run_wait_for_each_other(board, monkeypatch):
    monkeypatch.setattr(session, "RETRY_SECONDS", 0.05)
    with open_session(board, run="one") as first:
        begin = time.monotonic()
        expect_one_line(board, "in use", run="one", wait=0.2)
        assert time.monotonic() - begin > 0.2
        waits = []

        def sleep(_):
            waits.append(session._release_lease(first.channel, first.lease))

        # Of this module alone: subprocesses are waited for with `time.sleep`, too.
        monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        with open_session(board, run="one", wait=60):
            assert len(waits) == 1


def test_an_expired_lease_and_its_folder_are_taken_over(board, tmp_path):
    left = tmp_path / "quarl-left"
    left.mkdir()
    precious = tmp_path / "precious"
    precious.mkdir()
    lease = {"owner": "x", "run": "", "folder": str(left), "token": "t", "expires": time.time() - 1}
    for folder in (left, precious):  # only what a lease made is removed
        (tmp_path / "quarl-board.lease").write_text(json.dumps(lease | {"folder": str(folder)}))
        with open_session(board):
            pass
    assert list(tmp_path.iterdir()) == [precious]


def test_a_lease_removes_nothing_outside_its_own_folder(board, tmp_path, tmp_path_factory):
    """In a shared folder anyone may leave a lease that names another's data."""
    results = tmp_path_factory.mktemp("home") / "quarl-results"
    results.mkdir()
    file = tmp_path / "quarl-board.lease"
    lease = {"owner": "x", "run": "", "folder": str(results), "token": "t", "expires": time.time() - 1}
    file.write_text(json.dumps(lease))
    with open_session(board):
        pass
    assert results.exists()
    file.write_text(json.dumps(lease))
    subprocess.run([sys.executable, find_runner(), "release", file, "t"], check=True)
    assert not file.exists()
    assert results.exists()
    alias = tmp_path_factory.mktemp("home") / "board"  # the same folder, spelled in another way
    alias.symlink_to(tmp_path)
    (tmp_path / "quarl-left").mkdir()
    file.write_text(json.dumps(lease | {"folder": str(alias / "quarl-left")}))
    with open_session(board):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("lease", "message"),
    [
        ('{"owner": "ann on x", "run": "", "folder": "", "token": "", "expires": 0}', r"lease of \S+ \(ann on x\)"),
        ("{", r"the lease of \S+, another user; where it outlives their run, they or root remove it, or set `folder`"),
        (None, r"not writable for this user; set `folder` of this board to one of your own"),
    ],
)
def test_another_users_lease_is_named_with_its_owner(tmp_path, monkeypatch, lease, message):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    spec = importlib.util.spec_from_file_location("runner", find_runner())
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    if lease is not None:
        (tmp_path / "quarl-board.lease").write_text(lease)
    monkeypatch.setattr(runner, "os", SimpleNamespace(**{**vars(os), "open": refuse}))  # root is refused nothing
    with pytest.raises(runner.Unusable, match=message) as caught:
        runner.take_lease(str(tmp_path), "me", "", 1.0)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_run_whose_lease_was_taken_over_stops(board, pair, tmp_path):
    with open_session(board) as leased:
        file = tmp_path / "quarl-board.lease"
        file.write_text(file.read_text().replace(leased.lease["token"], "another"))
        with pytest.raises(BoardError, match="the lease has expired and the board was given to another run"):
            leased.compare(pair, QUICK)
    assert (tmp_path / "quarl-board.lease").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "riscv64"}, r"is \w+, not riscv64 as its board file says"),
        ({"python": "/no/such/python"}, r"/no/such/python: No such file or directory; set `python`"),
        ({"python": "/bin/false"}, r"ended with exit code 1 and without a word"),
        ({"python": "/bin/true"}, r"answers what no runner of this version says"),
        ({"runtime": "tensorrt"}, r"has no tensorrt with NumPy; there, pip install tensorrt"),
        ({"folder": "/no/such/folder"}, r"No such file or directory: '/no/such/folder"),
    ],
)
def test_a_board_that_cannot_do_the_work_is_one_line(board, change, message):
    expect_one_line(replace(board, **change), message)


def expect_one_line(board, message, **options):
    with pytest.raises(BoardError, match=message) as caught, open_session(board, **options):
        pass
    assert str(caught.value).startswith(f"board '{board.name}': ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", [r"\377\376", "123", "[]", r'{"event": "block", "artefact": 7}', "Welcome"])
def test_what_a_board_says_beside_its_answers_is_one_line(board, pair, tmp_path, line):
    """In the middle of a timing, from a profile of its shell for one."""
    talkative = tmp_path / "python"
    talkative.write_text(
        f'#!/bin/sh\ncase "$*" in *measure*) printf \'{line}\\n\';; esac\nexec {sys.executable} "$@"\n'
    )
    talkative.chmod(0o755)
    with open_session(replace(board, python=str(talkative))) as leased:
        with pytest.raises(BoardError, match="answers what no runner of this version says") as caught:
            leased.compare(pair, QUICK)
        assert "\n" not in str(caught.value)


def test_a_board_without_a_runtime_says_what_to_install(board, tmp_path):
    plain = tmp_path / "python"
    plain.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')  # -S: no installed packages
    plain.chmod(0o755)
    message = "has no TFLite runtime with NumPy; there, pip install ai-edge-litert"
    expect_one_line(replace(board, python=str(plain)), message)


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
from quarl_bench.boards.board import THIS_MACHINE
from quarl_bench.boards.session import open_session
from quarl_bench.boards.timing import TimingPlan
with open_session(replace(THIS_MACHINE, folder=sys.argv[1])) as session:
    pair = Path(sys.argv[2]), Path(sys.argv[3])
    session.compare(pair, TimingPlan(seconds=30, insist=True), progress=lambda line: print(line, flush=True))
"""


def test_killing_the_host_leaves_nothing_on_the_board(pair, tmp_path):
    with Fork("-c", KILLED, tmp_path, *pair) as process:
        wait_for(lambda: len(list(tmp_path.glob("quarl-*/*/model.tflite"))) == 2)
        time.sleep(1.5)  # now it measures
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not list(tmp_path.iterdir()))


def test_work_beside_the_timing_makes_it_void(board, pair):
    busy = "import time\nwhile True: sum(range(300_000)), time.sleep(0.01)"  # for a third of the time
    with Fork("-c", busy), open_session(board) as leased:
        timed = leased.compare(pair, FEW)
        untimed = leased.compare(pair, replace(FEW, insist=False))
    assert any(re.match(r"other processes used \d\.\d\d cores", fault) for fault in timed.faults)
    assert timed.timed
    assert untimed.faults
    assert not untimed.timed
    assert untimed.second.check.first is None  # what does not depend on time is known all the same


# --- what makes a timing void ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "block", "fault"),
    [
        ({}, {}, {}, None),
        ({"throttled": 0x50000}, {"throttled": 0x50000}, {}, None),  # long ago
        ({"throttled": None}, {"throttled": None}, {"khz": None}, None),  # a board that does not tell
        ({"throttled": 0x1}, {}, {}, "under-voltage now; mend the power supply"),
        ({}, {"throttled": 0x4}, {}, "throttled now"),
        ({}, {"throttled": 0x20000}, {}, "frequency capped during the timing"),
        ({"others": 0.5}, {}, {}, r"0\.50 cores before the timing"),
        ({}, {"others": 0.11}, {}, r"0\.11 cores after the timing \(limit 0\.1\)"),
        ({}, {}, {"others": 1.0}, r"1\.00 cores beside the timing"),
        ({}, {}, {"khz": 600_000}, r"the clock moved between 600 and 1200 MHz"),
    ],
)
def test_a_bad_state_makes_the_timing_void(before, after, block, fault):
    faults = find_faults(PI, replace(STATE, **before), replace(STATE, **after), [make_block(), make_block(**block)])
    assert len(faults) == (fault is not None)
    if fault:
        assert re.search(fault, faults[0])


@given(st.lists(st.floats(1e2, 1e9), min_size=2, max_size=6), st.floats(0.1, 20))
def test_the_ratio_of_paired_blocks_has_an_interval_around_it(times, factor):
    slow, fast = (Timing(CHECK, tuple(make_block(t / f) for t in times)) for f in (1.0, factor))
    compared = BoardComparison(PI, STATE, STATE, slow, fast)
    estimate, low, high = compared.find_speedup()
    blind = compared.find_step() / 2 * (1 / slow.find_ns("p50") + 1 / fast.find_ns("p50"))
    assert estimate == pytest.approx(factor)
    assert low == pytest.approx(factor * math.exp(-blind))  # what slows both down alike cancels
    assert high == pytest.approx(factor * math.exp(blind))
    assert low < estimate < high  # agreement to the clock's step is not certainty


def make_comparison(parameters, ratio, *, spread=0.01, others=0.0):
    """A policy of so many parameters whose fp32 call takes `ratio` times as long as its int8 call."""
    check = replace(CHECK, parameters=parameters)
    wobble = [1 - spread, 1 + spread, 1.0, 1.0]
    slow = Timing(check, tuple(make_block(1000.0 * ratio * w, others=others) for w in wobble))
    return BoardComparison(PI, STATE, STATE, slow, Timing(check, tuple(make_block() for _ in wobble)))


@pytest.mark.parametrize(
    ("ratios", "options", "outcome"),
    [
        ((1.4, 2.8, 4.5), {}, "supported"),
        ((4.5, 2.8, 1.4), {}, "refuted"),
        ((1.4, 4.5, 2.8), {}, "refuted"),  # one step back is enough
        ((1.4, 1.45, 4.5), {"spread": 0.2}, "inconclusive"),
        ((1.4, 2.8, 4.5), {"others": 1.0}, "inconclusive"),
    ],
)
def test_growth_is_judged_by_its_smallest_step(ratios, options, outcome):
    compared = [make_comparison(n, ratio, **options) for n, ratio in zip((10, 100, 1000), ratios, strict=True)]
    verdict = judge_growth(compared[::-1], 1.0)  # in any order
    assert verdict.outcome == outcome
    assert (verdict.estimate is None) == ("others" in options)
    assert verdict.policies == 3 or "void: other processes" in verdict.needed
    if outcome == "supported":
        assert verdict.estimate == pytest.approx(4.5 / 2.8, rel=1e-3)


def test_without_a_meter_there_is_no_energy():
    assert Timing(CHECK, (make_block(),)).millijoules is None


def test_an_emulated_board_is_never_timed(pair):
    from quarl_bench.boards.session import Session
    from quarl_bench.boards.transport import open_channel

    board = Board("emulated", "emulated", rootfs="/nowhere")
    with pytest.raises(QuarlError, match="an emulator's times mean nothing"):
        Session(open_channel(board), STATE, {}).compare(pair)
    expect_one_line(board, r"(/nowhere has no usr/bin/python3; make it with|No such file)")


def test_the_runner_needs_nothing_of_this_package():
    source = find_runner().read_text()
    imported = set(re.findall(r"^\s*(?:import|from) ([a-zA-Z_]+)", source, re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) == {"numpy", "ai_edge_litert", "tflite_runtime"}


@pytest.mark.needs("cc")
def test_c_is_compiled_on_the_board_and_gives_the_golden_outputs(board, pair_in_c):
    with open_session(board) as leased:
        compared = leased.compare(pair_in_c, FEW)
    for timing in (compared.first, compared.second):
        assert timing.check.first is None
        assert timing.check.backend == "c"
        assert "-O3 -march=native" in timing.check.runtime
    assert compared.second.check.output_sha256 == compared.second.check.golden_sha256
    assert compared.second.check.kernel in {"u8xs8", "s8xs8"}
    assert compared.first.check.kernel == "strict"


@pytest.mark.needs("cc")
def test_a_build_beside_the_c_source_is_not_run_in_its_place(board, pair_in_c, tmp_path_factory, monkeypatch):
    folder = shutil.copytree(pair_in_c[1], tmp_path_factory.mktemp("c") / "int8")
    with open_session(board) as leased:
        proven = leased.check(folder)
    (folder / "wrong.c").write_text("void policy_run(const void *x, void *y) {}\n")
    for name in ("libpolicy.so", "quarl-policy.so"):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, folder / "wrong.c"], check=True)
    with open_session(board) as leased:
        assert leased.check(folder) == proven
    monkeypatch.chdir(folder.parent)
    alone = subprocess.run(
        [sys.executable, find_runner(), "check", folder.name], check=True, capture_output=True, text=True
    )
    assert json.loads(alone.stdout)["output_sha256"] == proven.golden_sha256
