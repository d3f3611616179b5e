"""On which environment seeds a policy is scored, chosen and calibrated, and on how many of them."""

from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Self

from quarl_bench.environments.classic_control import DYNAMICS
from quarl_bench.environments.registry import Environment

if TYPE_CHECKING:
    from quarl_bench.evaluation.profiles import Profile

# Disjoint ranges: what selects or calibrates a policy never scores it.
TEST_SEEDS = 10_000
VALIDATION_SEEDS = 20_000
CALIBRATION_SEEDS = 30_000


@dataclass(frozen=True)
class Protocol:
    """How cells are evaluated: episodes per policy, and how many policies are trained where training is allowed.

    Where it is not, a cell has all the policies that are there (training seeds 0, 1, ...), at least one.
    """

    policies: int
    episodes: int
    games: int | None = None  # episodes on Atari, where that is another number
    cheap: int | None = None  # the same on classic control, whose dynamics are our own
    patience: int | None = None  # steps of an Atari game without a point, behind which it ends

    @classmethod
    def of(cls, policies: int, profile: "Profile") -> Self:
        """So many policies of each cell, played as the profile says."""
        return cls(policies, *astuple(profile))

    def shorten(self, environment: Environment) -> Environment:
        """The environment as it is played here."""
        return replace(environment, patience=self.patience) if environment.atari else environment

    def list_seeds(self, environment: Environment) -> range:
        """The environment seeds that score a policy here."""
        other = self.games if environment.atari else self.cheap if environment.id in DYNAMICS else None
        return list_test_seeds(other or self.episodes)


def list_test_seeds(episodes: int) -> range:
    """The first environment seeds of those that score policies; every scheme of a cell plays the same."""
    return range(TEST_SEEDS, TEST_SEEDS + episodes)


def list_validation_seeds(episodes: int) -> range:
    """The first of those that choose: a checkpoint of a training, a form of a repair."""
    return range(VALIDATION_SEEDS, VALIDATION_SEEDS + episodes)
