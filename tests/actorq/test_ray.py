"""ActorQ on a real local Ray: deaths, the learner's end, addresses that nobody answers; one run at a time."""

import contextlib
import json
import re
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from quarl_bench import cli
from quarl_bench.actorq.learning.checkpoint import read_state
from quarl_bench.actorq.settings import choose_settings
from quarl_bench.actorq.training import RunOptions, _Run, train
from quarl_bench.cli import main
from quarl_bench.distributed import engine
from quarl_bench.distributed.engine import check_address
from quarl_bench.errors import EngineError, StoreError
from quarl_bench.system.atomic import lock_run
from quarl_bench.system.extras import describe_absence
from tests.support.engine import run_alone
from tests.support.sizes import exhaustive

RESUME = """
from quarl_bench.actorq.settings import choose_settings
from quarl_bench.actorq.training import RunOptions, train

settings = choose_settings("dqn", "cartpole", steps=5_000, widths=(16,))
try:
    train(settings, Path(sys.argv[1]), RunOptions(resume=True))
except Exception as error:
    print(type(error).__name__, error)
"""

RUN = """
from quarl_bench.actorq.settings import choose_settings
from quarl_bench.actorq.training import RunOptions, train

folder, title, later = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
settings = choose_settings(
    "dqn", "cartpole", steps=int(sys.argv[4]), actors=2, widths=(16,), batch=16, chunk=32, samples_per_insert=1.0,
    publish_period=20, update_period=20,
)
begin = []
def ready():
    begin[:] = begin or [time.monotonic()]
    return bool(find_processes("ray::ActorProcess.play")) and time.monotonic() - begin[0] > later
kill_when(title, ready)
try:
    record = train(settings, folder, RunOptions(note=print, validation=2, test=2))
    print(record["steps"], record["deaths"], record["server"]["broadcasts"] > 1, record["pulls"] > 1)
except Exception as error:
    print(type(error).__name__, error)
left = [title for title in ("ray::ActorProcess", "ray::LearnerProcess") if find_processes(title)]
print("left:", left)
"""


@pytest.mark.needs("actorq")
@exhaustive
def test_a_killed_actor_is_counted_and_replaced(tmp_path):
    code, out, err = run_alone(RUN, tmp_path / "cache", tmp_path / "run", "ray::ActorProcess.play", 0, 5_000)
    assert code == 0, err
    assert "actor 0 died and is replaced (1 deaths so far)" in err or "actor 1 died and is replaced (1 deaths" in err
    result, left = out.strip().splitlines()  # nothing of Ray's
    steps, deaths, sent, pulled = result.split()
    assert int(steps) >= 5_000
    assert (deaths, sent, pulled, left) == ("1", "True", "True", "left: []")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["acting"]["wall"]["environment"] > 0
    assert not (tmp_path / "run" / "checkpoint").exists()


@pytest.mark.needs("actorq")
@exhaustive
@pytest.mark.parametrize(
    ("process", "told"), [("LearnerProcess", "the learner"), ("ServerProcess", "the parameter server")]
)
def test_without_one_of_its_processes_a_run_ends_in_one_line(tmp_path, process, told):
    code, out, err = run_alone(RUN, tmp_path / "cache", tmp_path / "run", f"ray::{process}", 0, 10_000_000)
    assert code == 0, err
    reason, left = out.strip().splitlines()[-2:]
    assert reason.startswith(f"EngineError {told} died")
    assert "\x1b" not in reason
    assert "--resume goes on" in reason
    assert left == "left: []"


@pytest.mark.needs("actorq")
@pytest.mark.parametrize(
    ("cause", "kind", "line"),
    [
        ("a server that died", EngineError, r"the parameter server died \(gone\); --resume goes on"),
        (StoreError("checkpoint cannot be read"), StoreError, "^checkpoint cannot be read$"),
        (ValueError("of its own"), EngineError, r"the learner failed \(ValueError: of its own\)"),
    ],
)
def test_what_a_learner_ended_with_is_one_line(cause, kind, line):
    from ray import exceptions

    cause = exceptions.RayActorError(error_msg="gone") if isinstance(cause, str) else cause
    error = exceptions.RayTaskError("learn", "a trace", cause).as_instanceof_cause()

    def get(_):
        raise error

    run = SimpleNamespace(_ray=SimpleNamespace(exceptions=exceptions, get=get))
    with pytest.raises(kind, match=line):
        _Run._collect_learned(run, "what it owes")


@pytest.mark.needs("actorq")
@exhaustive
def test_a_damaged_checkpoint_is_one_line(tmp_path):
    chosen = choose_settings("dqn", "cartpole", steps=5_000, widths=(16,))
    held = tmp_path / "run" / "checkpoint"
    held.mkdir(parents=True)
    state = {"network": chosen.network, "learning": chosen.learning, "facts": {}, "rows": 0}
    (held / "state.json").write_text(json.dumps(state))
    (held / "agent.pt").write_bytes(b"half")
    code, out, err = run_alone(RESUME, tmp_path / "cache", tmp_path / "run")
    assert code == 0, err
    assert re.search(r"^StoreError .*checkpoint cannot be read \(.*\); delete it to start over$", out, re.MULTILINE)


@pytest.mark.needs("actorq")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:6379", "nonsense:port", ":6379"])
def test_an_address_that_nobody_answers(address):
    begin = time.monotonic()
    with pytest.raises(EngineError, match=r"nobody answers|give HOST:PORT"):
        check_address(address)
    assert time.monotonic() - begin < 20


@pytest.mark.needs("actorq")
def test_an_address_where_something_else_listens(tmp_path, capsys, monkeypatch):
    """It accepts and says nothing: the worst case for a client that waits."""
    assert engine.CONNECT_SECONDS + engine.HEALTH_SECONDS < 18
    monkeypatch.setattr(engine, "HEALTH_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def accept_twice():
            with contextlib.suppress(OSError):  # closed meanwhile
                taken.extend(server.accept()[0] for _ in range(2))

        threading.Thread(target=accept_twice, daemon=True).start()
        begin = time.monotonic()
        code = main(["actorq", "dqn", "cartpole", "--output", str(tmp_path / "out"),
                     "--address", f"127.0.0.1:{server.getsockname()[1]}"])  # fmt: skip
    for connection in taken:
        connection.close()
    assert code == 2
    assert time.monotonic() - begin < 20
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "what listens at 127.0.0.1" in line


def test_the_store_has_to_hold_the_weights(tmp_path):
    wide = choose_settings("d4pg", "mountaincarcontinuous", widths=(4096, 4096, 4096))
    with pytest.raises(EngineError, match="object store of 100 MB is full with 384 MB"):
        train(wide, tmp_path / "run", RunOptions(store=100 << 20))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("dqn", "cartpole", "--precision", "int7"), "unknown precision 'int7'; known are fp32, fp16, int8"),
        (("ppo", "cartpole"), "ppo is on-policy"),
        (("dqn", "cartpole", "--widths", "64", "--steps", "10"), "train longer"),
        (("dqn", "nowhere"), "unknown environment"),
        (("dqn", "cartpole", "--device", "cuda"), "device 'cuda': torch"),
        (("dqn", "cartpole", "--plot", "/proc/x.png"), "cannot write folder /proc"),
        (("dqn", "cartpole", "--curves", "/proc/x.png"), "cannot write folder /proc"),
    ],
)
def test_the_command_refuses_in_one_line(arguments, reason, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["actorq", *arguments, "--output", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert reason in line


@pytest.mark.parametrize("command", ["actorq", "grid"])
def test_every_option_states_its_default(command):
    (commands,) = (action for action in cli._build_parser()._actions if isinstance(action.choices, dict))
    for action in commands.choices[command]._actions:
        if action.option_strings and action.dest != "help":
            assert "Default: " in action.help, action.option_strings


def test_zero_actors_are_a_usage_error(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["actorq", "dqn", "cartpole", "--actors", "0", "--output", str(tmp_path)])
    assert end.value.code == 2
    assert "'0' is not a whole number above 0" in capsys.readouterr().err


@pytest.mark.needs("actorq")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--resume", "--widths", "32"), "holds another network: its widths is [64], not [32]; resume with that"),
        (("--resume", "--widths", "64", "--batch", "32"), "holds another run: its batch is 64, not 32; resume with"),
        (("--widths", "64"), "holds an unfinished run; pass --resume"),
    ],
)
def test_a_checkpoint_of_other_settings_is_one_line(options, reason, tmp_path, capsys):
    chosen = choose_settings("dqn", "cartpole", widths=(64,))
    held = tmp_path / "dqn-cartpole-int8-seed0-a1-u100" / "checkpoint"
    held.mkdir(parents=True)
    state = {"network": chosen.network, "learning": chosen.learning, "facts": {}, "rows": 0}
    (held / "state.json").write_text(json.dumps(state))
    assert main(["actorq", "dqn", "cartpole", "--output", str(tmp_path), *options]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert reason in line
    longer = choose_settings("dqn", "cartpole", widths=(64,), steps=90_000, points=3)
    assert read_state(held.parent, longer)["rows"] == 0, "a run may be made longer"


@pytest.mark.needs("actorq")
def test_a_task_without_its_extra_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shimmy", None)
    monkeypatch.setitem(sys.modules, "dm_control", None)
    assert main(["actorq", "d4pg", "cheetahrundmc", "--output", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    environment = "environment 'cheetahrundmc'"
    assert line == f"quarl actorq: {describe_absence('dmc', environment)}"


def test_a_cluster_of_another_python_is_one_line(monkeypatch):
    """What Ray says of it is a paragraph."""

    def refuse(**_):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\nThis")

    ray = SimpleNamespace(init=refuse, shutdown=lambda: None, exceptions=SimpleNamespace(RaySystemError=OSError))
    monkeypatch.setattr(engine, "import_ray", lambda: ray)
    monkeypatch.setattr(engine, "check_address", lambda _: None)
    told = r"runs other versions \(The cluster was started with: Ray: 2.60.0 Python: 3.12.1 This\); install the same"
    with pytest.raises(EngineError, match=told), engine.open_engine("10.0.0.1:6379", 1):
        pass


def test_an_unfinished_run_is_not_overwritten(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "state.json").write_text('{"network": {}}')
    chosen = choose_settings("dqn", "cartpole")
    with pytest.raises(StoreError, match="unfinished run; pass --resume"):
        train(chosen, tmp_path)
    with (
        lock_run(tmp_path),
        pytest.raises(StoreError, match="in use by another process; wait, or choose another"),
    ):
        train(chosen, tmp_path)
    with pytest.raises(StoreError, match="holds another network"):
        train(chosen, tmp_path, RunOptions(resume=True))
