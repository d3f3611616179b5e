"""Mutated files for every reader of policies, in one process: `python -m tests.policies.sources.fuzz 20000`.

Each file is read, or refused by a QuarlError of one line. Prints, by reader: files, how many were read and refused, the
longest time of the processor, so that other work beside does not count, and the memory of the process at its peak. Ends
with an error at the first file that does anything else, and leaves that file.
"""

import base64
import io
import json
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnx
import safetensors.torch
import torch
from onnx import TensorProto, helper, numpy_helper
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from quarl_bench.backends.onnx.qdq import write_float_model
from quarl_bench.errors import QuarlError
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.policies.sources.sb3.vecnormalize import read_statistics
from quarl_bench.policies.sources.sb3.zip import read_zip
from quarl_bench.policies.storage.fp32 import load_policy, save_policy
from quarl_bench.quantization.recurrent.cells import CellKind
from tests.support.agents import read_members, saved_members, write_members
from tests.support.archives import unpack_sbx
from tests.support.strategies import make_recurrent

DATA = Path(__file__).parent / "libraries" / "data"
SECONDS, BYTES = 10.0, 2**30  # what one file may take
Change = Callable[[bytes], bytes]


class Task(gymnasium.Env[Any, Any]):
    """Three numbers in, two out."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gymnasium.spaces.Box(-100, 100, (2,))
    max_episode_steps = 5


def make_network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def write_onnx() -> bytes:
    network = make_network()
    tensors = {f"t{name}": value.detach().numpy() for name, value in network.state_dict().items()}
    nodes = [
        helper.make_node("Gemm", ["x", "t0.weight", "t0.bias"], ["a"], transB=1),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "t2.weight", "t2.bias"], ["y"], transB=1),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 3), ("y", 2))]
    initial = [numpy_helper.from_array(value, name) for name, value in tensors.items()]
    graph = helper.make_graph(nodes, "policy", ends[:1], ends[1:], initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    data: bytes = model.SerializeToString()
    onnx.checker.check_model(model)
    return data


def write_transposed() -> bytes:
    """A state dictionary whose matrices lie in the order of their columns."""
    state = {f"fc{name}": value for name, value in make_network().state_dict().items()}
    stream = io.BytesIO()
    torch.save(
        {name: value.t().contiguous().t() if value.ndim == 2 else value for name, value in state.items()}, stream
    )
    return stream.getvalue()


def write_composed() -> bytes:
    return write_float_model(make_recurrent(CellKind.GRU, inputs=3).net)


def write_export() -> bytes:
    stream = io.BytesIO()
    torch.export.save(torch.export.export(make_network(), (torch.zeros(1, 3),)), stream)
    return stream.getvalue()


def write_script() -> bytes:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.trace(make_network(), torch.zeros(1, 3)), stream)
    return stream.getvalue()


def open_as(arch: str | None = None, **options: Any) -> Callable[[Path], Any]:
    return lambda path: open_task(PolicySource(path, Task, arch=arch, **options))


def open_folder(path: Path) -> Any:
    folder = path.parent / "folder"
    folder.mkdir(exist_ok=True)
    for name, content in read_members(path.read_bytes()).items():
        (folder / name).write_bytes(content)
    return load_policy(folder)


def write_folder(place: Path) -> bytes:
    policy = read_zip(unpack_sbx("ppo", place), normalization=None).policy
    save_policy(policy, place / "made", {})
    return write_members({path.name: path.read_bytes() for path in (place / "made").iterdir()})


def write_statistics(place: Path) -> bytes:
    world = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    world.reset()
    world.save(str(place / "statistics.pkl"))
    return (place / "statistics.pkl").read_bytes()


def read_raw(path: Path) -> Any:
    return read_zip(path, normalization=None)


class Mutator:
    """Bytes replaced, inserted, removed, repeated or cut, at random places; of a zip, in one of its members."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def splice(self, data: bytes) -> bytes:
        changed = bytearray(data)
        kinds = 1 if self.random.random() < 0.5 else 5
        for _ in range(self.random.integers(1, 6)):
            start = int(self.random.integers(0, max(len(changed), 1)))
            patch = self.random.choice(
                [0, 1, 127, 128, 255, int(self.random.integers(256))], self.random.integers(1, 9)
            )
            kind = self.random.integers(kinds)
            if kind <= 1:
                changed[start : start + len(patch)] = bytes(patch.tolist())
            elif kind == 2:
                changed[start:start] = bytes(patch.tolist())
            elif kind == 3:
                del changed[start : start + len(patch)]
            else:
                changed[start:start] = changed[start : start + 64]
        return bytes(changed[: int(self.random.integers(len(changed) + 1))] if self.random.random() < 0.05 else changed)

    def member(self, data: bytes) -> bytes:
        return self.splice(data) if self.random.random() < 0.2 else self.part(data)

    def part(self, data: bytes) -> bytes:
        """Of a zip, in one of its members, whose checksum is right again."""
        members = read_members(data)
        names = sorted(members, key=lambda name: not name.endswith(("data", "data.pkl", "policy.pth", ".json", ".py")))
        name = names[int(self.random.integers(min(len(names), 1 + int(self.random.integers(len(names))))))]
        content = members[name]
        inner = content[:4] == b"PK\x03\x04"
        return write_members(members | {name: self.member(content) if inner else self.splice(content)})

    def policy(self, data: bytes) -> bytes:
        """Of a zip of SBX, in its pickled policy."""
        if self.random.random() < 0.2:
            return self.member(data)
        members = read_members(data)
        settings = json.loads(members["data"])
        pickled = base64.b64decode(settings["policy"][":serialized:"])
        settings["policy"][":serialized:"] = base64.b64encode(self.splice(pickled)).decode()
        return write_members(members | {"data": json.dumps(settings).encode()})


def list_readers(place: Path, mutator: Mutator) -> dict[str, tuple[bytes, str, Change, Callable[[Path], Any]]]:
    """Of each reader: a whole file, its name, how it is changed, and what reads it."""
    zips, elu = mutator.member, open_as("elu")
    tensors = {f"fc{name}": value for name, value in make_network().state_dict().items()}
    cleanrl = open_as("cleanrl-ppo-continuous", normalization="none")
    return {
        "sb3": (write_members(dict(saved_members())), "agent.zip", zips, read_raw),
        **{
            f"sbx {name}": (unpack_sbx(name, place).read_bytes(), "agent.zip", mutator.policy, read_raw)
            for name in ("ppo", "crossq")
        },
        "rsl_rl 5": ((DATA / "rsl_rl_5/model.pt").read_bytes(), "model.pt", zips, elu),
        "rsl_rl 2": ((DATA / "rsl_rl_2/model.pt").read_bytes(), "model.pt", zips, elu),
        "rsl_rl 5 lstm": ((DATA / "rsl_rl_5_lstm/model.pt").read_bytes(), "model.pt", zips, elu),
        "rsl_rl 2 gru": ((DATA / "rsl_rl_2_gru/model.pt").read_bytes(), "model.pt", zips, elu),
        "rl_games lstm": ((DATA / "rl_games_lstm/model.pth").read_bytes(), "model.pth", zips, elu),
        "rl_games gru": ((DATA / "rl_games_gru/model.pth").read_bytes(), "model.pth", zips, elu),
        "transposed": (write_transposed(), "agent.pth", zips, open_as("fc0,tanh,fc2")),
        "onnx lstm": ((DATA / "rsl_rl_5_lstm/policy.onnx").read_bytes(), "policy.onnx", mutator.splice, open_as()),
        "onnx composed": (write_composed(), "policy.onnx", mutator.splice, open_as()),
        "rl_games": ((DATA / "rl_games/model.pth").read_bytes(), "model.pth", zips, elu),
        "skrl": ((DATA / "skrl/agent.pt").read_bytes(), "agent.pt", zips, elu),
        "cleanrl": ((DATA / "cleanrl/agent.pth").read_bytes(), "agent.pth", zips, cleanrl),
        "safetensors": (
            safetensors.torch.save(tensors), "agent.safetensors", mutator.splice, open_as("fc0,tanh,fc2"),
        ),
        "onnx": (write_onnx(), "policy.onnx", mutator.splice, open_as()),
        "export": (write_export(), "policy.pt2", zips, open_as()),
        "script": (write_script(), "policy.pt", zips, open_as()),
        "vecnormalize": (write_statistics(place), "statistics.pkl", mutator.splice, read_statistics),
        "folder": (write_folder(place), "folder.bin", mutator.part, open_folder),
    }  # fmt: skip


def measure_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(count: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))
    readers = list_readers(place, Mutator(seed))
    for name, (whole, file, change, read) in readers.items():
        path, before, done, longest = place / file, measure_memory(), 0, 0.0
        path.write_bytes(whole)
        read(path)
        for _ in range(-(-count // len(readers))):
            path.write_bytes(change(whole))
            start = time.process_time()
            try:
                read(path)
                done += 1
            except QuarlError as error:
                if len(str(error).splitlines()) != 1:
                    raise
            longest = max(longest, time.process_time() - start)
            if longest > SECONDS or measure_memory() - before > BYTES:
                raise SystemExit(f"{path}: {longest:.1f} s, {(measure_memory() - before) / 2**20:.0f} MB")
        refused = -(-count // len(readers)) - done
        more = (measure_memory() - before) / 2**20
        print(f"{name:14} read {done:6} refused {refused:6} longest {longest:.2f} s, {more:.0f} MB more", flush=True)  # noqa: T201


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
