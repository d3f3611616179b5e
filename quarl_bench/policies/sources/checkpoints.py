"""Checkpoints of rsl_rl, rl_games and skrl: whose names say the layers, and whose statistics stand beside them.

They do not say which activation stands between the layers: the user does. What each library computes in front of its
network is written down here; the keys are those of the versions named.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.observation import TINY, Normalization
from quarl_bench.policies.sources.sb3.state_dict import Weights, read_affine
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear

SEPARATOR = "/"  # between the key of a state dictionary inside a checkpoint and the names in it


def _empirical(mean: Any, sd: Any) -> Normalization:
    """rsl_rl, EmpiricalNormalization: (x - mean) / (sd + 0.01)."""
    return Normalization(mean, (sd + 1e-2) ** 2, np.inf, TINY)


def _running(mean: Any, variance: Any) -> Normalization:
    """rl_games, RunningMeanStd: clip((x - mean) / sqrt(variance + 1e-5), -5, 5)."""
    return Normalization(mean, variance, 5.0, 1e-5)


def _scaler(mean: Any, variance: Any) -> Normalization:
    """skrl, RunningStandardScaler: clip((x - mean) / (sqrt(variance) + 1e-8), -5, 5)."""
    return Normalization(mean, (np.sqrt(variance) + 1e-8) ** 2, 5.0, TINY)


@dataclass(frozen=True)
class Layout:
    """Where a library keeps what acts: a sequence of Linear layers, the last one's name where it stands apart."""

    library: str
    network: str  # the key of the state dictionary
    sequence: str  # the prefix of the layers, numbered
    last: str = ""
    statistics: tuple[str, str] = ("", "")  # mean, and SD or variance
    normalize: Callable[[Any, Any], Normalization] = _empirical
    inside: bool = False  # where the last layer has no name of its own, it is the sequence's last


LAYOUTS = (
    Layout("rsl_rl 2", "model_state_dict", "actor", "", ("obs_norm_state_dict/_mean", "obs_norm_state_dict/_std")),
    Layout(
        "rsl_rl 3", "model_state_dict", "actor", "",
        ("model_state_dict/actor_obs_normalizer._mean", "model_state_dict/actor_obs_normalizer._std"),
    ),
    Layout(
        "rsl_rl 5", "actor_state_dict", "mlp", "",
        ("actor_state_dict/obs_normalizer._mean", "actor_state_dict/obs_normalizer._std"),
    ),
    Layout(
        "rl_games", "model", "a2c_network.actor_mlp", "a2c_network.mu",
        ("model/running_mean_std.running_mean", "model/running_mean_std.running_var"), _running,
    ),
    Layout(
        "skrl", "policy", "net_container", "policy_layer",
        ("state_preprocessor/running_mean", "state_preprocessor/running_variance"), _scaler, True,
    ),
    Layout(
        "skrl 2", "policy", "net_container", "policy_layer",
        ("observation_preprocessor/running_mean", "observation_preprocessor/running_variance"), _scaler, True,
    ),
)  # fmt: skip
KEYS = frozenset(
    {layout.network for layout in LAYOUTS}
    | {name.partition(SEPARATOR)[0] for layout in LAYOUTS for name in layout.statistics}
)


def flatten_checkpoint(state: Mapping[Any, Any]) -> dict[str, Any]:
    """The state dictionaries that act, of a checkpoint, as one: `key/name`; anything else as it is."""
    nested = {key: value for key, value in state.items() if key in KEYS and isinstance(value, Mapping)}
    if not nested:
        return {str(key): value for key, value in state.items()}
    return {f"{key}{SEPARATOR}{name}": value for key, inner in nested.items() for name, value in inner.items()}


def read_checkpoint(
    weights: Weights, activation: Activation, where: str
) -> tuple[tuple[Linear, ...], Normalization | None]:
    """Layers, with `activation` between them, and statistics; PolicyError for a layout of no library that is known."""
    found = [layout for layout in LAYOUTS if f"{_prefix(layout)}.0.weight" in weights]
    if not found:
        raise PolicyError(
            f"{where}: no checkpoint of rsl_rl, rl_games or skrl; of another state dictionary name the modules too, as "
            f"--arch fc1,{activation},fc2"
        )
    layout = next((one for one in found if one.statistics[0] in weights), found[0])
    if any(".rnn" in name or ".memory_" in name or "_rnn." in name for name in weights):
        raise PolicyError(f"{where}: a recurrent policy, and only chains of layers have a portable form")
    pattern = re.compile(re.escape(_prefix(layout)) + r"\.(\d{1,4})\.weight", re.ASCII)
    numbers = sorted(int(match[1]) for name in weights if (match := pattern.fullmatch(name)))
    names = [f"{_prefix(layout)}.{number}" for number in numbers]
    last = f"{layout.network}{SEPARATOR}{layout.last}"
    if layout.last and f"{last}.weight" in weights:
        names.append(last)
    elif layout.last and not layout.inside:
        raise PolicyError(f"{where}: no layer {layout.last!r}, which a Gaussian policy of {layout.library} ends in")
    layers = []
    for name in names:
        weight, bias = read_affine(name, weights, where)
        if weight.ndim != 2:
            raise PolicyError(f"{where}: {name} has weights of shape {weight.shape}, which no Linear layer has")
        layers.append(Linear(weight, bias, activation))
    return (*layers[:-1], replace(layers[-1], activation=Activation.NONE)), _read_statistics(layout, weights)


def _prefix(layout: Layout) -> str:
    return f"{layout.network}{SEPARATOR}{layout.sequence}"


def _read_statistics(layout: Layout, weights: Weights) -> Normalization | None:
    mean, spread = layout.statistics
    if mean not in weights or spread not in weights:
        return None
    return layout.normalize(*(weights[name].astype(np.float64).reshape(-1) for name in (mean, spread)))
