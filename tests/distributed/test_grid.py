"""Grids: what a file expands to, what a task leaves in the store, and a local Ray with a worker that is killed."""

import json
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

from quarl_bench.cli import main
from quarl_bench.cli.stopping import STOPPED
from quarl_bench.distributed import engine, grid
from quarl_bench.errors import EngineError, SpecError, StoreError
from quarl_bench.evaluation.profiles import PROFILES, choose_profile
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths, Train
from quarl_bench.papers.lqcc.runs.own import Runs, average
from quarl_bench.spec import Case
from quarl_bench.system import processor
from quarl_bench.training.multi_seed import train
from quarl_bench.training.sb3 import run as rl_run
from tests.support.engine import run_alone
from tests.support.places import ROOT
from tests.support.sizes import choose, exhaustive

BASELINES = ROOT / "baselines"
SPEC = """
[[task]]
algo = "ppo"
environments = ["cartpole", "acrobot"]
seeds = [0, 1]
schemes = ["fp32", "w8", "int8", "qat8"]
cores = 2
memory = 500_000_000

[[task]]
algo = "sac"
environments = ["hopperv4"]
seeds = [0, 1, 2]
schemes = ["fp32", "i8c3o8"]
multi_seed = true
"""


def write(folder, text):
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def test_a_file_expands_to_policies_and_to_lqcc_configurations(tmp_path):
    tasks = grid.read_tasks(write(tmp_path, SPEC))
    assert [task.name for task in tasks] == [
        "ppo-cartpole-seed0", "ppo-cartpole-seed1", "ppo-cartpole-qat8-seed0", "ppo-cartpole-qat8-seed1",
        "ppo-acrobot-seed0", "ppo-acrobot-seed1", "ppo-acrobot-qat8-seed0", "ppo-acrobot-qat8-seed1",
        "sac-hopperv4-fp32-seeds0..2", "sac-hopperv4-i8c3o8-seeds0..2",
    ]  # fmt: skip
    assert tasks[0].schemes == ("fp32", "w8", "int8")
    assert (tasks[0].cores, tasks[0].memory, tasks[-1].cores) == (2, 500_000_000, 1)


def test_an_id_of_gymnasium_names_the_same_tasks(tmp_path):
    tasks = grid.read_tasks(write(tmp_path, SPEC))
    ids = SPEC.replace('"cartpole", "acrobot"', '"CartPole-v1", "Acrobot-v1"').replace('"hopperv4"', '"Hopper-v4"')
    assert grid.read_tasks(write(tmp_path, ids)) == tasks
    twice = SPEC.replace('"cartpole", "acrobot"', '"cartpole", "CartPole-v1"')
    with pytest.raises(SpecError, match="ppo-cartpole-seed0 is listed twice"):
        grid.read_tasks(write(tmp_path, twice))


def test_tasks_that_differ_are_not_listed_twice(tmp_path):
    """In what their policies are measured under, or in seeds between the first and the last."""
    entries = (
        ("ppo", "cartpole", [0], ["fp32"], False), ("ppo", "cartpole", [0], ["int8"], False),
        ("sac", "hopperv4", [0, 5], ["fp32"], True), ("sac", "hopperv4", [0, 2, 5], ["fp32"], True),
    )  # fmt: skip
    text = "".join(
        f"[[task]]\nalgo = '{algo}'\nenvironments = ['{where}']\nseeds = {seeds}\nschemes = {schemes}\n"
        f"multi_seed = {str(many).lower()}\n"
        for algo, where, seeds, schemes, many in entries
    )
    names = [task.name for task in grid.read_tasks(write(tmp_path, text))]
    assert names[2:] == ["sac-hopperv4-fp32-seeds0,5", "sac-hopperv4-fp32-seeds0,2,5"]


def test_a_grid_has_the_episodes_of_a_nightly(tmp_path, monkeypatch):
    plans = []
    monkeypatch.setattr(grid, "run_grid", lambda _, plan, **__: plans.append(plan) or iter(()))
    before = signal.getsignal(signal.SIGTERM)
    for given in ([], ["--episodes", "7"], ["--games", "9"]):
        main(["grid", str(write(tmp_path, SPEC)), "--cache-dir", str(tmp_path), *given])
    signal.signal(signal.SIGTERM, before)
    nightly = PROFILES["nightly"]
    seven = replace(nightly, episodes=7, games=7, cheap=7)
    assert [plan.profile for plan in plans] == [nightly, seven, replace(nightly, games=9)]


def test_a_grid_of_many_seeds_has_its_size(tmp_path):
    """240 configurations of 10 seeds, a task each."""
    names = [f'"i{bits}c{core}o8h{width}"' for bits in range(3, 9) for core in range(3, 7) for width in (16, 64)]
    lines = f'[[task]]\nalgo = "sac"\nseeds = {list(range(10))}\nmulti_seed = true\nschemes = [{", ".join(names)}]\n'
    tasks = ("antv4", "halfcheetahv4", "hopperv4", "humanoidv4", "walker2dv4")
    found = grid.read_tasks(write(tmp_path, lines + f"environments = {list(tasks)}\n"))
    assert len(found) == 240
    assert sum(len(task.seeds) for task in found) == 2400


MANY = "[[task]]\nalgo = 'sac'\nenvironments = ['pendulum']\nmulti_seed = true\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x =", "readable TOML"),
        ("x = 1", r"holds no \[\[task\]\]"),
        ("task = [1]", "task 1: must be a table"),
        ("[[task]]\nalgo = 'ppo'\nseeds = [0]", "task 1: the key 'environments' is missing"),
        ("[[task]]\nalgo = 'ppo'\nenvironments = []\nseeds = [0]", "task 1, key 'environments': must be a list"),
        ("[[task]]\nalgo = 'ppo'\nenvironments = ['cartpole']\nseeds = [-1]", "key 'seeds': must be whole numbers"),
        (f"[[task]]\nalgo = 'ppo'\nenvironments = ['cartpole']\nseeds = [{2**32}]", "whole numbers from 0 on, at most"),
        (MANY + "seeds = [0, 0]", "task 1, key 'seeds': 0 is listed twice; remove one"),
        (MANY + "seeds = [0]\norigin = 'control'", "task 1, key 'origin': is a variant of a recipe"),
        (MANY + "seeds = [0]\ncores = true", "task 1, key 'cores': must be a int"),
        ("[[task]]\nalgo = 'ppo'\nenvironments = ['cartpole']\nseeds = [0]\ncores = 0", "key 'cores'"),
        ("[[task]]\nalgo = 'ppo'\nenvironments = ['cartpole']\nseeds = [0]\ncolour = 0", "unknown key 'colour'"),
        ("[[task]]\nalgo = 'ppo'\nenvironments = ['nowhere']\nseeds = [0]", "unknown environment"),
        ("[[task]]\nalgo = 'ppo'\nenvironments = ['cartpole']\nseeds = [0]\nschemes = ['int9']", "int9"),
        (
            "[[task]]\nalgo = 'ppo'\nenvironments = ['cartpole']\nseeds = [0]\nschemes = [1]",
            "a list of names in quotes",
        ),
        (
            "[[task]]\nalgo = 'ppo'\nenvironments = ['cartpole']\nseeds = [0]\nsteps = 9",
            "key 'steps': goes with `multi_seed = true`",
        ),
        (
            "[[task]]\nalgo = 'sac'\nenvironments = ['hopperv4']\nseeds = [0]\nlqcc = true",
            "'lqcc' is called 'multi_seed'",
        ),
        ("[[task]]\nalgo = 'dqn'\nenvironments = ['pendulum']\nseeds = [0]", "no dqn recipe"),
        ("[[task]]\nalgo = 'ppo'\nenvironments = ['cartpole']\nseeds = [0, 0]", "is listed twice"),
    ],
)
def test_an_ill_formed_file_is_one_line(text, reason, tmp_path):
    with pytest.raises(SpecError, match=reason):
        grid.read_tasks(write(tmp_path, text))


def test_the_command_refuses_before_it_starts_anything(tmp_path, capsys):
    assert main(["grid", str(tmp_path / "absent.toml")]) == 2
    assert "absent.toml" in capsys.readouterr().err


@pytest.mark.parametrize(("origin", "lines"), [("bf16", 2), ("", 1)])
def test_emulated_precision_is_told_once(origin, lines, tmp_path, monkeypatch, capsys):
    """Before anything is trained; here the grid stops at once."""
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(processor, "lacks_bf16", lambda: True)
    monkeypatch.setattr(grid, "run_grid", lambda *_, **__: iter(()))
    several = f"[[task]]\nalgo = 'dqn'\nenvironments = ['catcha']\nseeds = [0, 1]\norigin = '{origin}'\n"
    before = signal.getsignal(signal.SIGTERM)
    assert main(["grid", str(write(tmp_path, several))]) == STOPPED
    signal.signal(signal.SIGTERM, before)
    told = capsys.readouterr().err
    assert (told.count("\n"), "no bf16 instructions" in told) == (lines, lines == 2)


def test_a_signal_is_for_whoever_opened_the_engine(monkeypatch):
    """Ray takes SIGTERM when it starts, and would end the process with a traceback."""
    ray = SimpleNamespace(
        init=lambda **_: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        shutdown=lambda: None,
        exceptions=SimpleNamespace(RaySystemError=RuntimeError),
    )
    monkeypatch.setattr(engine, "import_ray", lambda: ray)
    before = signal.getsignal(signal.SIGTERM)
    with engine.open_engine(None, 1):
        assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(("address", "told"), [(None, "starting Ray ..."), ("127.0.0.1:1", "connecting to Ray at ")])
@pytest.mark.parametrize("progress", [True, False])
def test_it_says_that_ray_starts_and_takes_the_line_back(address, told, progress, monkeypatch, capsys):
    began = []

    def init(**_):
        began.append(capsys.readouterr().err)
        raise ConnectionError("no")

    ray = SimpleNamespace(
        init=init, shutdown=lambda: None, exceptions=SimpleNamespace(RaySystemError=RuntimeError)
    )  # fmt: skip
    monkeypatch.setattr(engine, "import_ray", lambda: ray)
    monkeypatch.setattr(engine, "check_address", lambda _: None)
    with pytest.raises(EngineError), engine.open_engine(address, 1, progress=progress):
        pass
    assert (told in began[0]) == progress
    assert capsys.readouterr().err.strip() == ""


def test_a_bench_finds_what_a_task_has_measured(tmp_path):
    """The same key as a case's: computed once, by whoever comes first."""
    if not (BASELINES / "policies" / "ppo-cartpole-seed0").is_dir():
        pytest.skip(f"no baseline ppo-cartpole-seed0 in {BASELINES}")
    plan = grid.GridPlan(tmp_path, BASELINES, choose_profile("nightly", 2))
    task = grid.GridTask("ppo", "cartpole", (0,), ("fp32", "w8", "int8"))
    means = grid.run_task(task, plan)
    assert [(name, scheme) for name, scheme, _ in means] == [
        ("ppo-cartpole-seed0", scheme) for scheme in ("fp32", "w8", "int8")
    ]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert len(written) == 3
    assert grid.run_task(task, plan) == means
    cells = Cells(
        Store(StorePaths(tmp_path, BASELINES), Train.NEVER), Protocol.of(1, plan.profile), tmp_path / "artefacts"
    )
    first = cells.find_policies(Case("ppo", "cartpole", "fp32"))
    first = replace(first, members=first.members[:1])
    for scheme, (_, _, mean) in zip(("fp32", "w8", "int8"), means, strict=True):
        assert cells.measure(cells.quantize(first, scheme) if scheme != "fp32" else first).mean == mean
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == written


def list_changes(folder):
    """When every file was written; older filelocks write a lock anew."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.*") if path.suffix != ".lock"}


def test_multi_seed_tasks_train_their_seeds_together_and_a_bench_finds_them(tmp_path, monkeypatch):
    for name, value in {"CURVE_EPISODES": 2, "CURVE_POINTS": 4, "EXPORT_STATES": 200}.items():
        monkeypatch.setattr(train, name, value)
    monkeypatch.setattr(rl_run, "SCORE_EPISODES", 3)
    plan = grid.GridPlan(tmp_path / "cache", tmp_path / "baselines", choose_profile("nightly", 2))
    schemes = choose(["i4c3o8h16"], ["fp32", "i4c3o8h16"])
    tasks = [grid.GridTask("sac", "pendulum", (0, 1), (name,), multi_seed=True, steps=5040) for name in schemes]
    means = [grid.run_task(task, plan) for task in tasks]
    parts = ["" if name == "fp32" else f"{name}-" for name in schemes]
    names = [f"sac-pendulum-{part}lqcc-seed{seed}" for part in parts for seed in (0, 1)]
    assert [name for row in means for name, _, _ in row] == names
    written = list_changes(tmp_path)
    assert [grid.run_task(task, plan) for task in tasks] == means
    assert list_changes(tmp_path) == written, "nothing is trained twice"
    for name in names:
        manifest = json.loads((plan.baselines / "policies" / name / "manifest.json").read_text())
        assert manifest["recipe"]["timesteps"] == 5040
    cells = Cells(
        Store(StorePaths(plan.cache, plan.baselines), Train.NEVER), Protocol.of(1, plan.profile), tmp_path / "artefacts"
    )
    for task, row in zip(tasks, means, strict=True):
        found = Runs(cells).find_arm(Case("sac", "pendulum", task.schemes[0], "lqcc"))
        assert list(average(cells, found)) == [mean for _, _, mean in row]
    with pytest.raises(StoreError, match="was trained by another recipe"):
        grid.run_task(replace(tasks[0], seeds=(0, 1, 2), steps=5041), plan)
    more = grid.run_task(replace(tasks[0], seeds=(0, 1, 2)), plan)
    assert more[:2] == means[0]
    assert {path: path.stat().st_mtime_ns for path in written} == written, "what is there is kept"


WORKERS = """
from quarl_bench.distributed import engine
from quarl_bench.distributed import grid
from quarl_bench.evaluation.profiles import Profile

folder = Path(sys.argv[1])

def work(task, plan):
    "Says who began, works a little, and leaves what a training leaves: a file."
    import os, time
    beginning = folder / f"{task.name}.began"
    again = beginning.exists()
    beginning.write_text(str(os.getpid()))
    if task.seeds[0] == 3:
        raise ValueError("a mistake of its own")
    while task.seeds[0] and not (folder / "ppo-cartpole-seed0.began").exists():
        time.sleep(0.05)
    time.sleep(0.1 if again or task.seeds[0] else 60)
    (folder / f"{task.name}.done").touch()
    return ((task.name, "fp32", float(again)),)

tasks = tuple(grid.GridTask("ppo", "cartpole", (seed,), ("fp32",), memory=1 << 20) for seed in (0, 1, 3))

def kill():
    while not (folder / "ppo-cartpole-seed1.done").exists():
        time.sleep(0.05)
    os.kill(int((folder / "ppo-cartpole-seed0.began").read_text()), signal.SIGKILL)

threading.Thread(target=kill, daemon=True).start()
plan = grid.GridPlan(folder, folder, Profile(1, 1, 1))
for done in grid.run_grid(tasks, plan, workers=2, note=lambda line: print(line, file=sys.stderr), work=work):
    print(done.task.name, done.means, done.retries, repr(done.failure), file=sys.__stdout__)
"""


@pytest.mark.needs("actorq")
@exhaustive
def test_a_killed_worker_is_tried_again_and_counted(tmp_path):
    code, out, err = run_alone(WORKERS, tmp_path / "cache", tmp_path)
    assert code == 0, err
    lines = sorted(out.strip().splitlines())
    assert lines[0] == "ppo-cartpole-seed0 (('ppo-cartpole-seed0', 'fp32', 1.0),) 1 ''"
    assert lines[1] == "ppo-cartpole-seed1 (('ppo-cartpole-seed1', 'fp32', 0.0),) 0 ''"
    assert lines[2] == "ppo-cartpole-seed3 () 0 'ValueError: a mistake of its own'"
    assert len(lines) == 3
    assert "ppo-cartpole-seed0: its worker died and it is tried again (1 of 3)" in err
