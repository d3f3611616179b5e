"""From what a user names, or holds in hand, to a policy and the environment it plays in.

A policy is a folder of this package, the name of a baseline, a .zip of stable-baselines3 or the folder of one, an agent
on the Hugging Face hub, a torch module, or a state dictionary with its architecture; live models and modules too.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import torch

from quarl_bench.backends.artefact import GOLDEN
from quarl_bench.environments.registry import (
    Environment,
    make_environment,
)
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.experiments.environment_source import AnyEnvironment, lookup_environment, resolve_environment
from quarl_bench.experiments.hub import load_agent
from quarl_bench.experiments.zoo_agents import checked_environment, read_agent
from quarl_bench.policies.images import is_image_space
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources import torch_module as foreign
from quarl_bench.policies.sources.archive import read_file
from quarl_bench.policies.sources.sb3_state_dict import LIMIT, read_safetensors, read_weights
from quarl_bench.policies.sources.sb3_zip import FROM_FOLDER, ZooAgent
from quarl_bench.policies.sources.vecnormalize import read_statistics
from quarl_bench.policies.storage.fp32 import INTEGERS, MANIFEST, StoredPolicy, hash_policy, load_policy
from quarl_bench.quantization.net import Layer
from quarl_bench.system.extras import needing
from quarl_bench.system.imports import SEPARATOR, import_attribute, instantiate

if TYPE_CHECKING:  # policies are read without it
    from stable_baselines3.common.base_class import BaseAlgorithm

BASELINES = Path("baselines/policies")  # of a checkout
HUB = "hub:"  # what the address of an agent on the Hugging Face hub begins with
RAW = "none"  # as statistics: the policy was trained on observations as the environment gives them
# Wrappers that change nothing a policy sees, or that our own games have too (stable-baselines3's for Atari).
HARMLESS = {"Monitor", "RecordEpisodeStatistics", "RecordVideo"}
HARMLESS |= {"NoopResetEnv", "MaxAndSkipEnv", "EpisodicLifeEnv", "FireResetEnv"}
HARMLESS |= {"WarpFrame", "ClipRewardEnv", "AtariWrapper"}
ALONE = "a network alone says nothing about its task"
AnySpace = gymnasium.Space[Any]
EnvironmentName = str | type[AnyEnvironment] | None


@dataclass(frozen=True)
class PolicySource:
    """A policy and its task as a user names them; what is None is read from the policy's own files.

    `environment` is a name, a Gymnasium id, `module:Class`, or the class itself, which has `max_episode_steps`;
    `normalization` is a file of a saved VecNormalize, or "none", and of a live policy also a Normalization; `arch` the
    architecture of a state dictionary.
    """

    policy: Path
    environment: EnvironmentName = None
    algo: str | None = None
    normalization: str | Normalization | None = None
    arch: str | None = None
    baselines: Path = BASELINES

    @property
    def foreign(self) -> bool:
        """Whether it is a network of another framework, which says nothing about its ends."""
        name = str(self.policy)
        return self.arch is not None or (SEPARATOR in name and not name.startswith(HUB) and not self.policy.exists())


def open_stored(named: PolicySource) -> StoredPolicy:
    """The policy in a folder, in a .zip of stable-baselines3, or on the hub; QuarlError for anything else."""
    path = named.policy
    if named.foreign:
        raise SpecError(f"{path}: a network alone; commands with --environment take it, as check and evaluate do")
    if str(path).startswith(HUB):
        return load_agent(str(path), named.algo, _choose_statistics(named.normalization))
    folder = find_baseline(path, named.baselines)
    if (folder / INTEGERS).exists():
        raise PolicyError(
            f"{path}: holds integers, which are not quantized again; pass the fp32 policy it came from, or hold both "
            f"together: quarl evaluate {path} --against FP32_POLICY"
        )
    if not folder.exists():
        raise PolicyError(f"{path}: neither such a path nor a baseline of that name in {named.baselines}; check it")
    if not folder.is_dir() and folder.suffix != ".zip":
        raise PolicyError(f"{path}: no folder and no .zip of a policy; of a state dictionary pass --arch as well")
    if (folder / GOLDEN).exists():
        raise PolicyError(f"{path}: an artefact, which is deployed already; pass the policy that it was made of")
    archive = folder if folder.suffix == ".zip" and not folder.is_dir() else _find_zip(folder)
    if archive is None:
        stored = load_policy(folder)
        check_alone(named.algo, named.normalization, named.arch, folder)
        return stored
    return read_agent(archive, named.algo, _choose_statistics(named.normalization)).store()


def open_task(named: PolicySource) -> tuple[StoredPolicy, Environment]:
    """The policy and the environment it plays in: the one named, else its own; they have to fit."""
    if named.foreign:
        return _open_foreign(named)
    stored = open_stored(named)
    return stored, _resolve_home(stored, named.environment, str(named.policy))


def from_live_model(policy: Any, named: PolicySource) -> tuple[StoredPolicy, Environment]:
    """The task of a live policy: a stable-baselines3 model, a torch module, or a policy of this package.

    `named.policy` is what messages call it. Raises QuarlError for what has no portable form.
    """
    where = str(named.policy)
    if isinstance(policy, torch.nn.Module):
        if named.environment is None:
            raise SpecError(f"{where}: {ALONE}; pass its environment")
        return _adopt_module(
            policy, resolve_environment(named.environment), _read_statistics(named.normalization), where
        )
    if _is_model(policy):
        stored = _extract(policy, named)
    elif isinstance(policy, PolicyNet):
        stored = StoredPolicy(policy, hash_policy(policy))
    elif isinstance(policy, StoredPolicy):
        stored = policy
    else:
        raise SpecError(f"{where} is no policy; pass a model of stable-baselines3, a torch module, a path or a name")
    return stored, _resolve_home(stored, named.environment, where)


def _is_model(policy: Any) -> bool:
    """Whether it is one of stable-baselines3's, which is imported then; it need not be installed."""
    module = sys.modules.get("stable_baselines3.common.base_class")
    return module is not None and isinstance(policy, module.BaseAlgorithm)


def _extract(model: "BaseAlgorithm", named: PolicySource) -> StoredPolicy:
    with needing("sb3", "a model of stable-baselines3"):
        from quarl_bench.policies.sources.sb3_model import FROM_ENVIRONMENT, extract

    given = named.normalization is not None
    net = extract(model, _read_statistics(named.normalization) if given else FROM_ENVIRONMENT)
    home = _name_home(model, str(named.policy)) if named.environment is None else None
    about = {"algo": type(model).__name__.lower(), "environment": home, "origin": "a live model"}
    return StoredPolicy(net, hash_policy(net), about)


def check_alone(algo: str | None, normalization: str | Normalization | None, arch: str | None, folder: Path) -> None:
    """SpecError for what a folder of this package says itself, and nobody else may."""
    given = {"algo": algo, "normalization": normalization, "arch": arch}
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise SpecError(f"{folder}: its manifest says {' and '.join(named)} itself; leave {' and '.join(named)} out")


def find_baseline(path: Path, baselines: Path = BASELINES) -> Path:
    """The folder at `path`, else the committed policy of that name: `ppo-cartpole-seed0`."""
    committed = baselines / path.name
    return committed if not path.exists() and len(path.parts) == 1 and committed.exists() else path


def _find_zip(folder: Path) -> Path | None:
    """The agent in a folder of rl-baselines3-zoo, `CartPole-v1_1/CartPole-v1.zip`; None for any other folder."""
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return None
    found = sorted(folder.glob("*.zip"))
    below = [] if found else sorted(path.parent.name for path in folder.glob("*/*.zip"))
    if below:
        raise PolicyError(f"{folder}: holds folders of agents, {', '.join(below)}; name one of them")
    own = folder / f"{folder.name.rpartition('_')[0]}.zip"
    if len(found) > 1 and own not in found:
        raise PolicyError(f"{folder}: holds {', '.join(path.name for path in found)}; name one of them")
    return own if own in found else next(iter(found), None)


def _open_foreign(named: PolicySource) -> tuple[StoredPolicy, Environment]:
    where = str(named.policy)
    if named.environment is None:
        raise SpecError(f"{where}: {ALONE}; pass --environment")
    if named.arch in foreign.NORMALIZED and named.normalization is None:
        raise SpecError(
            f"{where}: {named.arch} is trained on normalized observations, and the file has no statistics; pass "
            "--normalization FILE of a saved VecNormalize, or --normalization none if it was trained without"
        )
    environment, statistics = resolve_environment(named.environment), _read_statistics(named.normalization)
    if named.arch is None:
        return _adopt_module(_import_module(where), environment, statistics, where)
    data = read_file(named.policy, LIMIT, follow=True)
    weights = read_safetensors(data, where) if named.policy.suffix == ".safetensors" else read_weights(data, where)
    return _adopt(foreign.read_architecture(named.arch, weights, where), environment, statistics, where)


def _adopt_module(
    module: torch.nn.Module, environment: Environment, statistics: Normalization | None, where: str
) -> tuple[StoredPolicy, Environment]:
    observations, _ = _find_ends(environment)
    shape = foreign.read_shape(observations, where)
    layers = foreign.read_chain(module, shape, where, image=is_image_space(observations))
    return _adopt(layers, environment, statistics, where)


def _adopt(
    layers: Sequence[Layer], environment: Environment, statistics: Normalization | None, where: str
) -> tuple[StoredPolicy, Environment]:
    policy = foreign.adopt(layers, *_find_ends(environment), statistics, where)
    about = {"algo": None, "environment": environment.id, "origin": "a network of another framework"}
    return StoredPolicy(policy, hash_policy(policy), about), environment


def _find_ends(environment: Environment) -> tuple[AnySpace, AnySpace]:
    """Observations and actions of an environment, which is made and closed."""
    bare, _ = make_environment(environment)
    ends = bare.observation_space, bare.action_space
    bare.close()
    return ends


def _resolve_home(stored: StoredPolicy, named: EnvironmentName, where: str) -> Environment:
    """The environment named, else the policy's own, made once to see that the policy fits."""
    chosen = named or stored.metadata.get("environment")
    if chosen is None:
        raise SpecError(f"{where}: the policy names no environment; pass --environment")
    environment = resolve_environment(named) if named else lookup_environment(str(chosen))
    algo, time_feature = str(stored.metadata.get("algo", "")), bool(stored.metadata.get("time_feature", False))
    try:
        home = checked_environment(ZooAgent(stored.policy, algo, environment.id, time_feature, stored.sha256))
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from error
    return replace(home, custom=environment.custom)


def _name_home(model: "BaseAlgorithm", where: str) -> str | None:
    """The Gymnasium id of the environment that a model holds; None where it holds none, or an unregistered one.

    PolicyError where it was made otherwise than that id alone makes it: what would be played is another environment.
    """
    held = model.get_env()
    spec = None if held is None else held.get_attr("spec", 0)[0]
    if spec is None:
        return None
    plain = gymnasium.registry.get(spec.id)
    given = {} if plain is None else {"render_mode": spec.kwargs.get("render_mode")} | plain.kwargs
    changes = [f"{name}={value!r}" for name, value in spec.kwargs.items() if plain and given.get(name) != value]
    changes += [one.name for one in spec.additional_wrappers if one.name not in HARMLESS]
    if plain is not None and spec.max_episode_steps != plain.max_episode_steps:
        changes.append(f"max_episode_steps={spec.max_episode_steps}")
    if changes:
        raise PolicyError(
            f"{where}: its {spec.id} has {', '.join(changes)}, which the id alone does not give; pass its environment, "
            "as module:Class of yours"
        )
    return str(spec.id)


def _import_module(name: str) -> torch.nn.Module:
    """The torch module that `module:attribute` names, or that calling it makes."""
    found = import_attribute(name)
    if callable(found) and not isinstance(found, torch.nn.Module):
        found = instantiate(found)
    if not isinstance(found, torch.nn.Module):
        raise SpecError(f"{name!r} is no torch module, and makes none when called; name one")
    return found


def _read_statistics(normalization: str | Normalization | None) -> Normalization | None:
    """The statistics in a file of a saved VecNormalize; None for raw observations."""
    if isinstance(normalization, Normalization):
        return normalization
    return None if normalization in (None, RAW) else read_statistics(Path(str(normalization)))


def _choose_statistics(normalization: str | Normalization | None) -> Path | str | None:
    """The same for a .zip, which may find them in the folder beside it."""
    if isinstance(normalization, Normalization):
        raise SpecError("normalization: of a .zip it is the path of a saved VecNormalize, or none")
    return {None: FROM_FOLDER, RAW: None}.get(normalization, Path(normalization or ""))
