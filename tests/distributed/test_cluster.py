"""A cluster of two nodes on this machine: where things run, what is sent, and what is left when something dies.

One start of Ray for all of it: the script below works, and the tests look at what it found.
"""

import json
import platform
import socket
from dataclasses import replace

import pytest

from quarl_bench.distributed import grid
from quarl_bench.distributed.nodes import Node, check_gpu, check_room, check_stores, find_silent
from quarl_bench.errors import EngineError
from quarl_bench.evaluation.profiles import choose_profile
from quarl_bench.version import __version__
from tests.support.cluster import CLUSTER
from tests.support.compare_rows import list_differences, read_rows
from tests.support.engine import run_alone
from tests.support.places import ROOT
from tests.support.sizes import exhaustive

SECONDS = 900  # for the script, beside other work

SCRIPT = """
work, root = Path(sys.argv[1]), Path(sys.argv[2])
found = {}
ADDRESS = ("--address", cluster.address)
RUN = ("actorq", "dqn", "cartpole", "--widths", "64", "--actors", "2", "--batch", "32", "--update-period", "20",
       "--publish-period", "20", "--samples-per-insert", "2", "--episodes", "2", "--test-episodes", "2",
       "--points", "2", "--save-every", "1", "--delta", "--steps", "60000", "--output", "run",
       "--actor-resource", "actor", *ADDRESS)
actors = add_actors("actors")

def read_steps():
    "Of the run's last checkpoint."
    try:
        return json.loads(next((work / "run").rglob("state.json")).read_text())["facts"]["steps"]
    except (StopIteration, OSError, ValueError):
        return 0

def send_once():
    "Bytes over the network for a broadcast that two actors of one node pull, in sizes of the message."
    import numpy as np
    import ray
    from quarl_bench.actorq.acting.task import open_task
    from quarl_bench.actorq.learning.agents import make_agent
    from quarl_bench.actorq.ports import RayPorts, ServerProcess
    from quarl_bench.actorq.settings import choose_settings

    chosen = choose_settings("dqn", "cartpole", widths=(1024, 1024, 1024), precision="fp32")
    policy, states = make_agent(chosen, open_task(chosen)).export(), np.zeros((8, 4), dtype=np.float32)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

    class Puller:
        def pull(self, server, known):
            ports = RayPorts(None, server)
            messages = []
            while not messages:
                messages = ports.pull(known)
            return len(messages[-1]), ray.get_runtime_context().get_node_id()

    def count():
        "Bytes that came over the loopback interface."
        (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
        return int(line.split()[1])

    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    server = ray.remote(ServerProcess).options(num_cpus=1, scheduling_strategy=here).remote(chosen)
    pullers = [ray.remote(Puller).options(num_cpus=1, resources={"actor": 1}).remote() for _ in range(2)]
    ratios = []
    for version in range(3):
        ray.get(server.publish.remote(policy, version, states))
        before = count()
        pulled = ray.get([puller.pull.remote(server, version - 1) for puller in pullers])
        ratios.append((count() - before) / pulled[0][0])
    nodes = {node for _, node in pulled}
    apart = ray.get_runtime_context().get_node_id() not in nodes
    ray.shutdown()
    return {"size": pulled[0][0], "ratios": ratios, "nodes": len(nodes), "apart": apart}

def kill_the_learner():
    "kill -9 of the command behind its first checkpoint."
    process = start_quarl(*RUN)
    begun = wait_for(lambda: read_steps() > 2000, 240)
    os.kill(process.pid, signal.SIGKILL)
    said = process.communicate()
    gone = wait_for(lambda: not find_processes("ray::LearnerProcess") and not find_processes("ray::ActorProcess"))
    return {"begun": begun, "steps": read_steps(), "gone": gone, "said": said}

def kill_the_node():
    "The same run goes on; its actors' node is killed and another one comes."
    held = read_steps()
    process = start_quarl(*RUN, "--resume")
    begun = wait_for(lambda: read_steps() > held + 2000, 240)
    before = time.monotonic()
    cluster.remove_node(actors, allow_graceful=False)
    add_actors("others")
    out, err = process.communicate()
    records = list((work / "run").rglob("record.json"))
    return {"begun": begun, "held": held, "code": process.returncode, "out": out, "err": err,
            "seconds": time.monotonic() - before, "record": json.loads(records[0].read_text()) if records else None}

REFUSE = '''
import contextlib, io, json, sys
from quarl_bench.cli import main
found = {}
for name, arguments in json.loads(sys.argv[1]).items():
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = main(arguments)
    found[name] = [code, err.getvalue().strip().splitlines()]
print(json.dumps(found))
'''

def refuse():
    "What the command says of clusters that will not do, all in one process."
    strange = work / "strange"
    package = strange / "older" / "quarl_bench"
    package.mkdir(parents=True)
    for path in (root / "quarl_bench").iterdir():
        (package / path.name).symlink_to(path)
    (package / "version.py").unlink()
    (package / "version.py").write_text('__version__ = "0.0.1"')
    for name, code in {
        "python": "import platform; platform.python_version = lambda: '3.9.1'",
        "bare": "import sys; sys.modules['gymnasium.envs.classic_control.cartpole'] = None",
    }.items():
        (strange / name).mkdir()
        (strange / name / "sitecustomize.py").write_text(code)
    for name in ("older", "python", "bare"):
        path = os.pathsep.join([str(strange / name), str(root)])
        cluster.add_node(node_name=name, num_cpus=1, resources={name: 1}, object_store_memory=STORE,
                         env_vars={"PYTHONPATH": path})
    small = ("actorq", "dqn", "cartpole", "--output", "refused", *ADDRESS)
    cases = {
        "cores": (*small, "--actors", "64"),
        "resource": (*small, "--actor-resource", "absent"),
        "places": (*small, "--actors", "3", "--actor-resource", "actor"),
        "store": (*small, "--widths", "4096,4096,4096", "--actor-resource", "actor"),
        **{name: (*small, "--actor-resource", name) for name in ("older", "python", "bare")},
    }
    command = [sys.executable, "-c", REFUSE, json.dumps(cases)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=work)
    return json.loads(done.stdout) | {"left": [str(path) for path in (work / "refused").rglob("*") if path.is_file()]}

def run_grid():
    "Committed policies measured by tasks on the cluster."
    (work / "grid.toml").write_text('[[task]]\\nalgo = "ppo"\\nenvironments = ["cartpole"]\\nseeds = [0, 1]\\n'
                                    'schemes = ["fp32", "int8"]\\nmemory = 1000000')
    code, out, err = quarl("grid", "grid.toml", *ADDRESS, "--baselines", root / "baselines", "--episodes", "2",
                           "--cache-dir", work / "grid", "--json")
    return {"code": code, "tasks": json.loads(out)["tasks"] if not code else err}

NIGHTLY = ("--quarl-profile=quick", "--quarl-episodes=2", "-k", "(ppo-cartpole-w8 or ppo-acrobot-int8) and not local",
           "benches/quarl/test_table2.py")

def run_nightly():
    "The same selection in two parts on the cluster, and by pytest here; a cache of its own each."
    told = [f"--quarl-cache-dir={work / 'parts'}"]
    code, out, err = quarl("nightly", *ADDRESS, "--parts", "2", "--output", work / "merged.json", "--", *NIGHTLY, *told,
                           folder=root)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *NIGHTLY,
               f"--quarl-cache-dir={work / 'whole'}", f"--quarl-json={work / 'whole.json'}"]
    here = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True)
    return {"code": code, "out": out, "err": err, "here": here.returncode, "said": here.stdout[-2000:]}

begin = time.monotonic()
for step in (send_once, run_grid, run_nightly, kill_the_learner, kill_the_node, refuse):
    found[step.__name__] = step()
    print(f"{step.__name__}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
(work / "found.json").write_text(json.dumps(found))
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the script found on its cluster."""
    folder = tmp_path_factory.mktemp("cluster")
    code, _, err = run_alone(CLUSTER + SCRIPT, folder / "cache", folder, ROOT, seconds=SECONDS)
    assert code == 0, err
    return json.loads((folder / "found.json").read_text()) | {"folder": folder}


@pytest.mark.needs("actorq")
@exhaustive
def test_a_broadcast_is_sent_once_to_a_node(found):
    sent = found["send_once"]
    assert sent["size"] > 8_000_000
    assert (sent["nodes"], sent["apart"]) == (1, True), "both actors on the other node"
    assert 0.98 < min(sent["ratios"]) < 1.2, "not once for each actor; the rest is other traffic"


@pytest.mark.needs("actorq")
@exhaustive
def test_a_killed_learner_ends_its_actors_and_goes_on_from_its_checkpoint(found):
    killed, record = found["kill_the_learner"], found["kill_the_node"]["record"]
    assert killed["begun"]
    assert killed["gone"], "nobody plays for a learner that is gone"
    assert record["resumed"]["steps"] == killed["steps"] > 2000, "what the checkpoint held is not played again"
    assert record["steps"] == record["resumed"]["steps"] + sum(life["steps"] for life in record["lives"])


@pytest.mark.needs("actorq")
@exhaustive
def test_a_killed_node_is_replaced_and_nothing_is_lost(found):
    seen = found["kill_the_node"]
    assert seen["begun"]
    assert seen["code"] == 0, seen["err"]
    record = seen["record"]
    assert record["steps"] >= 60_000
    assert record["deaths"] == 2
    assert [(life["actor"], life["life"]) for life in record["lives"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert record["lost"] == 0
    for life in record["lives"]:
        assert 0 < life["acknowledged"] <= life["transitions"]
    assert record["nodes"] == {"others": 2}, "the learner's node has a free core, and no resource for actors"
    gaps = [life["gap"] for life in record["lives"] if life["life"] == 1]
    assert max(gaps) < 30, "seconds from the last transitions of an actor to the first of its replacement"


@pytest.mark.needs("actorq")
@exhaustive
def test_a_grid_measures_on_the_cluster_what_it_measures_here(found, tmp_path):
    ran = found["run_grid"]
    assert ran["code"] == 0, ran["tasks"]
    plan = grid.GridPlan(tmp_path, ROOT / "baselines", choose_profile("nightly", 2))
    for task in ran["tasks"]:
        here = grid.run_task(grid.GridTask("ppo", "cartpole", tuple(task["task"]["seeds"]), ("fp32", "int8")), plan)
        assert [tuple(mean) for mean in task["means"]] == list(here)
    assert len(ran["tasks"]) == 2


@pytest.mark.needs("actorq", "claims")
@exhaustive
def test_a_nightly_in_parts_on_the_cluster_has_the_rows_of_a_local_run(found):
    ran = found["run_nightly"]
    assert (ran["code"], ran["here"]) == (0, 0), (ran["err"], ran["said"])
    assert not ran["err"], "without a terminal there is no bar"
    merged, whole = (found["folder"] / name for name in ("merged.json", "whole.json"))
    rows = read_rows(whole)
    assert len(rows) >= 2
    assert list_differences(rows, read_rows(merged)) == []
    assert "2 files" in ran["out"]


@pytest.mark.needs("actorq")
@exhaustive
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("cores", "cores, 66 processes need one each"),
        ("resource", "0 places with a core and one 'absent' left, 1 actors need one each"),
        ("places", "2 places with a core and one 'actor' left, 3 actors need one each"),
        ("store", "an object store of 120 MB is full with 384 MB of weights; start its Ray with a larger"),
        ("older", f"node older has quarl_bench 0.0.1, this one {__version__}; install the same on all nodes"),
        ("python", f"node python has Python 3.9.1, this one {platform.python_version()}; install the same"),
        ("bare", "node bare: "),
    ],
)
def test_a_cluster_that_will_not_do_is_one_line(case, reason, found):
    code, lines = found["refuse"][case]
    assert code == 2, lines
    assert len(lines) == 1, lines
    assert reason in lines[0]
    assert not found["refuse"]["left"]


def make_node(name="node", cores=4, store=100 << 20, **resources):
    return Node(name, name, cores, store, resources, ("127.0.0.1", 1))


def test_room_is_what_the_learner_leaves():
    learner, actors = make_node("learner", 2), make_node("actors", 4, actor=3)
    check_room([learner, actors], 2, 4)
    with pytest.raises(EngineError, match="2 nodes have 4 cores left, 5 actors need one each"):
        check_room([learner, actors], 2, 5)
    check_room([learner, actors], 2, 3, "actor")
    with pytest.raises(EngineError, match="3 places with a core and one 'actor' left, 4 actors"):
        check_room([learner, actors], 2, 4, "actor")
    with pytest.raises(EngineError, match="node learner has 2 cores, and 3 processes stay on it"):
        check_room([learner, actors], 3, 1)
    check_room([make_node("learner", 4, actor=4), actors], 2, 5, "actor")
    with pytest.raises(EngineError, match="5 places"):
        check_room([make_node("learner", 4, actor=4), actors], 2, 6, "actor")


def test_a_node_that_takes_no_connection_is_silent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = replace(make_node("heard"), address=server.getsockname()[:2])
        assert find_silent([heard, make_node("silent")]) == ["silent"]


def test_a_node_without_a_gpu_is_no_place_for_a_learner_that_needs_one():
    check_gpu(make_node("learner", GPU=1))
    with pytest.raises(EngineError, match="node learner: its Ray has no GPU; start it with --num-gpus=1"):
        check_gpu(make_node("learner"))


def test_the_smallest_store_decides():
    check_stores([make_node("one"), make_node("two")], 100 << 20)
    with pytest.raises(EngineError, match="node two: an object store of 50 MB is full with 100 MB of weights"):
        check_stores([make_node("one"), make_node("two", store=50 << 20)], 100 << 20)
