"""Long commands say how far they are and what is left, on a terminal alone."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from quarl_bench.cli import main
from quarl_bench.cli.commands.quantizing.repair import repair_with_progress
from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.calibration import calibrate
from quarl_bench.evaluation.episode_bars import EpisodeMeter, show_calibration, show_episodes
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.storage.fp32 import load_policy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import plan as plan_of_repair
from quarl_bench.system import bars
from tests.support.fragile import shorten_repairs
from tests.support.places import POLICIES, ROOT
from tests.support.rows import make_document
from tests.support.sizes import choose

CARTPOLE = "ppo-cartpole-seed0"
LEFT = re.compile(r"\[\d\d:\d\d<(\d\d:\d\d|\?)")  # tqdm's estimate of what is left
COMMANDS = {  # and what its bars count
    f"evaluate {CARTPOLE} --scheme int8 --episodes 4": ("calibrating", "fp32", "int8", "episode"),
    f"evaluate {CARTPOLE} --episodes 4 --scheme w8 --states 50": ("comparing", "state"),
    f"check {CARTPOLE} --episodes 4 --html OUT/check.html": ("calibrating", "scheme", "part", "drawing", "figure"),
    f"sweep {CARTPOLE} --bits 8 --episodes 4": ("width",),
    f"prove {CARTPOLE} --scheme int8 --episodes 2 --backends integer,c": ("calibrating", "backend"),
    f"deploy {CARTPOLE} --backend c --output OUT/c": ("calibrating", "state"),
    f"quantize {CARTPOLE} --scheme int8 --output OUT/int8": ("calibrating", "state"),
    f"fpga {CARTPOLE} --scheme int3 --estimate": ("calibrating", "of at most 4 steps"),
    f"play {CARTPOLE} --scheme fp32 --steps 20 --video OUT/play.gif": (
        "of at most 11 frames",
        "encoding .gif",
        "/11",
    ),
    "train ppo cartpole --steps 500 --output OUT/trained": ("step", "scoring", "episode"),
    "report OUT/results.json --output OUT/page.html --figures OUT": ("drawing", "figure", "file"),
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "policies").symlink_to(POLICIES)
    (tmp_path / "results.json").write_text(json.dumps(make_document().data))
    monkeypatch.chdir(tmp_path)


@pytest.mark.needs("cc", "report", "sb3", "video")
@pytest.mark.usefixtures("brief_costs")
@pytest.mark.parametrize("line", COMMANDS)
def test_a_long_command_shows_what_is_left(line, tmp_path, monkeypatch):
    arguments = line.replace("OUT", str(tmp_path)).split()
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(arguments) in {0, 1, 3}
    shown = terminal.getvalue()
    assert LEFT.search(shown), shown
    for words in COMMANDS[line]:
        assert words in shown, (words, shown)


@pytest.mark.needs("cc", "report")
@pytest.mark.parametrize(
    "line", [line for line in COMMANDS if line.split()[0] in {"evaluate", "deploy", "fpga", *choose([], ["report"])}]
)
def test_without_a_terminal_it_is_silent(line, tmp_path, capsys):
    assert main(line.replace("OUT", str(tmp_path)).split()) in {0, 1, 3}
    assert capsys.readouterr().err == ""


def test_watching_changes_no_number(monkeypatch):
    policy, cartpole = load_policy(POLICIES / CARTPOLE).policy, find_environment("cartpole")
    plain, states = roll_out(policy, cartpole, range(5)), calibrate(policy, cartpole)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_episodes(policy, cartpole, range(5), "fp32") as watched:
        assert watched is not policy
        shown = roll_out(watched, cartpole, range(5))
    assert np.array_equal(shown.returns, plain.returns)
    assert np.array_equal(shown.lengths, plain.lengths)
    assert np.array_equal(show_calibration(policy, cartpole), states)


def test_a_repair_shows_what_is_left_of_its_budget(monkeypatch):
    def repair_policy(_, plan, tell, *rest, **named):
        tell(SimpleNamespace(validation=499.5, candidate=SimpleNamespace(name="int8cle")))
        time.sleep(0.2)  # in which the clock moves
        return plan.seconds

    monkeypatch.setattr(plan_of_repair, "repair_policy", repair_policy)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(bars, "TICK", 0.01)
    assert repair_with_progress(None, plan_of_repair.Plan(Scheme.parse("int8"), seconds=60.0)) == 60.0
    assert "of at most 60 s" in terminal.getvalue()
    assert "int8cle returned 499.5" in terminal.getvalue()
    assert LEFT.search(terminal.getvalue())


def test_episodes_count_in_parts_while_they_run():
    meter = EpisodeMeter(limit=4)
    told = [meter.hear(running) for running in (3, 3, 2, 2, 3, 1)]  # one ends at its second step; then the next batch
    assert told == [0.0, 0.75, 2.0, 2.5, 3.0, 5.25]


def test_images_that_were_seen_before_end_no_game():
    meter = EpisodeMeter(limit=1000, window=3)
    told = [meter.hear(new) for new in (4, 2, 4, 1, 3, 3)]  # of four games; then one has ended
    assert [round(value) for value in told] == [0, 0, 0, 0, 0, 1]


def test_same_games_are_played_and_counted_once(monkeypatch):
    policy = load_policy(POLICIES / CARTPOLE).policy
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with show_episodes(policy, find_environment("pong"), range(100), "fp32"):
        pass
    assert "30/30" not in terminal.getvalue()
    assert re.search(r"\b0/(2[0-9]|30) ", terminal.getvalue())  # no-ops are 1 to 30


@pytest.mark.needs("cc")
def test_the_test_of_a_repair_is_a_bar_of_its_own(tmp_path, monkeypatch):
    shorten_repairs(monkeypatch)
    monkeypatch.setattr("quarl_bench.checking.subject.INSIDE", 0.0)
    monkeypatch.setattr("quarl_bench.experiments.member.INSIDE", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(f"repair {CARTPOLE} --episodes 6 --budget 60s".split()) in {0, 1, 3}
    shown = terminal.getvalue()
    assert "calibrating" in shown
    assert re.search(r"int8[a-z]*: .*6 \[", shown), shown  # its episodes
    assert "of at most 60 s" in shown


def test_a_bar_inside_another_waits_a_moment(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    policy, cartpole = load_policy(POLICIES / CARTPOLE).policy, find_environment("cartpole")
    with show_episodes(policy, cartpole, range(2), "fp32", delay=3600.0) as watched:
        roll_out(watched, cartpole, range(2))
    assert terminal.getvalue() == ""


def test_a_terminal_without_a_width_has_bars_too():
    main_end, other_end = pty.openpty()  # of no columns, as under `script`
    command = "import quarl_bench.system.bars as b\nfor n in b.collect(iter(range(3)), 3, 'turn', str): pass"
    subprocess.run([sys.executable, "-c", command], stderr=other_end, cwd=ROOT, check=True)
    os.close(other_end)
    shown = os.read(main_end, 4096).decode()
    os.close(main_end)
    assert LEFT.search(shown), shown
