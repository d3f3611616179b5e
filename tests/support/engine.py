"""Ray in a process of its own, one at a time on this machine, whatever pytest-xdist does."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

SECONDS = 150  # for a script, on a busy machine
LOCK = Path(tempfile.gettempdir()) / f"quarl-ray-{os.getuid()}.lock"

PRELUDE = """
import os, signal, sys, threading, time
from pathlib import Path

def find_processes(title):
    "Ids of this process's descendants whose command line begins with `title`."
    found, parents = [], {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                pass
    for number in parents:
        above = number
        while above in parents and above != os.getpid():
            above = parents[above]
        try:
            if above == os.getpid() and Path(f"/proc/{number}/cmdline").read_bytes().decode().startswith(title):
                found.append(number)
        except OSError:
            pass
    return found

def kill_when(title, ready, count=1):
    "A thread that kills -9 the first process so called, once `ready()`."
    def watch():
        for _ in range(count):
            while not (ready() and find_processes(title)):
                time.sleep(0.05)
            os.kill(find_processes(title)[0], signal.SIGKILL)
    threading.Thread(target=watch, daemon=True).start()
"""


def run_alone(script, cache, *arguments, seconds=SECONDS):
    """(exit code, stdout, stderr) of a Python script that may start Ray; its whole process group ends with it."""
    environment = os.environ | {"QUARL_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
    with (
        FileLock(LOCK),
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as process,
    ):
        try:
            out, err = process.communicate(timeout=seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err
