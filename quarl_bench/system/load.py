"""How busy a machine is beside this process. Standard library only."""

import os
import time
from pathlib import Path

TIMES = Path("/proc/stat")


class LoadMeter:
    """What everything else on this machine uses; the children of this process are its own, once they have ended."""

    def __init__(self) -> None:
        self._start, self._busy, self._own = time.monotonic(), read_busy(), _read_own()

    def read(self) -> float:
        """In cores, since this object was made."""
        used = read_busy() - self._busy - (_read_own() - self._own)
        return max(0.0, used) / (time.monotonic() - self._start)


def read_busy() -> float:
    """Seconds of processor time that anything has used since the start of the machine; 0 where it does not tell."""
    try:
        fields = [int(field) for field in TIMES.read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, *rest = fields
    return float(user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def _read_own() -> float:
    return sum(os.times()[:4])
