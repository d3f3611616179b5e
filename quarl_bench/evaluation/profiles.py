"""How much a run plays: its episodes per policy, by name."""

from dataclasses import dataclass, replace

EPISODES = 100  # per policy
GAMES = 114  # the fewest seeds that meet all 30 starts of an Atari game: what played them all is exact


@dataclass(frozen=True)
class Profile:
    """Episodes per policy, on Atari (`games`) and on classic control (`cheap`) other numbers.

    A game on Atari ends behind `patience` steps without a point: argmax may go round in circles for 27,000.
    """

    episodes: int = EPISODES
    games: int = GAMES
    cheap: int = EPISODES
    patience: int | None = None


PROFILES = {
    "quick": Profile(episodes=20, games=4, patience=1_000),  # fewer of what takes seconds; on Atari one does
    "nightly": Profile(patience=2_500),
    "paper": Profile(),
}


def choose_profile(name: str, episodes: int | None = None) -> Profile:
    """The profile of this name, with so many episodes of everything where a number is given."""
    profile = PROFILES[name]
    return profile if episodes is None else replace(profile, episodes=episodes, games=episodes, cheap=episodes)
