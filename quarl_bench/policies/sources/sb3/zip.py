"""Other people's stable-baselines3 agents: a .zip of any version since 1.0, and the rl-zoo folder beside it.

Such a zip is a bundle of pickles, and unpickling executes what its author wrote. Here nothing of it is unpickled: the
weights are tensors, the rest is read from the text that stable-baselines3 prints beside each pickle, and what the text
does not say is refused, not guessed.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quarl_bench.errors import PolicyError
from quarl_bench.policies.algorithm import ALGORITHMS, Algorithm, SavedForm, list_readable
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform, Part, normalize_parts
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.archive import Archive, open_archive, read_file
from quarl_bench.policies.sources.sb3.sbx import name_algorithms, read_sbx
from quarl_bench.policies.sources.sb3.spaces import Actions, Bounds, Observations, read_actions, read_observations
from quarl_bench.policies.sources.sb3.state_dict import (
    average_outputs,
    check_modules,
    find_branches,
    find_cells,
    fold_norms,
    read_layers,
    read_weights,
)
from quarl_bench.policies.sources.sb3.vecnormalize import FROM_FOLDER, PartStatistics, find_statistics, list_signs
from quarl_bench.policies.sources.sb3.zoo_config import Training, read_training
from quarl_bench.policies.storage.fp32 import StoredPolicy, hash_policy
from quarl_bench.quantization.activations import ELEMENTWISE, Activation
from quarl_bench.quantization.net import Net

LIMIT, UNPACKED, JSON_LIMIT = 2**28, 2**30, 2**26
PARTS = 2**20  # of that JSON, each of which takes far more memory than text
NORM_EPSILON = 0.001  # CrossQ's unless policy_kwargs says otherwise
MEAN_LIMIT = 2.0  # SAC's clip_mean unless policy_kwargs says otherwise
BARE = frozenset(bytes([first]) for first in b"\x80(]}c")  # what a pickle begins with, and no zip
ACTIVATIONS = {
    str(entry.module): activation  # of torch's own defaults, which is how stable-baselines3 makes them
    for activation, entry in ELEMENTWISE.items()
    if activation not in (Activation.NONE, Activation.GELU_TANH)
}
EXTRACTORS = {
    f"<class 'stable_baselines3.common.torch_layers.{name}'>"
    for name in ("CombinedExtractor", "FlattenExtractor", "NatureCNN")
}
WITHOUT_EFFECT = frozenset(  # on the deterministic action of given weights
    {"net_arch", "log_std_init", "ortho_init", "use_sde", "full_std", "sde_net_arch", "use_expln", "n_critics"}
    | {"lstm_hidden_size", "n_lstm_layers", "shared_lstm", "enable_critic_lstm", "lstm_kwargs"}
    | {"n_quantiles", "with_bias", "batch_norm", "batch_norm_momentum", "renorm_warmup_steps"}
    | {"features_extractor_kwargs", "share_features_extractor", "optimizer_class", "optimizer_kwargs"}
)
ENVIRONMENT = r"(?:(?:{algorithms})-)?([A-Za-z0-9]+(?:-[A-Za-z0-9]+)*-v\d+)"
FindBounds = Callable[[str], Bounds]


@dataclass(frozen=True, eq=False)
class ZooAgent:
    """A stranger's policy, and what its files say about it.

    `environment` is the id it was trained on, in the words of that time (None: unknown); `time_feature` tells whether
    the remaining time was appended to its observations; `sha256` is the zip's own, for who wants to find it again.
    """

    policy: PolicyNet
    algo: str
    environment: str | None
    time_feature: bool
    sha256: str
    library: str = "stable-baselines3"
    assumed: str = ""  # what its files leave open, and how it was taken

    def store(self) -> StoredPolicy:
        """The agent as a policy with a content hash and a manifest, as `save_policy` would write it."""
        about = {
            "algo": self.algo,
            "environment": self.environment,
            "time_feature": self.time_feature,
            "origin": f"{self.library} zip",
            "zip_sha256": self.sha256,
        } | ({"assumed": self.assumed} if self.assumed else {})
        return StoredPolicy(self.policy, hash_policy(self.policy), about)


def read_zip(
    path: Path,
    algo: str | None = None,
    normalization: Normalization | Path | str | None = FROM_FOLDER,
    find_bounds: FindBounds | None = None,
) -> ZooAgent:
    """The deterministic policy in a .zip of stable-baselines3, without executing anything of it.

    Observation statistics come from the folder called like the zip: `config.yml` says whether there are any, and
    `vecnormalize.pkl` has them. A zip without that folder was trained on raw observations unless something shows
    otherwise: then pass its Normalization, the path of a saved VecNormalize, or None for raw observations.
    `find_bounds` gives the action bounds of an environment id; it is asked where the zip prints them rounded.
    PolicyError for whatever has no portable form or is not to be trusted.
    """
    data = read_file(path, LIMIT, follow=True)
    where = str(path)
    _refuse_other_formats(data, where)
    archive = open_archive(data, where, UNPACKED)
    if "parameter_list" in archive.sizes:
        raise PolicyError(f"{where}: an agent of stable-baselines 2 (TensorFlow); only stable-baselines3 zips are read")
    training = read_training(path.with_suffix(""))
    settings = _read_settings(archive, where)
    found = _find_algo(settings, algo, training, where)
    environment = training.environment or _guess_environment(path)
    observations = read_observations(settings.get("observation_space"), where)
    signs = list_signs(path.with_suffix(""), settings)
    statistics = find_statistics(path.with_suffix(""), training, normalization, where, signs)
    if training.frames > 1 and not observations.image:
        raise PolicyError(
            f"{where}: trained on {training.frames} stacked observations, which no environment here gives"
        )
    actions = read_actions(settings.get("action_space"), where)
    if not actions.discrete and actions.bounds is None:
        actions = Actions(actions.count, discrete=False, bounds=_ask_bounds(find_bounds, environment, where))
    try:
        policy = _build(found, archive, settings, observations, actions, statistics)
    except PolicyError as error:
        raise PolicyError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    library, assumed = "stable-baselines3", ""
    if name_algorithms(settings["policy_class"]["__module__"]):
        library = "SBX"
        unsaid = statistics is None and normalization == FROM_FOLDER
        assumed = f"{found.name} of SBX, with observations as they are: no statistics lie beside it" if unsaid else ""
    sha256 = hashlib.sha256(data).hexdigest()
    return ZooAgent(policy, found.name, environment, training.time_feature, sha256, library, assumed)


def _build(
    algo: Algorithm,
    archive: Archive,
    settings: dict[str, Any],
    observations: Observations,
    actions: Actions,
    statistics: Normalization | PartStatistics | None,
) -> PolicyNet:
    where = archive.where
    if name_algorithms(settings["policy_class"]["__module__"]):
        if isinstance(statistics, dict):
            raise PolicyError(f"{where}: statistics of a Dict, and SBX has policies of a Box alone")
        return read_sbx(settings, observations, actions, statistics)
    options = _read_options(settings, where)
    weights = read_weights(archive.read("policy.pth", LIMIT), f"{where}: policy.pth")
    form = require_form(algo)
    if form.normed:
        weights = fold_norms(form, weights, options.get("batch_norm_eps", NORM_EPSILON), f"{where}: policy.pth")
    check_modules(algo.name, form, weights, f"{where}: policy.pth")
    activation = options.get("activation_fn", Activation(form.activation))
    layers = read_layers(algo.name, form, weights, activation, observations.parts, f"{where}: policy.pth")
    if form.averaged:
        layers = average_outputs(layers, actions.count)
    scaled = bool(options.get("normalize_images", True))
    parts = observations.parts if scaled else tuple(replace(part, pixels=False) for part in observations.parts)
    normalization = _normalize(parts, statistics, where)
    transform = ObservationTransform(observations.shape, observations.image and scaled, normalization)
    branches = find_branches(form, weights, parts)
    net = Net(transform.input_shape, layers, find_cells(form, weights, len(layers)), branches)
    expected = actions.count * (2 if actions.bits and algo.masked else 1)  # a bit that can be masked has two logits
    if net.outputs != expected:
        raise PolicyError(f"{where}: a net of {net.outputs} outputs for {actions.count} actions; restore the zip")
    squashed = _is_squashed(algo, settings, options)
    head = _build_head(algo, actions, options, squashed=squashed, limited=form.limited in weights)
    return PolicyNet(transform, net, head)


def _normalize(
    parts: Sequence[Part], statistics: Normalization | PartStatistics | None, where: str
) -> Normalization | None:
    """What is done to flat observations, of a Dict to those of its `parts`."""
    if not isinstance(statistics, dict):
        if statistics is not None and any(part.pixels for part in parts):
            raise PolicyError(f"{where}: statistics of one vector, and its observations have an image among vectors")
        return normalize_parts(parts) if statistics is None else statistics
    shapes = {part.name: part.shape for part in parts}
    if strange := [name for name, one in statistics.items() if shapes.get(name) != one.mean.shape]:
        raise PolicyError(f"{where}: statistics of {strange[0][:80]!r}, which is no part of its observations")
    if images := [name for name in statistics if len(shapes[name]) == 3]:  # a VecNormalize hides that it was one
        raise PolicyError(f"{where}: statistics of {images[0][:80]!r}, which may be an image, have no portable form")
    return normalize_parts(parts, statistics)


def require_form(algo: Algorithm) -> SavedForm:
    """How the algorithm's policies lie in a .zip; PolicyError where it does not say."""
    if algo.saved is None:
        raise PolicyError(f"{algo.name}: it does not say how its policies are saved; pass the live model")
    return algo.saved


def _is_squashed(algo: Algorithm, settings: dict[str, Any], options: dict[str, Any]) -> bool:
    """Whether continuous actions pass a tanh, as the option says, or the policy's class, or the algorithm."""
    form = require_form(algo)
    if form.is_squashed is not None:
        return bool(options.get("squash_output", form.is_squashed(settings)))
    usual = HeadKind(algo.head) is HeadKind.TANH
    squashed = bool(options.get("squash_output", usual))
    if usual and not squashed:
        raise PolicyError("squash_output=False has no portable form for an actor that ends in a tanh")
    return squashed


def _build_head(
    algo: Algorithm, actions: Actions, options: dict[str, Any], *, squashed: bool, limited: bool
) -> ActionHead:
    if actions.discrete:
        if not algo.discrete:
            raise PolicyError(f"{algo.name} has no discrete actions; restore the zip")
        return _build_choices(algo, actions)
    if not algo.continuous or actions.bounds is None:
        raise PolicyError(f"{algo.name} has no continuous actions; restore the zip")
    limit = float(options.get("clip_mean", MEAN_LIMIT)) if limited else None
    return ActionHead(HeadKind.TANH if squashed else HeadKind.CLIP, *actions.bounds, limit)


def _build_choices(algo: Algorithm, actions: Actions) -> ActionHead:
    if (actions.sizes or actions.bits) and not algo.actor_critic:
        raise PolicyError(f"{algo.name} has no actions of several parts; restore the zip")
    if actions.bits and not algo.masked:
        return ActionHead(HeadKind.BITS)
    sizes = (2,) * actions.count if actions.bits else actions.sizes
    return ActionHead(HeadKind.PARTS if sizes else HeadKind.ARGMAX, sizes=sizes, masked=algo.masked)


def _read_settings(archive: Archive, where: str) -> dict[str, Any]:
    data = archive.read("data", JSON_LIMIT)
    if sum(map(data.count, (b",", b"[", b"{"))) > PARTS:
        raise PolicyError(f"{where}: data has more parts than any settings; the zip is refused")
    try:
        settings = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{where}: data is not the JSON of stable-baselines3 ({type(error).__name__})") from error
    if not isinstance(settings, dict):
        raise PolicyError(f"{where}: data is not a JSON object, so this is no zip of stable-baselines3")
    return settings


def _read_options(settings: dict[str, Any], where: str) -> dict[str, Any]:
    """Those of policy_kwargs that change the deterministic action, checked; PolicyError for unknown ones."""
    given = settings.get("policy_kwargs", {})
    if not isinstance(given, dict):
        raise PolicyError(f"{where}: policy_kwargs is not a JSON object; restore the zip")
    options: dict[str, Any] = {}
    for key, value in given.items():
        if key in WITHOUT_EFFECT or key.startswith(":"):
            continue
        if key == "activation_fn" and isinstance(value, str) and value in ACTIVATIONS:
            options[key] = ACTIVATIONS[value]
        elif _is_fitting(key, value):
            options[key] = value
        elif key != "features_extractor_class" or not isinstance(value, str) or value not in EXTRACTORS:
            raise PolicyError(f"{where}: policy_kwargs {key[:40]!r} = {str(value)[:80]!r} has no portable form")
    return options


def _is_fitting(key: str, value: Any) -> bool:
    if key in ("normalize_images", "squash_output"):
        return isinstance(value, bool)
    return key in ("clip_mean", "batch_norm_eps") and isinstance(value, int | float) and 0 <= value < float("inf")


def _find_algo(settings: dict[str, Any], wanted: str | None, training: Training, where: str) -> Algorithm:
    """What the zip is by its own settings, unless the caller or args.yml contradicts."""
    policy = settings.get("policy_class")
    module = policy.get("__module__") if isinstance(policy, dict) else None
    of_sbx = name_algorithms(module)
    alike = [algo for algo in list_readable() if algo.saved and (algo.saved.module == module or algo.name in of_sbx)]
    if not alike:
        raise PolicyError(
            f"{where}: the policy class comes from {str(module)[:80]!r}; only those of stable-baselines3 have a "
            "portable form"
        )
    algo = next((algo for algo in alike if require_form(algo).is_own(settings)), None)
    if algo is None:
        names = ", ".join(algo.name for algo in alike)
        raise PolicyError(f"{where}: an agent with policies of {module} that is none of {names} has no portable form")
    for said, by in ((wanted, "the caller"), (training.algo, "args.yml")):
        if said is not None and said != algo.name:
            raise PolicyError(f"{where}: a zip of {algo.name}, though {by} says {said[:40]!r}; correct one of them")
    return algo


def _ask_bounds(find_bounds: FindBounds | None, environment: str | None, where: str) -> Bounds:
    if find_bounds is None or environment is None:
        raise PolicyError(
            f"{where}: its action bounds are printed rounded, and no known environment has them; pass find_bounds"
        )
    return find_bounds(environment)


def _guess_environment(path: Path) -> str | None:
    found = re.fullmatch(ENVIRONMENT.format(algorithms="|".join(map(re.escape, ALGORITHMS))), path.stem)
    return found[1] if found else None


def _refuse_other_formats(data: bytes, where: str) -> None:
    if data[:1] in BARE:
        raise PolicyError(
            f"{where}: a bare pickle, as stable-baselines 2 (TensorFlow) saved its agents; nothing of it was executed: "
            "only the zips of stable-baselines3 are read"
        )
