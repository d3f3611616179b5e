"""Agents as stable-baselines3 saves them: tiny ones made here, and the folder of real ones, where there is one."""

import functools
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stable_baselines3 as sb3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from quarl_bench.environments.registry import Environment, identify_environment
from quarl_bench.experiments.zoo_agents import check_fit
from quarl_bench.policies.sources.sb3.zip import ZooAgent
from tests.support.places import SHARED

ZOO = Path(os.environ.get("QUARL_ZOO") or SHARED / "zoo")
NO_ZOO = f"no zoo agents in {ZOO}; name their folder in QUARL_ZOO"
ALGOS = ("a2c", "ppo", "dqn", "ddpg", "td3", "sac")
Members = dict[str, bytes]


def find_home(agent: ZooAgent) -> Environment:
    """The living environment of the one that an agent was trained on; PolicyError where it does not fit."""
    environment = identify_environment(agent.environment, time_feature=agent.time_feature)
    check_fit(agent.policy, environment)
    return environment


def list_zoo() -> list[Path]:
    """The real agents' zips; none where the folder is not there."""
    return sorted(ZOO.glob("*/*/*.zip"))


def make_agent(algo: str, environment: Any = None, **options: Any) -> BaseAlgorithm:
    """An untrained model whose weights are far from their start."""
    if algo in ("dqn", "ddpg", "td3", "sac"):
        options.setdefault("buffer_size", 10)
    world = environment or ("CartPole-v1" if algo == "dqn" else "Pendulum-v1")
    model = getattr(sb3, algo.upper())("MlpPolicy", world, seed=0, device="cpu", **options)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@functools.cache
def saved_members() -> tuple[tuple[str, bytes], ...]:
    """What a saved PPO on CartPole consists of."""
    stream = io.BytesIO()
    make_agent("ppo", "CartPole-v1", policy_kwargs={"net_arch": [8]}).save(stream)
    return tuple(read_members(stream.getvalue()).items())


def read_members(data: bytes) -> Members:
    """Contents by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(members: Members, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of these contents."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def forge(change: Callable[[Members], object] | None = None, **settings: Any) -> bytes:
    """A saved agent after `change`, and with these settings in its JSON (dictionaries are merged)."""
    members = dict(saved_members())
    data = json.loads(members["data"])
    for key, value in settings.items():
        data[key] = data[key] | value if isinstance(value, dict) and isinstance(data.get(key), dict) else value
    members["data"] = json.dumps(data).encode()
    if change is not None:
        change(members)
    return write_members(members)


def replace_pickle(weights: bytes, pickled: bytes) -> bytes:
    """A policy.pth whose pickle is another one."""
    inner = read_members(weights)
    name = next(name for name in inner if name.endswith("/data.pkl"))
    return write_members(inner | {name: pickled})


def save_state(state: Any) -> bytes:
    """A policy.pth of any content."""
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


def load_state(weights: bytes) -> dict[str, torch.Tensor]:
    """Inverse of `save_state`."""
    state: dict[str, torch.Tensor] = torch.load(io.BytesIO(weights), weights_only=True)
    return state
