"""Masks of actions, which travel with the observation that they belong to.

An observation and its mask are one record of a structured array. So whatever picks, joins, compares or hashes
observations does the same with masks, and never mistakes two states that differ in them alone.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.policies.head import Masks

OBSERVATION, MASK = "observation", "mask"  # the fields of a record


def add_masks(observations: NDArray[Any], masks: Masks) -> NDArray[Any]:
    """Records (n,) of observations (n, *shape) and masks (n, choices), True for what is allowed."""
    kind = np.dtype([(OBSERVATION, observations.dtype, observations.shape[1:]), (MASK, masks.dtype, masks.shape[1:])])
    records = np.empty(len(observations), kind)
    records[OBSERVATION], records[MASK] = observations, masks
    return records


def read_masks(states: Any) -> Masks | None:
    """The masks (n, choices) of records; None of anything else."""
    kind = getattr(states, "dtype", None)
    if kind is None or kind.names is None:
        return None
    masks: Masks = states[MASK]
    return masks


def drop_masks(states: Any) -> Any:
    """The observations (n, *shape) of records, as an array of their own; anything else as it is."""
    return states if read_masks(states) is None else np.array(states[OBSERVATION])  # a field's strides are any
