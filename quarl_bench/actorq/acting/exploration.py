"""How actors explore: every actor its own rung of a ladder, and how far apart two policies then are."""

import numpy as np
from numpy.typing import NDArray

from quarl_bench.quantization.net import Floats


def choose_exploration(ends: tuple[float, float], actor: int, actors: int) -> float:
    """The rung of one of `actors`, evenly spaced in logarithm between the ends; the middle one for a single actor."""
    low, high = ends
    share = 0.5 if actors == 1 else actor / (actors - 1)
    return float(low ** (1 - share) * high**share)


class CorrelatedNoise:
    """Gaussian noise of standard deviation 1 that keeps `correlation` from step to step (0: white)."""

    def __init__(self, size: int, correlation: float, generator: np.random.Generator) -> None:
        self._generator, self._keep = generator, correlation
        self._fresh = float(np.sqrt(1 - correlation**2))
        self._value = generator.standard_normal(size)

    def draw(self) -> NDArray[np.float64]:
        """Advance the process by one environment step and return its value (size,), one number an action dimension."""
        self._value = self._keep * self._value + self._fresh * self._generator.standard_normal(len(self._value))
        return self._value


def draw(logits: Floats, generator: np.random.Generator) -> tuple[int, float]:
    """An index drawn from the softmax of `logits` (actions,), and the logarithm of its probability."""
    log_probs = logits - np.logaddexp.reduce(logits)
    chosen = int((log_probs + generator.gumbel(size=len(logits))).argmax())
    return chosen, float(log_probs[chosen])


def diverge_softmax(actor: Floats, learner: Floats) -> float:
    """Mean over states of KL(actor || learner) between the softmax policies of these logits (n, actions)."""
    p, q = (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True) for logits in (actor, learner))
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def diverge_greedy(actor: NDArray[np.int64], learner: NDArray[np.int64], epsilon: float, actions: int) -> float:
    """Mean over states of KL(actor || learner) between epsilon-greedy policies with these greedy actions (n,).

    It is 0 where the greedy actions agree; where they differ, two probabilities change places.
    """
    rest = epsilon / actions
    best = 1 - epsilon + rest
    return float((actor != learner).mean() * (best - rest) * np.log(best / rest))


def diverge_gaussian(actor: Floats, learner: Floats, sd: float) -> float:
    """Mean over states of KL(actor || learner) between Gaussians of these means (n, actions) and one SD."""
    return float((((actor - learner) / sd) ** 2).sum(axis=1).mean() / 2)
