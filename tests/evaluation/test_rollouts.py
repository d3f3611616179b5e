"""Rollouts and measurements: every episode once, whatever else is played beside it."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import stable_baselines3 as sb3
from numpy.typing import NDArray
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from quarl_bench.environments.atari.games import STACK, count_noops
from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation import rollouts as evaluate
from quarl_bench.evaluation.batches.games import GameEpisodes
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS, TEST_SEEDS, VALIDATION_SEEDS
from quarl_bench.evaluation.rollouts import Rollouts, measure, roll_out
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import Policy, PolicyNet
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import make_linear_policy, normal

CARTPOLE = Environment("cartpole", "CartPole-v1")
PENDULUM = Environment("pendulum", "Pendulum-v1")
UNSTEADY = make_linear_policy(np.array([[0, 0, 0, 0], [-1, 0, 5, 0.5]]))  # some 100 to 400 steps
LEFT = make_linear_policy(np.array([[0, 0, 0, 0], [0, 0, 0, 0]]))  # action 0, about 9 steps
SWINGING = make_linear_policy(np.array([[0.0, 1.0, -0.7]]), (-2, 2))
HESITATING = make_linear_policy(np.array([[0, 0, 0, 0], [-0.1, 0, 1, 0.1]]))  # logits that leave both actions likely


def play_alone(policy: Policy, environment: Environment, seed: int) -> tuple[float, int]:
    """Return and length of one episode of `gymnasium.make`."""
    env = gymnasium.make(environment.id)
    observation, _ = env.reset(seed=seed)
    total, length, done = 0.0, 0, False
    while not done:
        action = policy.act(observation[None])[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        total, length, done = total + float(reward), length + 1, terminated or truncated
    env.close()
    return total, length


@pytest.mark.parametrize("policy, environment", [(UNSTEADY, CARTPOLE), (LEFT, CARTPOLE), (SWINGING, PENDULUM)])
def test_returns_and_lengths_are_those_of_single_episodes(policy: Policy, environment: Environment) -> None:
    """Short episodes among long ones are counted once."""
    seeds = [7, 3, 10_000, 8]
    rollouts = roll_out(policy, environment, seeds)
    alone = [play_alone(policy, environment, seed) for seed in seeds]
    assert rollouts.returns.tolist() == [total for total, _ in alone]
    assert rollouts.lengths.tolist() == [length for _, length in alone]
    assert rollouts.seeds == tuple(seeds)


def test_an_episode_does_not_depend_on_what_is_played_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = list(range(100, 140))
    together = roll_out(UNSTEADY, CARTPOLE, seeds)
    assert together.lengths.min() < together.lengths.max()
    for order in (seeds[::-1], seeds[5:9], seeds[:1]):
        other = roll_out(UNSTEADY, CARTPOLE, order)
        assert other.returns.tolist() == [together.returns[seeds.index(seed)] for seed in order]
        assert other.starts == tuple(together.starts[seeds.index(seed)] for seed in order)
    monkeypatch.setattr(evaluate, "SIDE_BY_SIDE", 7)
    chunked = roll_out(UNSTEADY, CARTPOLE, seeds, reference=LEFT, keep_every=1)
    assert chunked.returns.tolist() == together.returns.tolist()
    assert chunked.starts == together.starts
    assert chunked.observations is not None
    assert len(chunked.observations) == chunked.lengths.sum()


def test_starts_name_episodes() -> None:
    starts = roll_out(LEFT, CARTPOLE, [1, 2, 1]).starts
    assert starts[0] == starts[2] != starts[1]
    assert roll_out(UNSTEADY, CARTPOLE, [1]).starts == starts[:1]


@pytest.mark.parametrize("environment", [CARTPOLE, PENDULUM], ids=["discrete", "continuous"])
def test_a_policy_agrees_with_itself(environment: Environment) -> None:
    policy = UNSTEADY if environment is CARTPOLE else SWINGING
    assert roll_out(policy, environment, range(5), reference=policy).agreement == 1.0
    assert roll_out(policy, environment, range(5)).agreement is None


def test_agreement_is_the_share_of_visited_states() -> None:
    rollouts = roll_out(UNSTEADY, CARTPOLE, range(20), reference=LEFT, keep_every=1)
    assert rollouts.observations is not None
    assert rollouts.agreement == pytest.approx((UNSTEADY.act(rollouts.observations) == 0).mean(), abs=1e-12)
    assert 0.2 < rollouts.agreement < 0.8


@pytest.mark.parametrize("offset, agreement", [(0.0, 1.0), (0.009, 1.0), (0.011, 0.0)])
def test_continuous_actions_agree_within_one_percent_of_the_range(offset: float, agreement: float) -> None:
    class Shifted:
        head = SWINGING.head

        def act(self, observations: Any) -> Any:
            return SWINGING.act(observations) * 0 + np.float32(4 * offset)

    still = make_linear_policy(np.zeros((1, 3)), (-2, 2))
    assert roll_out(still, PENDULUM, [0], reference=Shifted()).agreement == agreement


def test_visited_states_begin_with_the_starts() -> None:
    rollouts = roll_out(UNSTEADY, CARTPOLE, [5, 6], keep_every=1)
    env = gymnasium.make("CartPole-v1")
    assert rollouts.observations is not None
    for row, seed in enumerate((5, 6)):
        np.testing.assert_array_equal(rollouts.observations[row], env.reset(seed=seed)[0])
    assert rollouts.observations.shape == (rollouts.lengths.sum(), 4)
    assert roll_out(UNSTEADY, CARTPOLE, [5]).observations is None


def test_stable_baselines_finds_the_same_returns() -> None:
    """Untrained, so that episodes differ; one call per seed, because its own loop reseeds nothing in between."""
    vector = DummyVecEnv([lambda: Monitor(gymnasium.make("CartPole-v1"))])
    model = sb3.PPO("MlpPolicy", vector, seed=3, device="cpu")
    seeds = range(10_000, 10_012)
    returns: list[float] = []
    lengths: list[int] = []
    for seed in seeds:
        vector.seed(seed)
        rewards, steps = evaluate_policy(model, vector, 1, deterministic=True, return_episode_rewards=True)
        returns += rewards
        lengths += steps
    found = roll_out(extract(model), CARTPOLE, seeds)
    assert found.returns.tolist() == returns
    assert found.lengths.tolist() == lengths
    assert len(set(lengths)) > 1


@pytest.mark.parametrize("seeds", [[], (), range(0)], ids=str)
def test_no_seeds_are_refused(seeds: Sequence[int]) -> None:
    with pytest.raises(PolicyError, match="at least one episode"):
        roll_out(LEFT, CARTPOLE, seeds)


def test_a_policy_of_another_environment_is_refused() -> None:
    with pytest.raises(PolicyError, match="pass a batch of this policy's environment"):
        roll_out(SWINGING, CARTPOLE, [1])


def test_seed_ranges_are_disjoint() -> None:
    """With room for 10,000 episodes each."""
    firsts = sorted([0, TEST_SEEDS, VALIDATION_SEEDS, CALIBRATION_SEEDS])
    assert np.diff(firsts).min() >= 10_000


def test_measurement_of_several_policies() -> None:
    policies = [("a", UNSTEADY), ("b", LEFT)]
    seeds = [3, 4, 5]
    measurement = measure(policies, CARTPOLE, seeds, references=[UNSTEADY, UNSTEADY])
    rows: list[Rollouts] = [roll_out(policy, CARTPOLE, seeds, reference=UNSTEADY) for _, policy in policies]
    assert measurement.policies == ("a", "b")
    assert measurement.returns == tuple(tuple(row.returns.tolist()) for row in rows)
    assert measurement.lengths == tuple(tuple(row.lengths.tolist()) for row in rows)
    assert measurement.agreement == (1.0, rows[1].agreement)
    assert measurement.episodes == rows[0].starts
    assert type(measurement).from_dict(measurement.as_dict()) == measurement
    assert measure(policies, CARTPOLE, seeds).agreement is None


@pytest.mark.parametrize("count", [1, 30, 500])
def test_calibration_states(count: int) -> None:
    states = collect_observations(UNSTEADY, CARTPOLE, count, CALIBRATION_SEEDS)
    assert states.shape == (count, 4)
    assert states.dtype == np.float32
    np.testing.assert_array_equal(
        states[0], roll_out(UNSTEADY, CARTPOLE, [CALIBRATION_SEEDS], keep_every=1).observations[0]
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_committed_policy_scores_what_its_manifest_says(baseline, seed: int) -> None:
    stored = baseline(f"ppo-cartpole-seed{seed}")
    claimed = stored.metadata["return"]
    first = claimed["first_environment_seed"]
    returns = roll_out(stored.policy, find_environment("cartpole"), range(first, first + claimed["episodes"])).returns
    assert (float(returns.mean()), float(returns.std(ddof=1))) == (claimed["mean"], claimed["sd"])


def test_two_bits_hurt_a_committed_policy(baseline) -> None:
    """The negative control: a silent fp32 fallback would keep the score."""
    policy = baseline("ppo-cartpole-seed2").policy
    environment = find_environment("cartpole")
    states = collect_observations(policy, environment, 2000, CALIBRATION_SEEDS)
    means = {
        name: roll_out(policy.quantize(Scheme.parse(name), states), environment, range(10)).returns.mean()
        for name in ("w8", "int8", "int2")
    }
    assert min(means["w8"], means["int8"]) > 450
    assert means["int2"] < 100


def make_image_policy(seed: int) -> PolicyNet:
    """Breakout, badly: a life lasts some 20 to 80 steps."""
    rng = np.random.default_rng(seed)
    layers = (
        Conv2d(normal(rng, 4, 4, 8, 8, spread=1 / 16), normal(rng, 4, spread=0.1), 8, Activation.RELU),
        Linear(normal(rng, 4, 400, spread=1 / 20), normal(rng, 4, spread=0.1)),
    )
    transform = ObservationTransform((4, 84, 84), image=True)
    return PolicyNet(transform, Net((4, 84, 84), layers), ActionHead(HeadKind.ARGMAX))


def make_constant_policy(*logits: float) -> PolicyNet:
    layer = Linear(np.zeros((len(logits), 4), np.float32), np.float32(logits))
    return PolicyNet(ObservationTransform((4,)), Net((4,), (layer,)), ActionHead(HeadKind.ARGMAX))


@pytest.fixture
def breakout(require) -> Environment:
    require("atari")
    return find_environment("breakout")


def test_games_of_equal_starts_are_played_once(breakout: Environment) -> None:
    seeds = [1, 20_000, 0, 2, 1]
    policy, other = make_image_policy(2), make_image_policy(3)
    noops = [count_noops(seed) for seed in seeds]
    distinct = [noops.index(count) for count in dict.fromkeys(noops)]
    assert len(distinct) < len(set(seeds))  # two seeds share a start
    together = roll_out(policy, breakout, seeds, reference=other, keep_every=1)
    each = {seed: roll_out(policy, breakout, [seed], reference=other) for seed in set(seeds)}
    alone = [each[seed] for seed in seeds]
    assert together.seeds == tuple(seeds)
    assert together.starts == tuple(f"noops-{count}" for count in noops)
    assert together.returns.tolist() == [rollout.returns[0] for rollout in alone]
    assert together.lengths.tolist() == [rollout.lengths[0] for rollout in alone]
    assert len(set(together.lengths.tolist())) > 1
    assert together.observations is not None
    assert len(together.observations) == together.lengths[distinct].sum()
    agreed = sum(alone[i].agreement * alone[i].lengths[0] for i in distinct)
    assert together.agreement == pytest.approx(agreed / together.lengths[distinct].sum(), abs=1e-12)


def test_sampled_games_of_equal_starts_are_different_episodes(breakout: Environment) -> None:
    seeds = [20_000, 1, 20_001]
    policy = make_image_policy(2)
    assert count_noops(1) == count_noops(20_000)
    first, again = (roll_out(policy, breakout, order, sampled=True) for order in (seeds, seeds[::-1]))
    assert first.lengths[0] != first.lengths[1]
    assert first.returns.tolist() == again.returns[::-1].tolist()
    assert first.lengths.tolist() == again.lengths[::-1].tolist()


class Watched:
    """A net that keeps the images it was given."""

    def __init__(self, net: Net) -> None:
        self.net, self.input_shape, self.outputs = net, net.input_shape, net.outputs
        self.seen: list[bytes] = []

    def forward(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        self.seen += [image.tobytes() for image in x]
        return self.net.forward(x)


def test_no_image_is_looked_at_twice(breakout: Environment) -> None:
    # Whoever never moves loses some balls in the same way as others.
    still = make_image_policy(2)
    still.net.layers[-1].bias[0] = 1e6
    policy, reference = (Policy(p.transform, Watched(p.net), p.head) for p in (still, make_image_policy(3)))
    seeds = [0, 1, 2]
    rollouts = roll_out(policy, breakout, seeds, reference=reference, keep_every=1)
    images = {image.tobytes() for image in still.transform.apply(rollouts.observations)}
    for watched in (policy.net, reference.net):
        assert len(watched.seen) == len(set(watched.seen))
    assert set(policy.net.seen) == images
    assert set(reference.net.seen) < images  # as soon as it would have done something else, it is seldom asked
    assert len(images) < rollouts.lengths.sum()
    # About the same, asked in every state.
    expected = make_image_policy(3).act(rollouts.observations)
    assert rollouts.agreement == pytest.approx((expected == 0).mean(), abs=0.05)
    alone = [roll_out(still, breakout, [seed]) for seed in seeds]
    assert rollouts.returns.tolist() == [rollout.returns[0] for rollout in alone]


def test_calibration_does_not_play_on(breakout: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    step = GameEpisodes.step
    monkeypatch.setattr(GameEpisodes, "step", lambda *args: (steps.append(1), step(*args))[1])
    assert len(collect_observations(make_image_policy(2), breakout, 40, CALIBRATION_SEEDS)) == 40
    assert len(steps) <= 10 * STACK


def test_calibration_images_are_every_fourth(breakout: Environment) -> None:
    policy = make_image_policy(2)
    states = collect_observations(policy, breakout, 150, CALIBRATION_SEEDS)
    assert (states.shape, states.dtype) == ((150, STACK, 84, 84), np.uint8)
    seeds = range(CALIBRATION_SEEDS, CALIBRATION_SEEDS + 4)
    visited = roll_out(policy, breakout, seeds, keep_every=1)
    assert visited.observations is not None
    assert visited.lengths.min() > 100  # so that all four run side by side in these steps
    steps = visited.observations[: 100 * 4].reshape(100, 4, STACK, 84, 84)
    assert np.array_equal(states[:100], steps[::STACK].reshape(100, STACK, 84, 84))


def test_sampled_episodes_depend_on_their_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = list(range(100, 120))
    together = roll_out(HESITATING, CARTPOLE, seeds, sampled=True)
    assert together.lengths.tolist() != roll_out(HESITATING, CARTPOLE, seeds).lengths.tolist()
    for order in (seeds, seeds[::-1], seeds[5:9], seeds[:1]):
        other = roll_out(HESITATING, CARTPOLE, order, sampled=True)
        assert other.lengths.tolist() == [together.lengths[seeds.index(seed)] for seed in order]
        assert other.starts == tuple(together.starts[seeds.index(seed)] for seed in order)
    monkeypatch.setattr(evaluate, "SIDE_BY_SIDE", 7)
    assert roll_out(HESITATING, CARTPOLE, seeds, sampled=True).lengths.tolist() == together.lengths.tolist()


def test_all_policies_are_sampled_with_the_same_noise() -> None:
    # With noise of its own each would choose for itself: at even odds two coins agree half of the time.
    near = HESITATING.quantize(Scheme.parse("w8"))
    seeds = range(50)
    rollouts = [roll_out(policy, CARTPOLE, seeds, reference=near, sampled=True) for policy in (HESITATING, near)]
    assert rollouts[0].agreement is not None
    assert 0.98 < rollouts[0].agreement <= rollouts[1].agreement == 1.0
    copy = make_linear_policy(HESITATING.net.layers[0].weight.copy())
    assert roll_out(copy, CARTPOLE, seeds, sampled=True).lengths.tolist() == rollouts[0].lengths.tolist()


@pytest.mark.parametrize("logits, share", [((0.0, 0.0), 0.5), ((0.0, 0.0, -50.0), 0.5), ((np.log(3.0), 0.0), 0.75)])
def test_actions_are_sampled_by_their_softmax(logits: tuple[float, ...], share: float) -> None:
    # The reference always acts 0; over more than 15,000 steps a share has a standard error of less than 0.004.
    always = make_constant_policy(50.0, *[0.0] * (len(logits) - 1))
    rollouts = roll_out(make_constant_policy(*logits), CARTPOLE, range(1500), reference=always, sampled=True)
    assert rollouts.lengths.sum() > 15_000
    assert rollouts.agreement == pytest.approx(share, abs=0.015)


def test_a_sampled_measurement_has_an_episode_per_seed() -> None:
    measurement = measure([("a", HESITATING), ("b", LEFT)], CARTPOLE, [3, 4], [HESITATING, HESITATING], sampled=True)
    rows = [roll_out(p, CARTPOLE, [3, 4], reference=HESITATING, sampled=True) for p in (HESITATING, LEFT)]
    assert measurement.episodes == ("seed-3", "seed-4")
    assert measurement.returns == tuple(tuple(row.returns.tolist()) for row in rows)
    assert measurement.agreement == (1.0, rows[1].agreement)
    assert not measurement.deterministic
    assert type(measurement).from_dict(measurement.as_dict()) == measurement
    assert measure([("a", LEFT)], CARTPOLE, [3]).deterministic


class Corridor(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Starts where it always starts; the observation shows the distance walked, and not the ice."""

    observation_space = gymnasium.spaces.Box(-10, 10, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *, slippery: bool = False, hidden: bool = False) -> None:
        self._slippery, self._hidden = slippery, hidden

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._walked, self._ice = 0, self._hidden and bool(self.np_random.integers(2))
        return np.zeros(4, np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        slips = self._ice or (self._slippery and self.np_random.random() < 0.3)
        self._walked += 0 if slips else 2 * int(action) - 1
        observation = np.full(4, self._walked, np.float32)
        return observation, float(self._walked), abs(self._walked) > 3, False, {}


for name, arguments in {"Dry": {}, "Still": {}, "Icy": {"slippery": True}, "Dark": {"hidden": True}}.items():
    gymnasium.register(f"{name}Corridor-v0", entry_point=Corridor, max_episode_steps=30, kwargs=arguments)


@pytest.mark.parametrize(("name", "distinct"), [("Dry", 1), ("Icy", 20), ("Dark", 20)])
def test_equal_starts_are_one_episode_unless_equal_actions_lead_apart(name: str, distinct: int) -> None:
    corridor = Environment("corridor", f"{name}Corridor-v0")
    apart = [measure([("a", policy)], corridor, range(20)) for policy in (LEFT, UNSTEADY)]
    assert apart[0].distinct_episodes == distinct
    assert apart[0].episodes == apart[1].episodes  # whoever plays: cells are paired by name
    assert distinct > 1 or len(set(apart[0].returns[0])) == 1


def test_equal_starts_are_compared_once_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's simulator may be slow, and may be a process."""
    opened, steps, real = [0], [0], Corridor.step

    def init(corridor: Corridor) -> None:
        opened[0] += 1
        corridor._slippery = corridor._hidden = False

    def step(corridor: Corridor, action: np.int64) -> Any:
        steps[0] += 1
        return real(corridor, action)

    monkeypatch.setattr(Corridor, "__init__", init)
    monkeypatch.setattr(Corridor, "step", step)
    monkeypatch.setattr(Corridor, "close", lambda _: opened.__setitem__(0, opened[0] - 1))
    counts = []
    for _ in range(2):
        begin = steps[0]
        measure([("a", LEFT)], Environment("corridor", "StillCorridor-v0"), range(20))
        counts.append(steps[0] - begin)
    assert counts[0] > counts[1]
    assert opened == [0]


def test_a_deterministic_measurement_of_games_names_their_starts(breakout: Environment) -> None:
    measurement = measure([("a", make_image_policy(2))], breakout, [1, 20_000])
    assert measurement.episodes == (f"noops-{count_noops(1)}",) * 2
    assert len(measurement.returns[0]) == 2
