"""Masks of actions as environments give them: which actions they allow, anew before every step.

An environment gives them by a method `action_masks()`, as sb3-contrib has it, or as `action_mask` of its info. A mask
has an entry for each action: of a MultiDiscrete the parts behind one another, of a MultiBinary two for each bit.
"""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import SpecError

METHOD, ENTRY = "action_masks", "action_mask"


def find_masks(bare: gymnasium.Env[Any, Any]) -> Callable[[], Any] | None:
    """The method of an environment, or of a wrapper of it, that gives its masks; None where it has none."""
    try:
        method = bare.get_wrapper_attr(METHOD)
    except AttributeError:
        return None
    return method if callable(method) else None


def find_mask(method: Callable[[], Any] | None, info: Mapping[str, Any]) -> Any:
    """What an environment gives as a mask now, by its method or in its info; None where it gives none."""
    return info.get(ENTRY) if method is None else method()


def read_mask(found: Any, choices: tuple[int, ...]) -> NDArray[np.bool_]:
    """A mask as one vector (sum of choices,); SpecError, in a few words, for what is no mask of these choices."""
    parts = [np.asarray(part) for part in found] if isinstance(found, list | tuple) else [np.asarray(found)]
    flat = np.concatenate([part.reshape(-1) for part in parts]) if parts else np.empty(0)
    if len(flat) != sum(choices):
        raise SpecError(f"a mask has {len(flat)} entries, and there are {sum(choices)} actions")
    if flat.dtype.kind not in "biuf" or not np.isin(flat, (0, 1)).all():
        raise SpecError(f"a mask of dtype {flat.dtype} has other values than 0 and 1")
    mask = flat.astype(np.bool_)
    for index, part in enumerate(np.split(mask, np.cumsum(choices)[:-1])):
        if not part.any():
            where = f" in part {index}" if len(choices) > 1 else ""
            raise SpecError(f"a mask forbids every action{where}")
    return mask
