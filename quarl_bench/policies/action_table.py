"""The last step of an integer controller as a table: from an output integer to the action it stands for."""

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.net import Floats


def tabulate_actions(policy: IntegerPolicy) -> Floats:
    """Actions (levels, actions) for every output integer, from the lowest upwards: tanh, or clip, and rescaling.

    What section 2.3 of LQCC stores instead of computing a tanh. PolicyError for policies that choose by argmax.
    """
    if policy.head.discrete:
        raise PolicyError("an argmax head compares outputs with each other; only continuous actions have a table")
    output = policy.net.output
    if output.wide:
        raise PolicyError("wide outputs (acc) have too many integers for a table of actions; leave out acc")
    levels = np.arange(output.format.minimum, output.format.maximum + 1)
    outputs = np.repeat(output.dequantize(levels)[:, None], policy.net.outputs, axis=1)
    return np.asarray(policy.head.act(outputs), dtype=np.float32)


def look_up(table: Floats, outputs: Integers, lowest: int) -> NDArray[np.float32]:
    """Actions (n, actions) for output integers (n, actions); `lowest` is the integer of the table's first row."""
    return np.asarray(table[outputs - lowest, np.arange(table.shape[1])])
