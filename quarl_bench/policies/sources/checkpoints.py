"""Checkpoints of rsl_rl, rl_games and skrl: whose names say the layers, and whose statistics stand beside them.

They do not say which activation stands between the layers: the user does. What each library computes in front of its
network is written down here; the keys are those of the versions named. Whether an LSTM or GRU of rl_games stands in
front of the layers or behind them, sizes say.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.observation import TINY, Normalization
from quarl_bench.policies.sources.sb3.state_dict import Weights, read_affine
from quarl_bench.policies.sources.torch_layers import find_kind, read_cells
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear
from quarl_bench.quantization.recurrent.cells import Cell

RECURRENT = re.compile(r"(.+)\.weight_hh_l0", re.ASCII)  # of any module of torch with a state
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
    memories: tuple[str, ...] = ()  # the LSTM or GRU of the actor, by the names that it may have
    foreign: tuple[str, ...] = ()  # that of the critic, which does not act
    norms: tuple[str, ...] = ()  # of its outputs


LAYOUTS = (
    Layout(
        "rsl_rl 2", "model_state_dict", "actor", "", ("obs_norm_state_dict/_mean", "obs_norm_state_dict/_std"),
        memories=("memory_a.rnn",), foreign=("memory_c.rnn",),
    ),
    Layout(
        "rsl_rl 3", "model_state_dict", "actor", "",
        ("model_state_dict/actor_obs_normalizer._mean", "model_state_dict/actor_obs_normalizer._std"),
        memories=("memory_a.rnn",), foreign=("memory_c.rnn",),
    ),
    Layout(
        "rsl_rl 5", "actor_state_dict", "mlp", "",
        ("actor_state_dict/obs_normalizer._mean", "actor_state_dict/obs_normalizer._std"), memories=("rnn.rnn",),
    ),
    Layout(
        "rl_games", "model", "a2c_network.actor_mlp", "a2c_network.mu",
        ("model/running_mean_std.running_mean", "model/running_mean_std.running_var"), _running,
        memories=("a2c_network.rnn.rnn", "a2c_network.a_rnn.rnn"), foreign=("a2c_network.c_rnn.rnn",),
        norms=("a2c_network.layer_norm", "a2c_network.a_layer_norm"),
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


@dataclass(frozen=True, eq=False)
class Actor:
    """What acts in a checkpoint: layers, the cells among them, and the statistics in front where it has some."""

    layers: tuple[Linear, ...]
    cells: tuple[Cell, ...]
    normalization: Normalization | None


def read_checkpoint(weights: Weights, activation: Activation, where: str) -> Actor:
    """The actor, with `activation` between its layers; PolicyError for a layout of no library that is known."""
    found = [layout for layout in LAYOUTS if f"{_prefix(layout)}.0.weight" in weights]
    if not found:
        raise PolicyError(
            f"{where}: no checkpoint of rsl_rl, rl_games or skrl; of another state dictionary name the modules too, as "
            f"--arch fc1,{activation},fc2"
        )
    layout = next((one for one in found if one.statistics[0] in weights), found[0])
    memory = _read_memory(layout, weights, where)
    layers = _read_sequence(layout, weights, activation, where)
    layers[-1] = replace(layers[-1], activation=Activation.NONE)
    place = _find_place(layout, layers, memory, where) if memory else 0
    cells = tuple(Cell(find_kind(pair, where), place + 2 * number) for number, pair in enumerate(memory))
    parts = *layers[:place], *(layer for pair in memory for layer in pair), *layers[place:]
    return Actor(parts, cells, _read_statistics(layout, weights))


def _read_memory(layout: Layout, weights: Weights, where: str) -> list[tuple[Linear, Linear]]:
    """The cells of the actor's LSTM or GRU, none where it has none; PolicyError for another that may act."""
    known = {_inside(layout, name) for name in (*layout.memories, *layout.foreign)}
    for name in weights:
        module = RECURRENT.fullmatch(name)
        if module is not None and module[1] not in known and name.startswith(_inside(layout, "")):
            raise PolicyError(f"{where}: {module[1][:80]} is recurrent, and {layout.library} is not known to have it")
    found = [pairs for name in layout.memories if (pairs := read_cells(_inside(layout, name), weights, where))]
    if len(found) > 1:
        raise PolicyError(f"{where}: two recurrent modules, {' and '.join(layout.memories)}; restore the file")
    if found and any(f"{_inside(layout, name)}.weight" in weights for name in layout.norms):
        raise PolicyError(f"{where}: a LayerNorm behind its LSTM or GRU, which has no portable form; train without it")
    return found[0] if found else []


def _find_place(layout: Layout, layers: list[Linear], memory: list[tuple[Linear, Linear]], where: str) -> int:
    """In front of which layer the cells stand; PolicyError where sizes fit neither place, or both."""
    if not layout.last:
        return 0
    *sequence, last = (layer.weight.shape for layer in layers)
    enters, leaves = memory[0][0].weight.shape[1], memory[-1][1].weight.shape[1]
    front = sequence[0][1] == leaves and last[1] == sequence[-1][0]
    behind = sequence[-1][0] == enters and last[1] == leaves
    if front != behind:
        return 0 if front else len(sequence)
    what = "in front of its layers and behind them alike" if front else "neither in front of its layers nor behind them"
    raise PolicyError(
        f"{where}: an LSTM or GRU of {enters} inputs and {leaves} units fits {what}; export the policy to .onnx"
    )


def _read_sequence(layout: Layout, weights: Weights, activation: Activation, where: str) -> list[Linear]:
    """The layers in order, the last one too."""
    pattern = re.compile(re.escape(_prefix(layout)) + r"\.(\d{1,4})\.weight", re.ASCII)
    numbers = sorted(int(match[1]) for name in weights if (match := pattern.fullmatch(name)))
    names = [f"{_prefix(layout)}.{number}" for number in numbers]
    last = _inside(layout, layout.last)
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
    return layers


def _inside(layout: Layout, name: str) -> str:
    return f"{layout.network}{SEPARATOR}{name}"


def _prefix(layout: Layout) -> str:
    return _inside(layout, layout.sequence)


def _read_statistics(layout: Layout, weights: Weights) -> Normalization | None:
    mean, spread = layout.statistics
    if mean not in weights or spread not in weights:
        return None
    return layout.normalize(*(weights[name].astype(np.float64).reshape(-1) for name in (mean, spread)))
