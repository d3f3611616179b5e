"""What the outputs of a network alone are where an environment's actions are indices: which of them is chosen."""

from gymnasium import spaces

from quarl_bench.environments.encoding import list_choices
from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.quantization.activations import Activation

KNOWN_ACTIONS = "use Discrete, MultiDiscrete, MultiBinary or Box"


def read_choices(actions: spaces.Space[object], outputs: int, where: str, *, masked: bool = False) -> ActionHead | None:
    """The head behind `outputs`, for a policy's actions (`encoding`); None where actions are no indices.

    A MultiBinary takes a logit a bit, or two as sb3-contrib has them. `masked` where the environment masks actions.
    PolicyError where outputs do not fit.
    """
    sizes = list_choices(actions)
    if sizes is None:
        return None
    if isinstance(actions, spaces.MultiBinary) and outputs == len(sizes):
        return ActionHead(HeadKind.BITS, masked=masked)
    if outputs != sum(sizes):
        raise PolicyError(f"{where}: {outputs} outputs for the actions {actions}; they are one value for each")
    if isinstance(actions, spaces.Discrete):
        return ActionHead(HeadKind.ARGMAX, masked=masked)
    return ActionHead(HeadKind.PARTS, sizes=sizes, masked=masked)


def find_last(head: ActionHead | None) -> Activation | None:
    """The activation that a network may end in, as it changes no choice; of real numbers (None) one that squashes."""
    if head is None:
        return Activation.TANH
    return Activation.SIGMOID if head.kind is HeadKind.BITS else None
