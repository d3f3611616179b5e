"""The sources of policies that this package reads: a reader each, in the order in which they are asked."""

import difflib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import torch

from quarl_bench.backends.files import GOLDEN
from quarl_bench.environments.images import is_image_space
from quarl_bench.environments.masking import find_masks
from quarl_bench.environments.registry import Environment, make_environment
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.experiments.environment_source import HARMLESS, list_changes
from quarl_bench.experiments.hub import load_agent
from quarl_bench.experiments.policy_source import PolicySource, Reader, check_alone, find_baseline
from quarl_bench.experiments.zoo_agents import read_agent
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources import torch_module as foreign
from quarl_bench.policies.sources.archive import read_file
from quarl_bench.policies.sources.checkpoints import flatten_checkpoint, read_checkpoint
from quarl_bench.policies.sources.onnx.ends import MEANS, adopt_chain
from quarl_bench.policies.sources.onnx.file import read_graph
from quarl_bench.policies.sources.onnx.graph import read_chain
from quarl_bench.policies.sources.onnx.nodes import LIMIT as FILE_LIMIT
from quarl_bench.policies.sources.onnx.nodes import Graph
from quarl_bench.policies.sources.sb3.state_dict import LIMIT, read_safetensors, read_weights
from quarl_bench.policies.sources.sb3.vecnormalize import FROM_FOLDER, read_statistics
from quarl_bench.policies.sources.torch_export import read_program
from quarl_bench.policies.sources.torchscript.file import is_script, read_script
from quarl_bench.policies.sources.torchscript.program import follow_script
from quarl_bench.policies.storage.fp32 import INTEGERS, MANIFEST, StoredPolicy, hash_policy, load_policy
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Layer
from quarl_bench.quantization.recurrent.cells import Cell
from quarl_bench.system.extras import needing
from quarl_bench.system.imports import SEPARATOR, import_attribute, instantiate

if TYPE_CHECKING:  # policies are read without it
    from stable_baselines3.common.base_class import BaseAlgorithm

HUB_ADDRESS = "hub:"  # what the address of an agent on the Hugging Face hub begins with
ATTRIBUTE = re.compile(r"[\w.]+:[\w.]+")  # of a module
SCRIPTS = (".pt", ".jit")  # how files of TorchScript are called
RAW = "none"  # as statistics: the policy was trained on observations as the environment gives them
ALONE = "a network alone says nothing about its task"
AnySpace = gymnasium.Space[Any]
Opened = tuple[StoredPolicy, Environment | None]


def _is_module(named: PolicySource) -> bool:
    if named.live is not None:
        return isinstance(named.live, torch.nn.Module)
    named_so = ATTRIBUTE.fullmatch(str(named.policy)) is not None
    return named_so and not (_is_address(named) or named.arch or named.policy.exists())


def _open_module(named: PolicySource) -> Opened:
    where, live = str(named.policy), named.live
    if named.environment is None:
        raise SpecError(f"{where}: {ALONE}; pass {'--environment' if live is None else 'its environment'}")
    environment, statistics = named.resolve_environment(), _read_statistics(named.normalization)
    return _adopt_module(_import_module(where) if live is None else live, environment, statistics, where)


def _is_weights(named: PolicySource) -> bool:
    """Whether it is a state dictionary, of which one says the layers; folders and .zip files say theirs."""
    return named.live is None and bool(named.arch) and not _is_folder(named) and _find_archive(named) is None


def _open_weights(named: PolicySource) -> Opened:
    where = str(named.policy)
    if named.environment is None:
        raise SpecError(f"{where}: {ALONE}; pass --environment (in Python: env=)")
    if named.arch in foreign.NORMALIZED and named.normalization is None:
        raise SpecError(
            f"{where}: {named.arch} is trained on normalized observations, and the file has no statistics; pass "
            "--normalization FILE of a saved VecNormalize, or --normalization none if it was trained without"
        )
    environment, statistics = named.resolve_environment(), _read_statistics(named.normalization)
    data = read_file(named.policy, LIMIT, follow=True)
    if named.policy.suffix == ".safetensors":
        weights = read_safetensors(data, where)
    else:
        weights = read_weights(data, where, flatten_checkpoint)
    if named.arch in list(Activation):
        actor = read_checkpoint(weights, Activation(named.arch), where)
        if actor.normalization is not None and statistics is not None:
            raise SpecError(f"{where}: holds statistics of its own; leave --normalization out")
        statistics = actor.normalization if named.normalization is None else statistics
        return _adopt(actor.layers, environment, statistics, where, actor.cells)
    return _adopt(foreign.read_architecture(str(named.arch), weights, where), environment, statistics, where)


def _is_graph(suffix: str) -> Callable[[PolicySource], bool]:
    return lambda named: named.live is None and named.policy.suffix == suffix


def _open_graph(named: PolicySource, read: Callable[[bytes, str, str | None], Graph]) -> Opened:
    where = str(named.policy)
    if named.environment is None:
        raise SpecError(f"{where}: {ALONE}; pass --environment (in Python: env=)")
    output = None if named.arch == MEANS else named.arch
    chain = read_chain(read(read_file(named.policy, FILE_LIMIT, follow=True), where, output))
    environment, statistics = named.resolve_environment(), _read_statistics(named.normalization)
    observations, actions, masked = _find_ends(environment)
    policy = adopt_chain(chain, observations, actions, statistics, where, means=named.arch == MEANS, masked=masked)
    about = {"algo": None, "environment": environment.id, "origin": "an exported graph"}
    return StoredPolicy(policy, hash_policy(policy), about), environment


def _is_script(named: PolicySource) -> bool:
    if named.live is not None or named.policy.suffix not in SCRIPTS or named.arch not in (None, MEANS):
        return False
    return named.policy.is_file() and is_script(read_file(named.policy, FILE_LIMIT, follow=True))


def _open_script(named: PolicySource) -> Opened:
    where = str(named.policy)
    if named.environment is None:
        raise SpecError(f"{where}: {ALONE}; pass --environment (in Python: env=)")
    script = read_script(read_file(named.policy, FILE_LIMIT, follow=True), where)
    environment, statistics = named.resolve_environment(), _read_statistics(named.normalization)
    observations, actions, masked = _find_ends(environment)
    chain = read_chain(follow_script(script, foreign.read_shape(observations, where)))
    policy = adopt_chain(chain, observations, actions, statistics, where, means=named.arch == MEANS, masked=masked)
    about = {"algo": None, "environment": environment.id, "origin": "a program of TorchScript"}
    return StoredPolicy(policy, hash_policy(policy), about), environment


def _adopt_module(
    module: torch.nn.Module, environment: Environment, statistics: Normalization | None, where: str
) -> tuple[StoredPolicy, Environment]:
    observations, *_ = _find_ends(environment)
    shape = foreign.read_shape(observations, where)
    layers = foreign.read_chain(module, shape, where, image=is_image_space(observations))
    return _adopt(layers, environment, statistics, where)


def _adopt(
    layers: Sequence[Layer],
    environment: Environment,
    statistics: Normalization | None,
    where: str,
    cells: tuple[Cell, ...] = (),
) -> tuple[StoredPolicy, Environment]:
    observations, actions, masked = _find_ends(environment)
    policy = foreign.adopt(layers, observations, actions, statistics, where, cells=cells, masked=masked)
    about = {"algo": None, "environment": environment.id, "origin": "a network of another framework"}
    return StoredPolicy(policy, hash_policy(policy), about), environment


def _find_ends(environment: Environment) -> tuple[AnySpace, AnySpace, bool]:
    """Observations and actions of an environment, which is made and closed, and whether it is one of masked actions."""
    bare, _ = make_environment(environment)
    ends = bare.observation_space, bare.action_space, find_masks(bare) is not None
    bare.close()
    return ends


def _is_address(named: PolicySource) -> bool:
    return named.live is None and str(named.policy).startswith(HUB_ADDRESS)


def _open_address(named: PolicySource) -> Opened:
    return load_agent(str(named.policy), named.algo, _choose_statistics(named.normalization)), None


def _is_model(named: PolicySource) -> bool:
    """Whether it is one of stable-baselines3's, which is imported then; it need not be installed."""
    module = sys.modules.get("stable_baselines3.common.base_class")
    return module is not None and isinstance(named.live, module.BaseAlgorithm)


def _open_model(named: PolicySource) -> Opened:
    with needing("sb3", "a model of stable-baselines3"):
        from quarl_bench.policies.sources.sb3.model import FROM_ENVIRONMENT, extract, name_algorithm

    model, given = named.live, named.normalization is not None
    net = extract(model, _read_statistics(named.normalization) if given else FROM_ENVIRONMENT)
    home = _name_home(model, str(named.policy)) if named.environment is None else None
    about = {"algo": name_algorithm(model), "environment": home, "origin": "a live model"}
    return StoredPolicy(net, hash_policy(net), about), None


def _open_net(named: PolicySource) -> Opened:
    live = named.live
    return live if isinstance(live, StoredPolicy) else StoredPolicy(live, hash_policy(live)), None


def _find_archive(named: PolicySource) -> Path | None:
    if named.live is not None:
        return None
    path = find_baseline(named.policy, named.baselines)
    return path if path.suffix == ".zip" and path.is_file() else _find_zip(path)


def _open_zip(named: PolicySource) -> Opened:
    archive = _find_archive(named)
    assert archive is not None  # noqa: S101  (accepted)
    if named.arch is not None:
        raise SpecError(f"{named.policy}: a .zip says itself which layers it has; leave --arch out")
    return read_agent(archive, named.algo, _choose_statistics(named.normalization)).store(), None


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


def _open_folder(named: PolicySource) -> Opened:
    path, folder = named.policy, find_baseline(named.policy, named.baselines)
    if (folder / INTEGERS).exists():
        raise PolicyError(
            f"{path}: holds integers, which are not quantized again; pass the fp32 policy it came from, or hold both "
            f"together: quarl evaluate {path} --against FP32_POLICY"
        )
    if (folder / GOLDEN).exists():
        raise PolicyError(f"{path}: an artefact, which is deployed already; pass the policy that it was made of")
    stored = load_policy(folder)
    check_alone(named.algo, named.normalization, named.arch, folder)
    return stored, None


def _is_folder(named: PolicySource) -> bool:
    return named.live is None and find_baseline(named.policy, named.baselines).is_dir()


def _name_home(model: "BaseAlgorithm", where: str) -> str | None:
    """The Gymnasium id of the environment that a model holds; None where it holds none, or an unregistered one.

    PolicyError where it was made otherwise than that id alone makes it: what would be played is another environment.
    """
    held = model.get_env()
    spec = None if held is None else held.get_attr("spec", 0)[0]
    if spec is None:
        return None
    plain = gymnasium.registry.get(spec.id)
    changes = [] if plain is None else list_changes(spec, plain)
    changes += [one.name for one in spec.additional_wrappers if one.name not in HARMLESS]
    if changes:
        raise PolicyError(
            f"{where}: its {spec.id} has {', '.join(changes)}, which the id alone does not give; pass its environment, "
            "as model.get_env()"
        )
    return str(spec.id)


def _import_module(name: str) -> torch.nn.Module:
    """The torch module that `module:attribute` names, or that calling it makes."""
    found = import_attribute(name)
    if found is None:
        module, _, attribute = name.partition(SEPARATOR)
        near = difflib.get_close_matches(attribute, vars(sys.modules[module]), 1)
        raise SpecError(f"{name!r}: {module} has no {attribute!r}{f'; did you mean {near[0]!r}?' if near else ''}")
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


ONNX = Reader("onnx", _is_graph(".onnx"), lambda named: _open_graph(named, read_graph), alone=True)
EXPORTED = Reader("exported", _is_graph(".pt2"), lambda named: _open_graph(named, read_program), alone=True)
TORCHSCRIPT = Reader("torchscript", _is_script, _open_script, alone=True)
MODULE = Reader("module", _is_module, _open_module, alone=True)  # of torch: live, or module:attribute
WEIGHTS = Reader("weights", _is_weights, _open_weights, alone=True)
HUB = Reader("hub", _is_address, _open_address)
MODEL = Reader("model", _is_model, _open_model)  # of stable-baselines3, live
NET = Reader("net", lambda named: isinstance(named.live, PolicyNet | StoredPolicy), _open_net)
ZIP = Reader("zip", lambda named: _find_archive(named) is not None, _open_zip)  # or a folder of rl-baselines3-zoo
FOLDER = Reader("folder", _is_folder, _open_folder)  # of this package, or the name of a baseline
