"""Zoo agents at home: in the living environment of the one they were trained on."""

import contextlib
from pathlib import Path

import numpy as np
from gymnasium import spaces

from quarl_bench.environments.encoding import list_choices
from quarl_bench.environments.registry import Environment, identify_environment, make_environment
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.policies.sources.sb3.spaces import Bounds
from quarl_bench.policies.sources.sb3.vecnormalize import FROM_FOLDER
from quarl_bench.policies.sources.sb3.zip import ZooAgent, read_zip


def read_agent(
    path: Path, algo: str | None = None, normalization: Normalization | Path | str | None = FROM_FOLDER
) -> ZooAgent:
    """`read_zip`, which may ask the agent's environment for action bounds that the zip prints rounded."""
    return read_zip(path, algo, normalization, find_bounds)


def find_zip(root: Path, algo: str, slug: str) -> Path | None:
    """The zip below `root`, laid out as rl-baselines3-zoo's `<algo>/<Environment>_1/<Environment>.zip`."""
    for path in sorted((root / algo).glob("*/*.zip")):
        with contextlib.suppress(SpecError):  # an environment that no longer lives, or is not known here
            if identify_environment(path.stem).slug == slug:
                return path
    return None


def find_bounds(name: str) -> Bounds:
    """Action bounds of the environment with this id, living or former."""
    environment = identify_environment(name)
    bare, _ = make_environment(environment)
    space = bare.action_space
    bare.close()
    if not isinstance(space, spaces.Box):
        raise PolicyError(f"environment {environment.id} has no bounded actions, so the zip is of another one")
    return space.low.astype(np.float32), space.high.astype(np.float32)


def check_fit(policy: PolicyNet | IntegerPolicy, environment: Environment) -> None:
    """PolicyError unless the environment, which is made and closed, has this policy's observations and actions."""
    bare, _ = make_environment(environment)
    observations, actions = bare.observation_space, bare.action_space
    bare.close()
    shape, head = policy.transform.shape, policy.head
    channel_last = (*shape[1:], shape[0]) if policy.transform.image else shape
    if observations.shape not in (shape, channel_last):
        gives = observations.shape or observations
        raise PolicyError(f"an agent of {shape} observations cannot play {environment.id}, which gives {gives}")
    if head.low is None or head.high is None:
        kinds = {HeadKind.ARGMAX: spaces.Discrete, HeadKind.BITS: spaces.MultiBinary}
        kind = kinds.get(head.kind, (spaces.MultiDiscrete, spaces.MultiBinary))
        fits = isinstance(actions, kind) and list_choices(actions) == head.list_choices(policy.net.outputs)
    else:
        fits = (
            isinstance(actions, spaces.Box)
            and actions.dtype.kind == "f"
            and all(
                np.array_equal(bound.astype(np.float32), own)
                for bound, own in ((actions.low, head.low), (actions.high, head.high))
            )
        )
    if not fits:
        raise PolicyError(f"an agent of other actions cannot play {environment.id}, which takes {actions}")
