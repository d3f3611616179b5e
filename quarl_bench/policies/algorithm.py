"""What an algorithm is: one entry, which everything that depends on it asks. Standard library only.

Ours stand in training/algorithms.py, others' are entry points of `quarl_bench.algorithms`. A name `module:attribute`
is imported when it is needed, so that a list of algorithms imports neither torch nor stable-baselines3.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quarl_bench.system.registry import Registry, load

Settings = Mapping[str, Any]  # of a model, as a .zip prints them
CONTRIB = "quarl_bench.policies.sources.sb3.contrib:list_contrib"  # algorithms that are read, and not trained here


@dataclass(frozen=True, eq=False)
class SavedForm:
    """Where a policy lies in a .zip of stable-baselines3, by names of its weights."""

    module: str  # of its policy classes
    parts: tuple[str, ...]  # what its weights' names may begin with
    extractors: tuple[str, ...]  # of features; the first whose weights are there
    hidden: tuple[str, ...]  # sequences of hidden layers
    output: str
    activation: str  # between layers, unless the .zip says another
    recurrent: str = ""  # an LSTM between the features and the hidden layers
    limited: str = ""  # a weight whose presence says that outputs are clipped before the tanh
    normed: bool = False  # running means and variances stand in front of its layers
    averaged: bool = False  # it has several outputs an action, whose mean counts
    is_squashed: Callable[[Settings], bool] | None = None  # whether actions pass a tanh; None: as the algorithm's head
    is_own: Callable[[Settings], bool] = lambda _: True  # tells it from others with the same policy classes


@dataclass(frozen=True, eq=False)
class Algorithm:
    """One algorithm on stable-baselines3's base classes.

    `network` reads the acting network of a model's policy: modules, head and limit, as `sb3.model.ActingNetwork` says.
    `aware` and `half` are policy classes by the policy that a recipe names, "mixed" being images, in any precision.
    """

    name: str
    model: str  # its class
    recipes: str | Mapping[str, Mapping[str, Any]]  # package:file.toml, or the tables themselves
    network: str
    networks: tuple[str, ...] = ()  # attributes of the policy: the acting network, and its targets; none: the policy
    head: str = "clip"  # of continuous actions, or tanh
    discrete: bool = True  # which actions it has
    continuous: bool = True
    actor_critic: bool = False  # on-policy; its outputs are those of a distribution that it draws from
    masked: bool = False  # its policies choose within the masks of their environment
    aware: Mapping[str, str] = field(default_factory=dict)  # with quantizers
    half: Mapping[str, str] = field(default_factory=dict)  # with hidden layers in half precision
    normed: str = ""  # with normalized hidden layers
    saved: SavedForm | None = None
    extra: str = "sb3"  # which brings its class

    def list_networks(self, policy: Any) -> list[Any]:
        """The networks of a model's policy that act, and their targets."""
        return [getattr(policy, name) for name in self.networks] or [policy]

    def is_model(self, made: type) -> bool:
        """Whether `made` is its class; nothing is imported, as a class that exists has been."""
        module, _, attribute = self.model.partition(":")
        return getattr(sys.modules.get(module), attribute, None) is made


ALGORITHMS = Registry(
    "algorithm",
    "quarl_bench.algorithms",
    Algorithm,
    {
        name: f"quarl_bench.training.algorithms:{name.upper()}"
        for name in ("a2c", "ddpg", "dqn", "ppo", "recurrentppo", "sac", "td3")
    },
)


def find_algorithm(name: str) -> Algorithm:
    """The algorithm called `name`; SpecError with the known ones when there is none."""
    return ALGORITHMS.find(name)


def list_contrib() -> tuple[Algorithm, ...]:
    """Those of sb3-contrib that are read."""
    found: tuple[Algorithm, ...] = load(CONTRIB)()
    return found


def list_readable() -> list[Algorithm]:
    """Every algorithm whose models and zips are read: those of the registry, and those of sb3-contrib."""
    return [*ALGORITHMS.values(), *list_contrib()]


def is_actor_critic(name: object) -> bool:
    """Whether it is an algorithm whose outputs are those of a distribution that it draws from."""
    if isinstance(name, str) and name in ALGORITHMS:
        return find_algorithm(name).actor_critic
    return any(algorithm.name == name and algorithm.actor_critic for algorithm in list_contrib())


def is_sampled(name: str, *, atari: bool) -> bool:
    """Whether a policy is also judged with sampled actions: its outputs are logits, and the game is deterministic.

    The argmax policy of an actor-critic can be caught in a loop that coarser weights happen to leave.
    """
    return atari and is_actor_critic(name)
