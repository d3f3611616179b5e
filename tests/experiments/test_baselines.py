"""Committed policies play as their manifests say, and as well as the published ones; weaker ones are not committed."""

import csv
import math
from collections import defaultdict

import pytest

from quarl_bench.environments.registry import identify_environment
from quarl_bench.evaluation.measurement_key import runtime_versions
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.experiments.cells import MOST, NEEDLESS
from quarl_bench.judging.claim import expand_cases
from quarl_bench.papers.registry import read_catalog
from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import ZOO
from tests.support.places import POLICIES, ROOT
from tests.support.sizes import EXHAUSTIVE, choose, pick_policies

FOLDERS = sorted(POLICIES.glob("*-seed*")) if POLICIES.is_dir() else []
LONG = ("beamrider", "breakout", "mspacman", "a2c-pong", "qbert", "seaquest")  # SpaceInvaders stands for them
PLAYED = [
    name
    for name in pick_policies([folder.name for folder in FOLDERS], per_environment=True)
    if EXHAUSTIVE or not any(game in name for game in LONG)
]
EPISODES, GAMES = choose(1, 20), choose(1, 3)  # the second for Atari
# MountainCarContinuous is published without a usable SD; 90 counts as solved. PPO's Pong was trained for a fifth of the
# published steps; 18 with sampled actions counts as won.
BARS = {"mountaincarcontinuous": 90.0, "ppo-pong": 18.0}
# Cells whose mean is lower: a finding, which README shows; it stands here until further seeds lift it.
BELOW = {
    "a2c-beamrider",  # 632.9 with sampled actions: after a tenth of the published steps, a fifth of the paper's return
    "a2c-qbert",  # 446.5 with sampled actions: after 7% of the published steps, a tenth of the paper's return
    "a2c-seaquest",  # 827.8 with sampled actions: after a sixth of the published steps, 106% of the paper's return
    "a2c-halfcheetahbullet",  # 2179 and 1944, mean 2061.5: 9.9 under the bar
    "ddpg-bipedalwalker",  # 23.1: 32.8 under the bar; it learns and forgets (63.7 at best, -130 at the end)
    "ddpg-walker2dbullet",  # 356.6 (SD 456) after a quarter of the published steps: a fifth of the paper's return
    "dqn-breakout",  # 44.2 after a fifth of the published steps: 12% of the zoo's return, 21% of the paper's
    "dqn-pong",  # 17.5: 2.4 under the bar, after 11% of the published steps
    "dqn-qbert",  # 643.0 after a fortieth of the published steps: all of the paper's return, 7% of the zoo's
    "dqn-seaquest",  # 250.6 after a fiftieth of the published steps: 15% of the paper's return
    "ppo-beamrider",  # 523.3 with sampled actions: after a twentieth of the published steps, a third of the paper's
    "ppo-breakout",  # 202.4, and 168.6 with sampled actions: after three tenths of the published steps
    "ppo-qbert",  # 4947.5 after a quarter of the published steps: a third of the paper's return and of the zoo's
    "ppo-seaquest",  # 1737.8 with sampled actions: 11.7 under the bar, 98% of the paper's return (1760.2 by argmax)
    "ppo-walker2dbullet",  # 2021.4: 74.7 under the bar, that is 96% of an unusually steady agent
    "sac-antv4-lqcc",  # 2777 after three tenths of the published steps, as the six below
    "sac-halfcheetahv4-i8c3o8-lqcc",  # 8003
    "sac-halfcheetahv4-lqcc",  # 8500
    "sac-hopperv4-lqcc",  # 1457
    "sac-humanoidv4-lqcc",  # 1412: returns still grow; the paper has 1,000,000 steps
    "sac-humanoidv4-i4c3o8h16-lqcc",  # 3282: one of three has reached the published return, two still learn
    "sac-walker2dv4-lqcc",  # 3860
}
# Its argmax games go in circles until they are cut off, after 27,000 steps; it is played with sampled actions.
CIRCLING = {"a2c-breakout-seed0"}
MIXED = ("ponga", "pongb", "pongc")  # one game with networks of three sizes
SEEDS = 3  # whose mean is compared with the published score; further ones are there to decide close verdicts


@pytest.mark.parametrize("name", PLAYED)
def test_the_return_is_the_manifests(name):
    stored = load_stored(POLICIES / name)
    sampled = name in CIRCLING
    score = stored.metadata["sampled_return" if sampled else "return"]
    first = score["first_environment_seed"]
    environment = identify_environment(
        stored.metadata["environment"], time_feature=stored.metadata.get("time_feature", False)
    )
    episodes = GAMES if environment.atari else EPISODES
    returns = roll_out(stored.policy, environment, range(first, first + episodes), sampled=sampled).returns
    # The first of the same episodes: their mean scatters by the manifest's SD around the manifest's mean.
    assert abs(returns.mean() - score["mean"]) <= 4 * score["sd"] / math.sqrt(episodes) + 1e-6 * abs(score["mean"])
    planned = stored.metadata["recipe"]["timesteps"]
    trained = stored.metadata.get("run", {}).get("timesteps", planned)  # fewer where the manifest says so
    assert stored.metadata["curve"][-1]["timesteps"] >= trained


def test_every_cell_reaches_its_published_score_less_one_sd_or_is_known_not_to():
    cells = defaultdict(list)
    for folder in FOLDERS:
        about = load_stored(folder).metadata
        if about["published"] is not None and about["seed"] < SEEDS:
            cells[folder.name.rpartition("-")[0]].append(about)
    if not cells:
        pytest.skip(f"no baselines in {POLICIES}")
    below = set()
    for name, members in cells.items():
        published = members[0]["published"]
        bar = BARS.get(name.split("-")[1], BARS.get(name)) or published["mean"] - published["sd"]
        scores = [about.get("sampled_return", about["return"])["mean"] for about in members]
        if sum(scores) / len(scores) < bar:
            below.add(name)
    assert below == BELOW


BENCHES = ROOT / "benches"
STORED = sorted(BENCHES.glob("*/*/*.csv"))


def read_rows(path):
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


@pytest.mark.skipif(not FOLDERS, reason=f"no baselines in {POLICIES}")
def test_stored_numbers_are_of_these_policies_and_versions():
    """Where they are not, nothing is compared, and no case fails for it."""
    cases = {item.id: item.case for claim in read_catalog() if claim.judgement.each for item in expand_cases(claim)}
    hashes, repaired = defaultdict(list), defaultdict(list)  # these by cell and bits
    for folder in sorted(FOLDERS, key=lambda folder: int(folder.name.rpartition("seed")[2])):
        cell = folder.name.rpartition("-")[0]
        hashes[cell].append(load_stored(folder).sha256[:16])
        for bits in (8, 6, 4, 3, 2):
            form = POLICIES.parent / "repaired" / f"{folder.name}-int{bits}"
            if form.exists() or bits == NEEDLESS:
                repaired[cell, bits].append(load_stored(form).sha256[:16] if form.exists() else hashes[cell][-1])
    others = {}
    for path in STORED:
        case, rows = cases.get(path.name.split(".")[0]), read_rows(path)
        if case is None or "policy" not in rows[0] or case.origin == ZOO or case.environment in MIXED:
            continue  # boards, other people's agents, and what was trained in another precision
        scheme = Scheme.parse(case.scheme)
        learned = scheme.trained
        cell = "-".join(part for part in (case.algo, case.environment, learned and case.scheme, case.origin) if part)
        known = repaired[cell, scheme.bit_width] if scheme.repaired else hashes[cell]
        absent = runtime_versions(case).keys() - set(rows[0])
        if absent or list(dict.fromkeys(row["policy"] for row in rows)) != known[:MOST]:
            others[path.name] = f"without {', '.join(absent)}" if absent else "other policies"
    assert not others, "measure again with --force-regen"
