"""The machines of a Ray cluster: what each has, whether a run fits on them, and whether all run the same software."""

import platform
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quarl_bench.distributed.engine import unwrap_remote_error
from quarl_bench.errors import EngineError, QuarlError, first_line
from quarl_bench.version import __version__

ANSWER_SECONDS = 2.0  # for a node to take a connection
PROBE_SECONDS = 120.0  # for every machine to start a process and to answer
PACKAGE = "quarl_bench"
GPU = "GPU"  # Ray's name for them


@dataclass(frozen=True)
class Node:
    """One machine as Ray knows it; `store` are the bytes of its object store."""

    id: str
    name: str  # that it was started with, else its address
    cores: int
    store: int
    resources: dict[str, float]
    address: tuple[str, int]  # of its raylet

    def count_places(self, resource: str | None) -> int:
        """Processes of one core, and of one unit of `resource` where it is named, that fit on it."""
        return self.cores if resource is None else min(self.cores, int(self.resources.get(resource, 0)))


def list_nodes(ray: Any) -> tuple[Node, ...]:
    """The machines that live, the one that this process is connected to first."""
    here = ray.get_runtime_context().get_node_id()
    found = [_read_node(entry) for entry in ray.nodes() if entry["Alive"]]
    return tuple(sorted(found, key=lambda node: (node.id != here, node.name, node.id)))


def find_silent(nodes: Iterable[Node]) -> list[str]:
    """Ids of those that do not take a connection: dead, though Ray may need half a minute to say so."""
    silent = []
    for node in nodes:
        try:
            socket.create_connection(node.address, timeout=ANSWER_SECONDS).close()
        except OSError:
            silent.append(node.id)
    return silent


def avoid(ray: Any, silent: Sequence[str]) -> Any:
    """The scheduling of a process that may run on every node but these."""
    if not silent:
        return "SPREAD"
    strategies = ray.util.scheduling_strategies
    return strategies.NodeLabelSchedulingStrategy(hard={"ray.io/node-id": strategies.NotIn(*silent)})


def check_room(nodes: Sequence[Node], beside: int, elsewhere: int, resource: str | None = None) -> None:
    """EngineError unless `beside` processes fit on the first node, and `elsewhere` more on what is left of all.

    Ray would wait for ever for what no machine has. It waits, too, for what other runs use; that is no error.
    """
    first = nodes[0]
    if first.cores < beside:
        raise EngineError(
            f"node {first.name} has {first.cores} cores, and {beside} processes stay on it; start its Ray with "
            f"--num-cpus={beside} or more"
        )
    left = (replace(first, cores=first.cores - beside), *nodes[1:])
    places = sum(node.count_places(resource) for node in left)
    if places < elsewhere:
        what = "cores" if resource is None else f"places with a core and one {resource!r}"
        raise EngineError(
            f"{len(nodes)} nodes have {places} {what} left, {elsewhere} actors need one each; add nodes, or lower "
            "--actors"
        )


def check_gpu(node: Node) -> None:
    """EngineError unless Ray may give a GPU of `node` to a process: it would wait for one for ever."""
    if node.resources.get(GPU, 0) < 1:
        raise EngineError(f"node {node.name}: its Ray has no GPU; start it with --num-gpus=1, or leave --device out")


def check_stores(nodes: Iterable[Node], needed: int) -> None:
    """EngineError for a node whose object store is smaller than `needed` bytes."""
    for node in nodes:
        if node.store < needed:
            raise EngineError(
                f"node {node.name}: an object store of {node.store >> 20} MB is full with {needed >> 20} MB of "
                "weights; start its Ray with a larger --object-store-memory, or choose smaller --widths"
            )


def check_versions(ray: Any, nodes: Iterable[Node]) -> None:
    """EngineError, naming the node, where one has another Python than this one, or another version of this package."""
    ours = {"Python": platform.python_version(), PACKAGE: __version__}
    for node, found in _ask(ray, nodes, _make_probe()):
        for name, version in ours.items():
            if found[name] != version:
                raise EngineError(
                    f"node {node.name} has {name} {found[name]}, this one {version}; install the same on all nodes"
                )


def check_everywhere(ray: Any, nodes: Iterable[Node], probe: Callable[..., object], *arguments: Any) -> None:
    """EngineError, naming the node, where the function `probe` fails with these arguments."""
    _ask(ray, nodes, probe, *arguments)


def _ask(ray: Any, nodes: Iterable[Node], probe: Callable[..., Any], *arguments: Any) -> list[tuple[Node, Any]]:
    """What `probe` returns on every node; all work at once."""
    remote, strategy = ray.remote(probe), ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = []
    for node in nodes:
        there = strategy(node.id, soft=False)
        asked.append((node, remote.options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(*arguments)))
    answers = []
    for node, answer in asked:
        try:
            answers.append((node, ray.get(answer, timeout=PROBE_SECONDS)))
        except ray.exceptions.RayError as error:
            cause = unwrap_remote_error(error)
            kind = "" if isinstance(cause, QuarlError) else f"{type(cause).__name__}: "
            raise EngineError(f"node {node.name}: {kind}{first_line(cause)}") from error
    return answers


def _make_probe() -> Callable[[], dict[str, str]]:
    """A function that travels whole: a node that lacks this module, or the package, answers too."""

    def probe() -> dict[str, str]:
        import importlib
        import platform

        try:
            version = importlib.import_module("quarl_bench.version").__version__
        except ImportError:
            version = "none"
        return {"Python": platform.python_version(), "quarl_bench": version}

    return probe


def _read_node(entry: dict[str, Any]) -> Node:
    resources = entry["Resources"]
    return Node(
        entry["NodeID"],
        entry["NodeName"] or entry["NodeManagerAddress"],
        int(resources.get("CPU", 0)),
        int(resources.get("object_store_memory", 0)),
        dict(resources),
        (entry["NodeManagerAddress"], entry["NodeManagerPort"]),
    )
