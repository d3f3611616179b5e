"""The ssh transport against a real sshd on this machine's loopback."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from quarl_bench.boards.board import Board
from quarl_bench.boards.session import open_session
from quarl_bench.boards.timing import TimingPlan
from quarl_bench.boards.transport import open_channel
from quarl_bench.errors import BoardError
from tests.support.artefacts import export_pair
from tests.support.waiting import wait_for

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.needs("sshd", "ssh", "ssh-keygen", "litert")

QUICK = TimingPlan(blocks=2, calls=50, seconds=0.05, warmup=0.01, insist=True)
PRIVILEGE_SEPARATION = Path("/run/sshd")  # root's sshd wants it; the service makes it where there is one
CONFIG = """
ListenAddress 127.0.0.1:{port}
HostKey {home}/host_key
AuthorizedKeysFile {home}/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return export_pair(tmp_path_factory.mktemp("artefacts"))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Keys of a server and of a user."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host_key", "key", "other_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    return folder


@pytest.fixture
def server(home):
    """A running sshd: (process, port)."""
    if os.geteuid() == 0:
        PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
    port = find_port()
    config = home / "sshd_config"
    config.write_text(CONFIG.format(port=port, home=home))
    log = home / "sshd.log"
    with log.open("wb") as stream, subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=stream) as process:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield process, port
        for child in find_children(process.pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(child, signal.SIGTERM)
        process.terminate()


@pytest.fixture
def board(server, home, tmp_path):
    return make_board(server[1], home, tmp_path)


def make_board(port, home, folder, **rest):
    options = (
        f"IdentityFile={home / rest.pop('key', 'key')}",
        "IdentitiesOnly=yes",
        f"UserKnownHostsFile={home / 'known_hosts'}",
        "StrictHostKeyChecking=accept-new",
        "ConnectTimeout=2",
    )
    host = rest.pop("host", f"{getpass.getuser()}@127.0.0.1")
    return Board("pi", "ssh", host=host, port=port, options=options, folder=str(folder), python=sys.executable, **rest)


def find_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find_children(pid):
    """Of a process, and theirs."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                yield from find_children(int(entry.name))
                yield int(entry.name)


def test_a_session_over_ssh_measures_and_leaves_nothing(board, pair, tmp_path):
    with open_session(board) as session:
        compared = session.compare(pair, QUICK)
        assert list(tmp_path.glob("quarl-*/run_policy.py"))
    assert compared.first.check.first is None
    assert compared.second.check.output_sha256 == compared.second.check.golden_sha256
    assert compared.second.calls >= QUICK.blocks * QUICK.calls
    assert list(tmp_path.iterdir()) == []


def test_one_connection_serves_the_whole_session(board, pair, home):
    with open_session(board) as session:
        session.check(pair[0])
        session.check(pair[1])
    assert (home / "sshd.log").read_text().count("Accepted publickey") == 1


def test_a_name_with_a_colon_is_no_host(board, pair, tmp_path, tmp_path_factory, monkeypatch):
    work = tmp_path_factory.mktemp("work")
    shutil.copytree(pair[0], work / "flight:fp32")
    monkeypatch.chdir(work)
    with contextlib.closing(open_channel(board)) as channel:
        channel.push(Path("flight:fp32"), f"{tmp_path}/pushed")
    assert (tmp_path / "pushed" / "manifest.json").exists()
    shutil.rmtree(tmp_path / "pushed")
    with open_session(board) as session:
        assert session.check(Path("flight:fp32")).first is None


def test_two_runs_for_one_board(board, tmp_path):
    with open_session(board):
        expect_one_line(board, r"in use by .* on .*; wait, or use another")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"host": "no-such-host.invalid"}, "not reached over ssh: .*resolve hostname no-such-host.invalid.*; try `ssh"),
        ({"key": "other_key"}, "not reached over ssh: .*Permission denied"),
        ({"architecture": "armv7l"}, "is .*, not armv7l as its board file says"),
        ({"python": "/no/such/python3"}, "no/such/python3.*; set `python` of this board to a Python 3.9 or later"),
        ({"runtime": "tensorrt"}, "has no tensorrt with NumPy"),
    ],
)
def test_bad_input_is_one_line(server, home, tmp_path, change, message):
    python = change.pop("python", None)
    board = make_board(server[1], home, tmp_path, **change)
    if python:
        board = replace(board, python=python)
    expect_one_line(board, message)
    assert list(tmp_path.iterdir()) == []


def expect_one_line(board, message):
    with pytest.raises(BoardError, match=message) as caught, open_session(board):
        pass
    assert str(caught.value).startswith("board 'pi': ")
    assert "\n" not in str(caught.value)


def test_a_refused_connection_is_one_line(home, tmp_path):
    expect_one_line(make_board(find_port(), home, tmp_path), "not reached over ssh: .*Connection refused; try `ssh")


def test_a_host_that_takes_the_call_and_says_nothing_is_one_line(home, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        board = make_board(silent.getsockname()[1], home, tmp_path)
        expect_one_line(board, "not reached over ssh: .*(timed out|Timeout).*; try `ssh")


def test_a_cut_connection_is_one_line_and_the_board_cleans_itself(server, board, pair, tmp_path):
    def cut(_):
        for child in find_children(server[0].pid):
            if "sshd" in Path(f"/proc/{child}/comm").read_text():
                os.kill(child, signal.SIGKILL)
        server[0].kill()  # nobody can connect again to clean up

    with (
        pytest.raises(BoardError, match="board 'pi': not reached over ssh: ") as caught,
        open_session(board) as session,
    ):
        session.compare(pair, TimingPlan(blocks=3, seconds=1, insist=True), progress=cut)
    assert "\n" not in str(caught.value)
    wait_for(lambda: list(tmp_path.iterdir()) == [])


def test_a_full_disk_on_the_board_is_one_line(server, home, pair, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small tmpfs")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs here: {mounted.stderr.decode()}")
    try:
        board = make_board(server[1], home, small)
        full = r"board 'pi': disk full: \d+ kB are free in .*; free"
        with open_session(board) as session, pytest.raises(BoardError, match=full) as caught:
            session.compare(pair, QUICK)
        assert "\n" not in str(caught.value)
        assert list(small.iterdir()) == []
        with open_session(board) as session:  # it fills while we copy
            session.state = replace(session.state, disk_free=1 << 30)
            with pytest.raises(BoardError, match=r"board 'pi': fp32 cannot be copied to .*: scp: "):
                session.check(pair[0])
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)
