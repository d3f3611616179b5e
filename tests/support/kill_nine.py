"""`kill -9` at random moments of trainings and of bench runs: nothing corrupt is ever visible, and the work goes on.

The whole experiment, with a report: `python -m tests.support.kill_nine --rounds 100`. The tests run a few rounds of it.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import textwrap
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.fp32 import load_policy, save_policy
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.spec import Measurement
from tests.support.forks import Fork, run_python
from tests.support.places import ROOT

TRAIN = """
from pathlib import Path
import torch
torch.set_num_threads(1)
from quarl_bench.training.recipes import Recipe
from quarl_bench.training.sb3.run import TrainingOptions
from quarl_bench.training.schemes import train_policy
from quarl_bench.spec import PolicySpec
recipe = Recipe("ppo", "cartpole", "a test", 4096, 1, {"n_steps": 128, "batch_size": 64, "n_epochs": 2})
print("start", flush=True)
options = TrainingOptions(resume=True)
train_policy(PolicySpec("ppo", "cartpole", 0), recipe, Path("policy"), Path("policy.checkpoint"), options)
print("end", flush=True)
"""

BENCH = """
import pytest

@pytest.mark.claim("table2-cell")
def test_cell(case, policy, quantized_policy, evaluate, verdict):
    verdict.check(evaluate(quantized_policy), reference=evaluate(policy))
"""


@dataclass
class Report:
    """What happened in the rounds of one experiment."""

    kills: int = 0
    survived: int = 0  # rounds in which the process ended before it was killed
    events: Counter[str] = field(default_factory=Counter)
    corrupt: list[str] = field(default_factory=list)


def kill_trainings(folder: Path, rounds: int, rng: random.Random) -> Report:
    """Start and kill the same training until it has been killed `rounds` times, then let it finish and check it."""
    report = Report()
    while report.kills < rounds:
        process = start(folder, "-c", TRAIN)
        assert process.stdout is not None
        process.stdout.readline()
        kill_after(process, rng.uniform(0.0, 3.0), report)
        inspect_training(folder, report)
        if (folder / "policy").exists():  # finished: begin the next one
            subprocess.run(["rm", "-r", str(folder / "policy")], check=True)
            report.events["finished trainings"] += 1
    run_python("-c", TRAIN, cwd=folder, check=True)
    about = load_policy(folder / "policy").metadata
    steps = [point["timesteps"] for point in about["curve"]]
    if steps != sorted(set(steps)) or steps[-1] < 4096:
        report.corrupt.append(f"learning curve after resuming: {steps}")
    if (folder / "policy.checkpoint").exists():
        report.corrupt.append("the checkpoint of a finished training is still there")
    return report


def kill_benches(folder: Path, rounds: int, rng: random.Random) -> Report:
    """Kill `pytest -n 2` with all its workers `rounds` times; what is left must give the rows of an undisturbed run."""
    report = Report()
    make_project(folder)
    expected = run_benches(folder, "undisturbed")
    cache = folder / "cache"
    while report.kills < rounds:
        command = ("-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--quarl-cache-dir=cache")
        kill_after(start(folder, *command, "-k", "ppo-cartpole"), rng.uniform(1.0, 9.0), report)
        for path in cache.rglob("*.json"):
            try:
                Measurement.from_dict(json.loads(path.read_text())["measurement"])
                report.events["measurements seen"] += 1
            except (ValueError, KeyError, TypeError) as error:
                report.corrupt.append(f"{path}: {error!r}")
        if rng.random() < 0.5:  # start over from nothing every other time
            subprocess.run(["rm", "-rf", str(cache)], check=True)
    if run_benches(folder, "cache") != expected:
        report.corrupt.append("rows after the kills differ from those of an undisturbed run")
    return report


def start(folder: Path, *arguments: str) -> Fork:
    """A process group of its own, so that workers die with it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return Fork(*arguments, cwd=folder, env=environment, stdout=subprocess.PIPE, leads=True)


def kill_after(process: Fork, seconds: float, report: Report) -> None:
    """SIGKILL to the whole group, unless it has ended by itself."""
    with process:
        time.sleep(seconds)
        if process.poll() is None:
            process.kill()
            report.kills += 1
        else:
            assert process.poll() == 0, "the process failed before it was killed"
            report.survived += 1


def inspect_training(folder: Path, report: Report) -> None:
    """Whatever is visible must be whole."""
    for name in ("policy", "policy.checkpoint/best"):
        if (folder / name).exists():
            try:
                load_policy(folder / name)
                report.events[f"{name} was whole"] += 1
            except Exception as error:  # noqa: BLE001  (any failure is a finding)
                report.corrupt.append(f"{name}: {error!r}")


def make_project(folder: Path) -> None:
    """A user's project with three CartPole controllers and one bench."""
    for seed in range(3):
        gains = np.array([0.02, 0.2, 1.0, 0.6], np.float32) * np.float32(1 + 0.001 * seed)
        layer = Linear(np.stack([-gains, gains]), np.zeros(2, np.float32))
        policy = PolicyNet(ObservationTransform((4,)), Net((4,), (layer,)), ActionHead(HeadKind.ARGMAX))
        save_policy(policy, folder / "baselines" / "policies" / f"ppo-cartpole-seed{seed}", {})
    (folder / "test_bench.py").write_text(textwrap.dedent(BENCH))
    (folder / "pytest.ini").touch()


def run_benches(folder: Path, cache: str) -> object:
    """The rows of a complete run, but for how long each test took."""
    command = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "ppo-cartpole")
    process = start(folder, *command, f"--quarl-cache-dir={cache}", "--quarl-json=rows.json")
    output = process.read()
    assert process.poll() == 0, output
    rows = json.loads((folder / "rows.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def main() -> int:
    """Run both experiments and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="Kills per experiment. Default: 100.")
    parser.add_argument("--seed", type=int, default=0, help="Of the random moments. Default: 0.")
    parser.add_argument("--folder", type=Path, required=True, help="An empty folder to work in.")
    options = parser.parse_args()
    rng, failed = random.Random(options.seed), False
    for experiment in (kill_trainings, kill_benches):
        folder = options.folder / experiment.__name__
        folder.mkdir(parents=True)
        report = experiment(folder, options.rounds, rng)
        failed |= bool(report.corrupt)
        print(f"{experiment.__name__}: {report.kills} kills, {report.survived} ended before; {dict(report.events)}")
        print("  nothing corrupt was visible" if not report.corrupt else "\n  ".join(["  CORRUPT:", *report.corrupt]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
