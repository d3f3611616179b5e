"""What channels ask of the programs that they are built on."""

import contextlib

import pytest

from quarl_bench.boards.transport import ANSWER, SshChannel
from tests.support.boards import PI


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("size", [0, 1_000, 47_000_000])
def test_a_copy_may_take_what_a_slow_link_needs(tmp_path, monkeypatch, size, folder):
    """A policy of 47 MB over 1 Mbit a second takes more than 6 minutes."""
    work, waited = tmp_path / "work", []
    work.mkdir()
    with (work / "policy.bin").open("wb") as file:
        file.truncate(size)
    monkeypatch.setattr(SshChannel, "_finish", lambda *asked: waited.append(asked[-1]))
    with contextlib.closing(SshChannel(PI)) as channel:
        channel.push(work if folder else work / "policy.bin", "/tmp/there")
    assert ANSWER + size / 125_000 <= waited[0] <= ANSWER + size / 10_000
