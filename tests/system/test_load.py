"""What others use of a machine, from what the kernel counts."""

import os
import time

from quarl_bench.system import load
from quarl_bench.system.load import LoadMeter, read_busy


def test_all_but_idling_and_waiting_is_busy(monkeypatch, tmp_path):
    monkeypatch.setattr(load, "TIMES", tmp_path / "stat")
    assert read_busy() == 0.0
    (tmp_path / "stat").write_text("cpu  100 20 30 9999 8888 4 5 6 700 800\ncpu0 1\n")
    assert read_busy() == 165 / os.sysconf("SC_CLK_TCK")


def test_own_work_is_nobody_elses(monkeypatch):
    ticks = iter([(0.0, 10.0, 1.0), (2.0, 14.0, 2.0)])  # clock, machine, this process
    now = {}

    def read(which):
        if which == 0:
            now["tick"] = next(ticks)
        return now["tick"][which]

    monkeypatch.setattr(time, "monotonic", lambda: read(0))
    monkeypatch.setattr(load, "_read_own", lambda: now["tick"][2])
    monkeypatch.setattr(load, "read_busy", lambda: now["tick"][1])
    meter = LoadMeter()
    read(0)
    monkeypatch.setattr(time, "monotonic", lambda: now["tick"][0])
    assert meter.read() == (14.0 - 10.0 - (2.0 - 1.0)) / 2.0
