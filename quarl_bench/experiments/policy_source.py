"""From what a user names, or holds in hand, to a policy and the environment it plays in.

A policy is a folder of this package, the name of a baseline, an .onnx file, a program of TorchScript, a .zip of
stable-baselines3 or the folder of one, an agent on the Hugging Face hub, a torch module, or a state dictionary with its
architecture; live models and modules too.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.experiments.environment_source import find_normalizer, lookup_environment, resolve_environment
from quarl_bench.experiments.zoo_agents import check_fit
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.storage.fp32 import MANIFEST, StoredPolicy
from quarl_bench.system.registry import Registry

BASELINES = Path("baselines/policies")  # of a checkout
CARRIED = Path(__file__).parents[1] / "policies" / "carried"  # in every installation
SAVED = (".pt", ".pth", ".ckpt")  # how files of torch.save are called
NO_POLICY = "{} is no policy; pass a model of stable-baselines3, a torch module, a path or a name"


@dataclass(frozen=True)
class PolicySource:
    """A policy and its task as a user names them; what is None is read from the policy's own files.

    `environment` is what `resolve_environment` takes, made with `env_kwargs`;
    `normalization` is a file of a saved VecNormalize, or "none", and of a live policy also a Normalization; `arch` the
    architecture of a state dictionary; of an .onnx file the output that is the action, or `means`.
    """

    policy: Path
    environment: Any = None
    algo: str | None = None
    normalization: str | Normalization | None = None
    arch: str | None = None
    baselines: Path = BASELINES
    live: Any = None  # what is held in hand; `policy` is then what messages call it
    env_kwargs: Mapping[str, Any] | None = None

    def resolve_environment(self) -> Environment:
        """The environment that is named, made with its options."""
        return resolve_environment(self.environment, self.env_kwargs)


@dataclass(frozen=True)
class Reader:
    """One source of policies. `accepts` is asked before anything is read, and `open` gives the policy and its task.

    `open` may leave the environment open (None), which is then the one that the user names, or the policy's own.
    """

    name: str
    accepts: Callable[[PolicySource], bool]
    open: Callable[[PolicySource], tuple[StoredPolicy, Environment | None]]
    alone: bool = False  # whether what it reads is a network that says nothing about its ends


READERS = Registry(
    "source",
    "quarl_bench.sources",
    Reader,
    {
        name: f"quarl_bench.experiments.readers:{name.upper()}"
        for name in ("onnx", "exported", "torchscript", "module", "weights", "hub", "model", "net", "zip", "folder")
    },
)


def find_reader(named: PolicySource) -> Reader:
    """Who reads the policy: others are asked before ours; QuarlError where nobody does."""
    for reader in sorted(READERS.values(), key=lambda reader: reader.name in READERS.own):
        if reader.accepts(named):
            return reader
    path = named.policy
    if named.live is not None:
        raise SpecError(NO_POLICY.format(path))
    if not find_baseline(path, named.baselines).exists():
        others = "agents of the Hugging Face hub are hub:OWNER/REPOSITORY, " if ":" in str(path) else ""
        raise PolicyError(
            f"{path}: neither a path nor a policy of that name in {named.baselines}; {_suggest(named)}{others}"
            "`quarl list policies` names them"
        )
    if path.suffix in SAVED:
        from quarl_bench.policies.sources.archive import read_file
        from quarl_bench.policies.sources.checkpoints import flatten_checkpoint
        from quarl_bench.policies.sources.sb3.state_dict import LIMIT, read_weights

        read_weights(read_file(path, LIMIT, follow=True), str(path), flatten_checkpoint)  # what is damaged says so
    raise PolicyError(
        f"{path}: no folder, no .onnx and no .zip of a policy; of a state dictionary pass --arch as well, of a "
        "checkpoint of rsl_rl, rl_games or skrl its activation, as --arch elu"
    )


def open_stored(named: PolicySource) -> StoredPolicy:
    """The policy of a command that does not play it; QuarlError for what says nothing about its task."""
    reader = find_reader(named)
    if reader.alone and named.environment is None:
        raise SpecError(f"{named.policy}: a network alone says nothing about its task; pass --environment")
    return _open(reader, named)[0]


def open_task(named: PolicySource) -> tuple[StoredPolicy, Environment]:
    """The policy and the environment it plays in: the one named, else its own; they have to fit."""
    stored, environment = _open(find_reader(named), named)
    if find_normalizer(named.environment) is not None and stored.policy.transform.normalization is None:
        raise PolicyError(
            f"{named.policy}: its environment normalizes observations, and the policy has no statistics; pass "
            "normalization, the file of the saved VecNormalize, or the environment inside it"
        )
    return stored, environment or _resolve_home(stored, named)


def _open(reader: Reader, named: PolicySource) -> tuple[StoredPolicy, Environment | None]:
    """What the reader gives; every error says of which policy, and of a network alone where it was to act."""
    where = str(named.policy)
    if reader.alone and named.algo is not None:
        raise SpecError(f"{where}: a network alone has no algorithm to be named; leave --algo out")
    try:
        return reader.open(named)
    except PolicyError as error:
        if where in str(error):
            raise
        place = f" in {named.environment}" if reader.alone and isinstance(named.environment, str) else ""
        raise PolicyError(f"{where}{place}: {error}") from error


def check_alone(algo: str | None, normalization: str | Normalization | None, arch: str | None, folder: Path) -> None:
    """SpecError for what a folder of this package says itself, and nobody else may."""
    given = {"algo": algo, "normalization": normalization, "arch": arch}
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise SpecError(f"{folder}: its manifest says {' and '.join(named)} itself; leave {' and '.join(named)} out")


def find_baseline(path: Path, baselines: Path = BASELINES) -> Path:
    """The folder at `path`, else the committed policy of that name: `ppo-cartpole-seed0`.

    Outside a checkout there are those that the package carries.
    """
    if path.exists() or len(path.parts) != 1:
        return path
    return next((folder / path.name for folder in (baselines, CARRIED) if (folder / path.name).exists()), path)


def list_baselines(baselines: Path = BASELINES) -> list[str]:
    """Names of committed policies, and of those that the package carries."""
    return sorted({path.parent.name for folder in (baselines, CARRIED) for path in folder.glob(f"*/{MANIFEST}")})


def _suggest(named: PolicySource) -> str:
    """A baseline that may have been meant."""
    near = difflib.get_close_matches(named.policy.name, list_baselines(named.baselines), 1)
    return f"did you mean {near[0]}? " if near else ""


def _resolve_home(stored: StoredPolicy, named: PolicySource) -> Environment:
    """The environment named, else the policy's own, made once to see that the policy fits."""
    where, own = str(named.policy), stored.metadata.get("environment")
    if named.environment is None and own is None:
        raise SpecError(f"{where}: the policy names no environment; pass --environment (in Python: env=)")
    if named.environment is not None:
        environment = named.resolve_environment()
    else:  # a name from a file: nothing is imported
        environment = resolve_environment(lookup_environment(str(own)).id, named.env_kwargs)
    environment = replace(environment, time_feature=bool(stored.metadata.get("time_feature", False)))
    try:
        check_fit(stored.policy, environment)
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from error
    return environment
