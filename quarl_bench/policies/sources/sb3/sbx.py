"""Zips of SBX, which is stable-baselines3 in JAX: the same files, whose weights lie in a pickled policy.

The pickle holds functions and classes of JAX and Flax. It is walked as data: none of them is imported, made or called.
Names are those of SBX 0.28.0, JAX 0.10.2 and Flax 0.12.8; a function that was made otherwise is refused.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.batch_norm import BatchNorm
from quarl_bench.policies.sources.inert_pickle import Call, Name, read_pickle
from quarl_bench.policies.sources.sb3.spaces import Actions, Observations
from quarl_bench.policies.sources.sb3.vecnormalize import read_array
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Floats, Linear, Net

PREFIX, SUFFIX = "sbx.", ".policies"  # around an algorithm's name, in the module of its policy class
SHARED = "sbx.common.policies.SquashedGaussianActor"
ACTORS = {  # whose layers are a chain; others have branches, images or code of their own
    "ppo": "sbx.ppo.policies.Actor", "td3": "sbx.td3.policies.Actor", "dqn": "sbx.dqn.policies.QNetwork",
    "crossq": "sbx.crossq.policies.Actor", "sac": SHARED, "tqc": SHARED,
}  # fmt: skip
GAUSSIAN = ("sac", "tqc", "crossq")  # whose last layer is that of standard deviations
ROOTS = frozenset(  # of what such a pickle names
    {"_functools", "_operator", "abc", "builtins", "cloudpickle", "collections", "copyreg", "dataclasses", "enum"}
    | {"flax", "functools", "gym", "gymnasium", "inspect", "jax", "jaxlib", "numpy", "operator", "optax", "sbx"}
    | {"stable_baselines3", "torch", "types", "typing"}
)
OPERATIONS = 2**20  # of a pickle; one has thousands
LENGTH = 200  # of a name
NUMBERS = 2**25  # of all layers, which a pickle may let share their memory
NORM, NORM_EPSILON = ("scale", "bias", "mean", "var"), 0.001  # Flax's names, and SBX's epsilon
ACTIVATIONS = {
    "jax._src.numpy.ufuncs": {"tanh": Activation.TANH},
    "jax._src.nn.functions": {
        "relu": Activation.RELU, "elu": Activation.ELU, "selu": Activation.SELU, "silu": Activation.SILU,
        "gelu": Activation.GELU_TANH, "leaky_relu": Activation.LEAKY_RELU, "softplus": Activation.SOFTPLUS,
        "sigmoid": Activation.SIGMOID, "hard_tanh": Activation.HARDTANH, "relu6": Activation.RELU6,
        "hard_silu": Activation.HARDSWISH, "soft_sign": Activation.SOFTSIGN,
    },
}  # fmt: skip


class _Known:
    """Names of a sensible length whose package is one of these."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and len(name) <= LENGTH and name.partition(".")[0] in ROOTS


def name_algorithms(module: object) -> tuple[str, ...]:
    """The algorithms of SBX whose policy classes are in this module; none where it is not one of SBX's."""
    name = module.removeprefix(PREFIX).removesuffix(SUFFIX) if isinstance(module, str) else ""
    if name not in ACTORS or module != f"{PREFIX}{name}{SUFFIX}":
        return ()
    return (name, "ddpg") if name == "td3" else (name,)


def read_sbx(
    settings: Mapping[str, Any], observations: Observations, actions: Actions, statistics: Normalization | None
) -> PolicyNet:
    """The deterministic policy in the settings of a zip of SBX; PolicyError for what has no portable form."""
    module = str(settings["policy_class"]["__module__"])
    algo = name_algorithms(module)[0]
    if observations.image:
        raise PolicyError("a policy of SBX that sees images has no portable form here")
    if not str(settings["observation_space"].get(":type:")).endswith(".Box'>"):
        raise PolicyError(
            "SBX takes observations that are no Box as they are, not flattened; they have no portable form"
        )
    state = _read_policy(settings.get("policy"), module)
    actor = state.get("qf" if algo == "dqn" else "actor")
    if not isinstance(actor, Call) or actor.name != ACTORS[algo]:
        said = actor.name if isinstance(actor, Call) else "none"
        raise PolicyError(f"its network is {said[:80]!r}; of SBX only {ACTORS[algo]} has a portable form")
    trained = state.get("qf_state" if algo == "dqn" else "actor_state")
    layers = _read_layers(trained, algo, normed=algo == "crossq" and state.get("batch_norm_actor") is not False)
    activation = _read_activation(state.get("activation_fn"))
    hidden = (replace(layer, activation=activation) for layer in layers[:-1])
    transform = ObservationTransform(observations.shape, image=False, normalization=statistics)
    net = Net(transform.input_shape, (*hidden, layers[-1]))
    expected = actions.count * (2 if actions.bits else 1)
    if net.outputs != expected:
        raise PolicyError(f"a net of {net.outputs} outputs for {expected} of its actions; restore the zip")
    return PolicyNet(transform, net, _build_head(algo, actions))


def _build_head(algo: str, actions: Actions) -> ActionHead:
    if actions.bounds is not None and algo != "dqn":
        return ActionHead(HeadKind.CLIP if algo == "ppo" else HeadKind.TANH, *actions.bounds)
    several = bool(actions.sizes or actions.bits)
    if not actions.discrete or algo not in ("ppo", "dqn") or (several and algo == "dqn"):
        raise PolicyError(f"{algo} of SBX has no such actions; restore the zip")
    sizes = (2,) * actions.count if actions.bits else actions.sizes  # a bit has two logits
    return ActionHead(HeadKind.PARTS if several else HeadKind.ARGMAX, sizes=sizes)


def _read_policy(entry: Any, module: str) -> dict[Any, Any]:
    """What the pickled policy would be given as its attributes."""
    text = entry.get(":serialized:") if isinstance(entry, dict) else None
    try:
        data = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise PolicyError("its policy is no base64; restore the zip") from error
    tree = read_pickle(data, _Known(), "policy", code=True, operations=OPERATIONS)
    if not isinstance(tree, Call) or not tree.name.startswith(f"{module}.") or not isinstance(tree.state, dict):
        raise PolicyError(f"its pickled policy is none of {module}; only SBX's own have a portable form")
    return tree.state


def _read_layers(trained: Any, algo: str, *, normed: bool) -> list[Linear]:
    """Dense layers on the way to the outputs, without activations; normalizations in front of them are folded."""
    state = trained.state if isinstance(trained, Call) and isinstance(trained.state, dict) else {}
    modules, running = _unpack(state.get("params")), _unpack(state.get("batch_stats"))
    modules = _unpack(modules.get("params", modules))
    count = 0
    while f"Dense_{count}" in modules:
        count += 1
    known = {f"Dense_{number}" for number in range(count)} | {"log_std"}
    known |= {f"BatchRenorm_{number}" for number in range(count)} if algo == "crossq" else set()
    strange = [str(name) for name in modules if name not in known]
    count -= algo in GAUSSIAN
    if strange or count < 1:
        raise PolicyError(f"its actor has {strange[0][:40] if strange else 'too few layers'}, and is no chain of Dense")
    layers, total = [], 0
    for number in range(count):
        layer = _read_dense(_unpack(modules[f"Dense_{number}"]), f"Dense_{number}")
        if normed:
            name = f"BatchRenorm_{number}"
            numbers = _unpack(modules.get(name)) | _unpack(running.get(name))
            own = {key: _read_numbers(numbers.get(key), f"{name} {key}", 1) for key in NORM}
            if len({value.shape for value in own.values()}) != 1:
                raise PolicyError(f"{name} has several sizes; restore the zip")
            folded = BatchNorm.of(own, NORM, NORM_EPSILON).fold_into_next(layer)
            layer = replace(layer, weight=folded.weight, bias=folded.bias)
        layers.append(layer)
        total += layer.weight.size
        if total > NUMBERS:
            raise PolicyError(f"more than {NUMBERS} numbers in layers that share their memory; it is refused")
    return layers


def _read_dense(numbers: Mapping[Any, Any], name: str) -> Linear:
    """A Dense layer, whose kernel is (inputs, outputs)."""
    kernel = _read_numbers(numbers.get("kernel"), f"{name} kernel", 2)
    return Linear(np.ascontiguousarray(kernel.T), _read_numbers(numbers.get("bias"), f"{name} bias", 1))


def _read_numbers(tree: Any, name: str, axes: int) -> Floats:
    """An array of JAX, which is one of NumPy inside a call."""
    try:
        make, args, state, _ = tree.args
        with np.errstate(over="ignore", invalid="ignore"):  # what is infinite is refused with the net
            found = read_array(Call(make.text, args, state)).astype(np.float32)
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise PolicyError(f"{name} is no array of numbers; restore the zip") from error
    if found.ndim != axes or 0 in found.shape:
        raise PolicyError(f"{name} has the shape {str(found.shape)[:80]}; restore the zip")
    return found


def _unpack(tree: Any) -> dict[Any, Any]:
    """A dictionary, which older versions of Flax froze; empty for anything else."""
    if isinstance(tree, Call) and tree.name.endswith(".FrozenDict") and isinstance(tree.args, tuple) and tree.args:
        tree = tree.args[0]
    return tree if isinstance(tree, dict) else {}


def _read_activation(tree: Any) -> Activation:
    """The function between layers, by the module and the name that it has in JAX."""
    module, name = "", ""
    if isinstance(tree, Name):
        module, _, name = tree.text.rpartition(".")
    elif isinstance(tree, Call) and isinstance(tree.state, dict):
        if tree.name.endswith(".custom_jvp"):
            module, name = (_read_text(tree.state, key) for key in ("__module__", "__name__"))
        elif tree.name.endswith(".PjitFunction"):
            module, name = _find_module(tree.state.get("fun")), _read_text(tree.state, "function_name")
    found = ACTIVATIONS.get(module, {}).get(name)
    if found is None:
        said = f"{module}.{name}" if name else tree.name if isinstance(tree, Call) else "no function"
        raise PolicyError(f"its activation {said[:80]!r} has no portable form")
    return found


def _find_module(function: Any) -> str:
    """Where a pickled function says that it is from; empty where it does not."""
    args = function.args if isinstance(function, Call) and isinstance(function.args, tuple) else ()
    spaces = [part for part in args if isinstance(part, dict)]
    return _read_text(spaces[0], "__name__") if spaces else ""


def _read_text(entries: Mapping[Any, Any], key: str) -> str:
    text = entries.get(key)
    return text if isinstance(text, str) else ""
