"""A quantized policy beside its original, state by state: what it does and with which probabilities.

QuaRL's script compared actions by kernel densities of whole episodes. For discrete actions that is ill-defined (the
density of indices depends on a bandwidth, and does not exist when one action fills an episode), and it says nothing
about states. Here both policies are asked in the same states.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.agreement import count_agreement
from quarl_bench.policies.algorithm import is_actor_critic
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.masks import read_masks
from quarl_bench.policies.policy import Policy, States


@dataclass(frozen=True)
class StateComparison:
    """`agreement` is the share of states with the same action (continuous ones: within 1% of their range).

    `kl` is the mean over states of KL(original || quantized) in nats, the sum over the parts of an action; None where
    outputs are no logits.
    """

    states: int
    agreement: float
    kl: float | None


def compare_states(reference: Policy, candidate: Policy, observations: States, algo: str | None) -> StateComparison:
    """Ask both policies in `observations` (n, ...); `algo` says whether outputs are logits of a softmax."""
    if not len(observations):
        raise PolicyError("no states to compare policies in; pass at least one observation")
    original, quantized = reference.outputs(observations), candidate.outputs(observations)
    head, masks = reference.head, read_masks(observations)
    agreed = count_agreement(candidate.head.act(quantized, masks), head.act(original, masks), head)
    softmax = head.discrete and is_actor_critic(algo)
    kl = _mean_divergence(head, *(head.weigh(outputs, masks) for outputs in (original, quantized))) if softmax else None
    return StateComparison(len(observations), agreed / len(observations), kl)


def _mean_divergence(head: ActionHead, original: NDArray[Any], quantized: NDArray[Any]) -> float:
    total = 0.0
    for before, after in zip(head.split(original), head.split(quantized), strict=True):
        log_p, log_q = _log_softmax(before), _log_softmax(after)
        total += float((np.exp(log_p) * (log_p - log_q)).sum(axis=1).mean())
    return total


def _log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
