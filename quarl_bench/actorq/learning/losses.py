"""What the learner minimizes: pure functions of tensors."""

import torch
from torch.nn.functional import log_softmax, smooth_l1_loss

Tensor = torch.Tensor


def find_value_loss(values: Tensor, actions: Tensor, goal: Tensor) -> Tensor:
    """Huber loss of the values (n, actions) of the actions taken (n,) against `goal` (n,)."""
    return smooth_l1_loss(values.gather(1, actions[:, None])[:, 0], goal)


def find_double_q_targets(rewards: Tensor, discounts: Tensor, chosen_by: Tensor, valued_by: Tensor) -> Tensor:
    """(n,) rewards + discount * the target net's value of the online net's choice (van Hasselt et al. 2016)."""
    best = chosen_by.argmax(1, keepdim=True)
    return rewards + discounts * valued_by.gather(1, best)[:, 0]


def find_v_trace(
    log_ratios: Tensor, rewards: Tensor, discounts: Tensor, values: Tensor, ahead: Tensor, goes_on: Tensor
) -> tuple[Tensor, Tensor]:
    """V-trace (Espeholt et al. 2018, equation 1): goals of the values, and advantages weighted for the gradient.

    All (runs, steps): `log_ratios` are the learner's log-probabilities of the actions minus the actor's, `ahead` the
    values of what was seen behind each step, `goes_on` whether the next step is of the same episode. Ratios above 1
    count as 1.
    """
    weights = log_ratios.exp().clamp(max=1.0)
    errors = weights * (rewards + discounts * ahead - values)
    corrections = torch.zeros_like(values)  # goals minus values
    behind = torch.zeros_like(values[:, 0])
    for step in reversed(range(values.shape[1])):
        corrections[:, step] = errors[:, step] + behind * goes_on[:, step] * discounts[:, step] * weights[:, step]
        behind = corrections[:, step]
    after = torch.nn.functional.pad(corrections[:, 1:], (0, 1)) * goes_on
    return values + corrections, weights * (rewards + discounts * (ahead + after) - values)


def make_atoms(support: tuple[float, float], atoms: int) -> Tensor:
    """The returns (atoms,) that a distributional critic tells apart."""
    return torch.linspace(*support, atoms)


def project(probabilities: Tensor, rewards: Tensor, discounts: Tensor, atoms: Tensor) -> Tensor:
    """Distribution (n, atoms) of rewards + discount * return on the atoms (Bellemare et al. 2017, algorithm 1).

    Mass between two atoms is shared by distance, beyond the ends it falls on them; rows keep their sum and, inside the
    support, their mean.
    """
    step = atoms[1] - atoms[0]
    moved = (rewards[:, None] + discounts[:, None] * atoms).clamp(atoms[0], atoms[-1])
    place = ((moved - atoms[0]) / step).clamp(0, len(atoms) - 1)
    low = place.floor().long().clamp(max=len(atoms) - 2)
    share = place - low
    out = torch.zeros_like(probabilities)
    out.scatter_add_(1, low, probabilities * (1 - share))
    return out.scatter_add_(1, low + 1, probabilities * share)


def find_cross_entropy(logits: Tensor, goal: Tensor) -> Tensor:
    """Mean over rows of -sum goal * log softmax(logits)."""
    return -(goal * log_softmax(logits, 1)).sum(1).mean()


def average(logits: Tensor, atoms: Tensor) -> Tensor:
    """Expected return (n,) of a distributional critic."""
    return logits.softmax(1) @ atoms
