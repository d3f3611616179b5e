"""Two nodes of Ray on this machine: a learner's and an actors', each a raylet with an object store of its own.

`python -c PRELUDE + CLUSTER + script`, as `run_alone` runs it: the script has `cluster`, `add_actors` and `quarl`.
"""

CLUSTER = """
import json, subprocess
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
from ray.cluster_utils import Cluster

STORE = 120 << 20
cluster = Cluster(head_node_args={
    "num_cpus": 3, "object_store_memory": STORE, "node_name": "learner", "include_dashboard": False,
}, initialize_head=True)

def add_actors(name, **settings):
    "A node for two actors."
    settings = {"num_cpus": 2, "resources": {"actor": 2}, "object_store_memory": STORE} | settings
    return cluster.add_node(node_name=name, **settings)

def start_quarl(*arguments, folder=None):
    "The command in a process of its own."
    command = [sys.executable, "-m", "quarl_bench.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder or work)

def quarl(*arguments, folder=None):
    "(exit code, stdout, lines of stderr)"
    process = start_quarl(*arguments, folder=folder)
    out, err = process.communicate()
    return process.returncode, out, err.strip().splitlines()

def wait_for(condition, seconds=60):
    "True as soon as it holds."
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False
"""
