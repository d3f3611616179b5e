"""A forked Python is what a cold one is."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.forks import Fork, run_python

PROGRAMS = {
    "what it was told": "import sys, os; print(sys.argv, __name__, os.getcwd(), os.environ['GIVEN'])",
    "where modules are": "import sys; print(sys.path)",
    "pickles of its own": "import pickle\ndef f(): return 3\nprint(pickle.loads(pickle.dumps(f))(), pickle.dumps(f))",
    "an exit code": "raise SystemExit(7)",
    "an exit with words": "raise SystemExit('words')",
    "an error": "print('before')\n1 / 0",
    "its last words": "import atexit; atexit.register(print, 'bye'); print('x')",
    "a thread that goes on": "import threading; threading.Timer(0.1, print, ['late']).start()",
    "its signals": "import signal; print([signal.getsignal(number) for number in (2, 13, 15, 17)])",
    "Ctrl-C": "raise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "an end without goodbye": "import os; os._exit(3)",
    "a process of its own": "import multiprocessing as m; print(m.get_start_method(), m.parent_process())",
    "nothing of the tests": "import sys; print([n for n in sys.modules if n.split('.')[0] == 'tests'])",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_it_says_and_ends_as_a_cold_one_does(program, tmp_path):
    env = os.environ | {"GIVEN": "here", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program, "a b"]
    cold = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    warm = run_python("-c", program, "a b", cwd=tmp_path, env=env)
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


@pytest.mark.parametrize("call", [("-m", "named"), ("named.py",)], ids=["module", "file"])
def test_a_module_and_a_file_are_run(call, tmp_path):
    (tmp_path / "beside.py").write_text("WORD = 'found'")
    (tmp_path / "named.py").write_text("import sys, beside; print(beside.WORD, __name__, sys.argv[0], __file__)")
    cold = subprocess.run([sys.executable, *call], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run_python(*call, cwd=tmp_path).stdout == cold.stdout


def test_asserts_are_rewritten_and_plugins_are_there(tmp_path):
    (tmp_path / "conftest.py").write_text("import helper\npytest_plugins = ['helper']\n")
    (tmp_path / "helper.py").write_text("def check(a):\n    assert a == [1, 2]\n")
    (tmp_path / "test_it.py").write_text("from helper import check\ndef test_it():\n    check([1, 3])\n")
    command = ("-m", "pytest", "-p", "no:cacheprovider")
    cold = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    warm = run_python(*command, cwd=tmp_path)
    assert warm.returncode == cold.returncode == 1

    def drop_times(text):
        return [line for line in text.splitlines() if " in " not in line]

    assert drop_times(warm.stdout) == drop_times(cold.stdout)


def test_one_that_is_killed_is_gone(tmp_path):
    program = "import os, time; print(os.getpid(), os.getpgrp(), flush=True); os.fork(); time.sleep(60)"
    with Fork("-c", program, stdout=subprocess.PIPE, leads=True) as process:
        assert process.stdout.readline().split() == [str(process.pid)] * 2
        assert process.poll() is None
        process.kill()
        assert process.stdout.read() == "", "the one that it had forked is gone too"
        assert process.poll() == -signal.SIGKILL


def test_one_that_takes_too_long_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        run_python("-c", "import time; time.sleep(60)", timeout=0.2)
