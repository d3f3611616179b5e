"""`quarl`: every command, its exit codes, and what it says when the input is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from quarl_bench import cli
from quarl_bench.cli import commands as registry
from quarl_bench.cli import main
from quarl_bench.policies.storage.fp32 import save_policy
from tests.support.balancer import ABOUT, BALANCER
from tests.support.commands import PROCESS
from tests.support.forks import Fork, run_python

COMMANDS = ("train", "quantize", "evaluate", "sweep", "weights", "deploy", "report", "select", "actorq", "grid",
            "nightly")  # fmt: skip
STOPPING = ("train", "select", "actorq", "grid")  # at a checkpoint
NOWHERE = "neither a path nor a policy of that name in baselines/policies; `quarl list policies` names them"
BREAKS = """
import gymnasium, numpy as np

class Breaks(gymnasium.Env):
    max_episode_steps = 20
    observation_space = gymnasium.spaces.Box(-5, 5, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return {what}
"""


def ask_for_help(*arguments, modules):
    """What a fresh process prints, and behind it the list of loaded modules that the expression `modules` keeps."""
    code = (
        "import sys, quarl_bench.cli as c\n"
        f"try: c.main([*{arguments!r}, '--help'])\n"
        "except SystemExit: pass\n"
        f"print([m for m in {modules}])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_costs_no_heavy_import():
    heavy = ("torch", "numpy", "matplotlib", "jinja2", "tqdm", "safetensors")
    assert ask_for_help("sweep", modules=f"{heavy!r} if m in sys.modules").endswith("[]\n")


def test_help_imports_no_command_and_lists_each_in_its_own_words(quarl):
    out = ask_for_help(modules="sys.modules if m.startswith('quarl_bench.cli.commands.')")
    assert out.endswith("[]\n")
    helped, whole = " ".join(out.split()), cli._build_parser().format_help()
    assert helped == " ".join([*whole.split(), "[]"])
    for name, command in registry.COMMANDS.items():
        assert command.help in helped
        assert command.help in " ".join(quarl(name, "--help")[1].split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_states_its_default_and_every_command_an_example(command, quarl):
    code, out, _ = quarl(command, "--help")
    assert code == 0
    assert f"quarl {command}" in out.partition("example: ")[2]
    assert "exit codes: 0 done, 2 wrong input" in out
    assert ("3 stopped at a checkpoint" in out) == (command in STOPPING)
    (commands,) = (action for action in cli._build_parser()._actions if isinstance(action.choices, dict))
    for action in commands.choices[command]._actions:
        if action.option_strings and action.dest != "help":
            assert "Default: " in action.help, action.option_strings


def test_the_installed_command_is_this_one(folder):
    run = run_python(*PROCESS, "weights", "policy", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["kind"] == "weights"
    run = run_python(*PROCESS, "weights", "nowhere")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"quarl weights: nowhere: {NOWHERE}")
    assert run.stderr.count("\n") == 1
    assert run_python(*PROCESS).returncode == 0


def test_an_error_in_an_environment_is_no_verdict(folder, quarl, monkeypatch, capsys):
    """1 is what `quarl check` returns for a refuted claim."""
    monkeypatch.setattr(
        "quarl_bench.cli.commands.playing.check.run", Mock(side_effect=RuntimeError("the simulator broke"))
    )
    try:
        code = cli.main(["check", "policy"])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2
    assert "RuntimeError: the simulator broke" in error
    assert error.endswith("quarl check: an error in an environment or policy of yours, or in quarl\n")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("1 / 0", "step() raised ZeroDivisionError: division by zero ("),
        ("np.full(4, np.nan, np.float32), 1.0, False, False, {}", "an observation has NaN"),
        ("np.zeros(4, np.float32), float('inf'), False, False, {}", "a reward is inf"),
        ("np.zeros(3, np.float32), 1.0, False, False, {}", "an observation has the shape (3,), not (4,)"),
        ("np.array(['a'] * 4), 1.0, False, False, {}", "an observation has the dtype <U1, not float32"),
    ],
)
@pytest.mark.parametrize("command", ["check", "evaluate"])
def test_what_an_environment_does_wrong_is_one_line(command, what, message, folder, quarl):
    name = f"breaks_{folder.name}".replace("-", "_")
    (folder / f"{name}.py").write_text(BREAKS.replace("{what}", what))
    code, out, err = quarl(command, "policy", "--environment", f"{name}:Breaks", "--episodes", "3")
    (line,) = err.strip().splitlines()
    assert (code, out) == (2, "")
    assert line.startswith(f"quarl {command}: environment {name}.Breaks-v0, seed ")
    assert message in line


@pytest.mark.parametrize("error", [BrokenPipeError("the simulator has gone"), SystemExit(0), SystemExit(1)])
def test_neither_is_one_that_looks_like_an_end_of_ours(error, folder, monkeypatch, capsys):
    """A pipe of the user's own that breaks, and code that ends the process: 0 would be "supported"."""
    monkeypatch.setattr("quarl_bench.cli.commands.playing.check.run", Mock(side_effect=error))
    assert cli.main(["check", "policy"]) == 2
    assert "in an environment or policy of yours" in capsys.readouterr().err


def test_wrong_arguments_are_one_line(quarl, capsys):
    for arguments in (["select", "sac", "hopperv4", "--widths", "16..2000000000", "--published", "x"], ["nothing"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", ["quantize", "evaluate", "sweep", "weights", "deploy"])
def test_wrong_policies_end_in_one_line(command, folder, quarl):
    options = ("--output", "out") if command in ("quantize", "deploy") else ()
    for name, damage in (
        ("nowhere", lambda path: path),
        ("truncated", lambda path: (path / "policy.safetensors").write_bytes(b"\x08" * 30)),
        ("speechless", lambda path: (path / "manifest.json").write_text("{")),
    ):
        if name != "nowhere":
            save_policy(BALANCER, folder / name, ABOUT)
        damage(folder / name)
        code, out, err = quarl(command, name, *options)
        assert (code, out) == (2, "")
        assert err.startswith(f"quarl {command}: {name}")
        assert err.count("\n") == 1
    assert not (folder / "out").exists()


@pytest.mark.parametrize("command", ["quantize", "evaluate", "deploy", "weights"])
def test_unknown_schemes_end_in_one_line(command, folder, quarl):
    options = ("--output", "out") if command in ("quantize", "deploy") else ()
    code, _, err = quarl(command, "policy", "--scheme", "w1", *options)
    assert code == 2
    assert err.startswith(f"quarl {command}: scheme 'w1': w<bits> takes 2..32 bits")
    code, _, err = quarl(command, "policy", "--scheme", "octal", *options)
    assert code == 2
    assert "unknown scheme 'octal'; known are fp32" in err


@pytest.mark.parametrize("command", ["quantize", "sweep", "weights", "deploy"])
def test_an_output_that_cannot_be_written_ends_in_one_line(command, folder, quarl):
    if command == "deploy":
        pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install 'quarl_bench[litert]'")
    (folder / "file").write_text("")
    episodes = ("--episodes", 2) if command == "sweep" else ()
    code, out, err = quarl(command, "policy", "--output", "file/out", *episodes)
    assert (code, out) == (2, "")
    assert "cannot write" in err
    assert err.count("\n") == 1
    assert not (folder / "cache").exists()  # said before any work was done


@pytest.mark.parametrize("command", ["evaluate", "sweep"])
@pytest.mark.parametrize("episodes", ["0", "-3", "many", "1.5", "9" * 7, "9" * 5000])
def test_episodes_are_a_positive_number(command, episodes, folder, quarl):
    code, _, err = quarl(command, "policy", "--episodes", episodes)
    assert code == 2
    assert "--episodes" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweep", "--output", "new"),
        ("weights", "--output", "new"),
        ("check", "--export", "new", "--html", "new/x.html"),
    ],
)
def test_what_is_refused_leaves_no_folder(arguments, folder, quarl):
    command, *places = arguments
    code, _, err = quarl(command, "nowhere", *places)
    assert (code, err) == (2, f"quarl {command}: nowhere: {NOWHERE}\n")
    assert not (folder / "new").exists()


def test_a_reader_that_stops_early_is_no_error(folder):
    with Fork(*PROCESS, "weights", "policy", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


@pytest.mark.needs("actorq")
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("check", "--html"), "--html"),
        (("sweep", "--output"), "a figure"),
        (("select", "sac", "hopperv4", "--seeds", "0..1", "--output"), "a figure"),
        (("actorq", "dqn", "cartpole", "--output", "runs", "--curves"), "a figure"),
    ],
)
def test_what_draws_the_result_is_missed_before_the_work(words, what, folder, quarl, monkeypatch):
    for name in ("jinja2", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    command, *given = words
    policy = [] if "--seeds" in given or "dqn" in given else ["policy"]
    code, _, err = quarl(command, *policy, *given, "made")
    assert (code, err) == (2, f"quarl {command}: {what} needs an extra: pip install 'quarl_bench[report]'\n")
    assert {path.name for path in folder.iterdir()} == {"policy"}


def run_listing(*, closes=None, **named):
    """`quarl list backends` in a process of its own, begun with a closed stream."""
    command = [sys.executable, *PROCESS, "list", "backends"]
    code = f"import os; os.close({closes}); os.execv({command[0]!r}, {command!r})"
    words = command if closes is None else [sys.executable, "-c", code]
    return subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False, **named)


def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = run_listing(stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("quarl list: No space left on device; make room where output goes")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_is_closed_changes_no_exit_code(closed):
    done = run_listing(closes=closed, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("litert") == (closed == 2)


def test_a_name_that_the_terminal_cannot_show_is_no_error(folder):
    (folder / "policy").rename("\u043f")
    environment = os.environ | {"PYTHONIOENCODING": "ascii:strict", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, *PROCESS, "weights", "\u043f"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("\\u043f: weights")


def test_a_command_says_what_it_does_before_it_imports_what_takes_long():
    code = """
import io, sys
from quarl_bench.cli import main

class Terminal(io.StringIO):
    def isatty(self):
        return True

    def write(self, text):
        if text.strip():
            print("torch" in sys.modules, text.strip(), file=sys.__stdout__)

sys.stderr = Terminal()
main(sys.argv[1:])
"""
    for command, words in (
        ("evaluate", "evaluating nosuch in w8, 7 episodes"),
        ("check", "checking nosuch, 7 episodes"),
    ):
        arguments = [command, "nosuch", "--scheme", "w8", "--episodes", "7"]
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        first, *_, last = done.stdout.splitlines()
        assert first.startswith(f"False {words}")
        assert last.startswith(f"True quarl {command}: nosuch")


def test_ctrl_c_is_quiet_from_the_start():
    code = """
import sys
from quarl_bench import cli

def cut(named):
    raise KeyboardInterrupt

cli._build_parser = cut
sys.exit(cli.run_process())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_process_that_has_its_result_leaves_at_once_with_all_that_was_to_be_done():
    code = """
import atexit, sys
from quarl_bench import cli

class Kept:
    def __del__(self):
        print("taken apart")

def main():
    atexit.register(print, "at exit")
    print("result", end=" ")
    return 3

kept, cli.main = Kept(), main
sys.exit(cli.run_process())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "result at exit\n", "")
