"""Our drone's flights against PyFlyt's own, to the bit."""

import contextlib
import importlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from quarl_bench.environments import flights
from quarl_bench.environments.drone import bound
from quarl_bench.environments.flights import Flight
from quarl_bench.environments.registry import NAVIGATION_OPTIONS, find_environment, make_environment
from quarl_bench.errors import PolicyError
from quarl_bench.policies.storage.fp32 import load_policy
from tests.support.places import POLICIES
from tests.support.sizes import choose

pytestmark = pytest.mark.needs("navigation")
FLIGHT = find_environment("quadx1")
LIMIT = 303  # steps: PyFlyt cuts a flight in the 302nd, and one is taken behind that
HOVER = 0.32
Row = NDArray[np.float32]
Act = Callable[[Row], NDArray[Any]]


class Own:
    """PyFlyt's own environment, with what `Flight` shows of it."""

    def __init__(self, shaped: bool, **options: Any) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            made = gymnasium.make(FLIGHT.id, disable_env_checker=True, **NAVIGATION_OPTIONS | options)
        self.task: Any = made.unwrapped
        self._shaped = shaped

    def reset(self, seed: int | None) -> tuple[Row, dict[str, Any]]:
        with contextlib.redirect_stdout(io.StringIO()):
            state, info = self.task.reset(seed=seed)
        return self._flatten(state), info

    def step(self, action: NDArray[Any]) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = self.task.step(action.astype(np.float64))
        reached = info["env_complete"]
        gained = reward if self._shaped else float(reached)
        return self._flatten(state), gained, terminated or reached, truncated and not reached, info

    def _flatten(self, state: dict[str, NDArray[Any]]) -> Row:
        return np.concatenate([state["attitude"], state["target_deltas"][0]]).astype(np.float32)


Pair = tuple[gymnasium.Env[Any, Any], Own]


@pytest.mark.parametrize(
    "shares, bounded",
    [
        ([0.2, 0.4, 0.6, 0.8], [0.2, 0.4, 0.6, 0.8]),
        ([0.3] * 4, [0.3] * 4),
        ([0.0, 0.2, 0.4, 1.0], [0.05, 0.24, 0.43, 1.0]),
        ([0.05, 0.5, 0.5, 1.05], [0.05, 0.4775, 0.4775, 1.0]),
        ([1.0, 1.0, 1.0, 1.5], [1.0] * 4),
        ([0.05, 0.05, 0.02, 0.01], [0.05] * 4),
        ([1.25, 1.5, 2.0, 3.0], [1.0] * 4),
    ],
)
def test_shares_of_motors_stay_within_bounds(shares: list[float], bounded: list[float]) -> None:
    assert bound(shares) == pytest.approx(bounded)


@pytest.fixture(scope="module", params=[True, False], ids=["shaped", "scored"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    ours, own = make_environment(FLIGHT, shaped=request.param)[0], Own(request.param)
    yield ours, own
    ours.close()
    own.task.close()


def compare(pair: Pair, seed: int | None, act: Act, limit: int = LIMIT) -> str:
    """Fly both until the end, and a step on: how the flight ended. Every bit of what is seen and drawn is compared."""
    ours, own = pair
    (row, info), (expected, expected_info) = ours.reset(seed=seed), own.reset(seed)
    assert (row.tobytes(), info) == (expected.tobytes(), expected_info)
    over = False
    for step in range(limit):
        action = act(row)
        row, *judged = ours.step(action)
        expected, *expected_judged = own.step(action)
        np.testing.assert_array_equal(row, expected, err_msg=f"step {step} of flight {seed}")
        assert (row.tobytes(), row.dtype) == (expected.tobytes(), np.float32)
        assert judged == expected_judged
        assert isinstance(judged[0], float)
        if seed is not None:
            assert find_random_state(ours) == own.task.np_random.bit_generator.state
        if over:
            return next((end for end, happened in judged[-1].items() if happened), "cut")
        over = judged[1] or judged[2]
    return "flying"


def find_random_state(flight: gymnasium.Env[Any, Any]) -> Any:
    return flight.unwrapped.np_random.bit_generator.state


def wander(seed: int, thrust: float, width: float) -> Act:
    """Random commands around level flight."""
    rng = np.random.default_rng(seed)
    return lambda _: np.array([0, 0, 0, thrust]) + width * rng.standard_normal(4)


def hold(row: Row) -> NDArray[Any]:
    """Stay level, and a metre above the floor."""
    roll, pitch, yaw = row[3:6]
    return np.array([-8 * roll, -8 * pitch, -8 * yaw, HOVER + 0.3 * (1 - row[12]) - 0.3 * row[9]])


def test_random_flights_are_pyflyts(pair: Pair) -> None:
    """Flights that fall, tumble and leave, in both kinds of reward."""
    ends = Counter(
        compare(pair, seed, wander(seed, thrust, width))
        for seed, (thrust, width) in enumerate(
            [(0.0, 0.05), (0.8, 0.05), (0.35, 0.05), (0.3, 1.0), (0.5, 4.0)] * choose(1, 4)
        )
    )
    assert {"collision", "out_of_bounds"} <= ends.keys(), ends


@pytest.mark.parametrize("name", ["quadx1", "quadx2", "quadx3"])
def test_the_flights_of_committed_policies_are_pyflyts(pair: Pair, name: str) -> None:
    policy = load_policy(POLICIES / f"ppo-{name}-seed0").policy
    ends = [compare(pair, seed, lambda row: policy.act(row[None])[0]) for seed in range(10_000, 10_000 + choose(2, 6))]
    assert "env_complete" in ends


def test_a_flight_that_goes_on_is_cut_where_pyflyt_cuts_it(pair: Pair) -> None:
    assert compare(pair, 1, hold) == "cut"


def test_a_flight_without_a_seed_draws_on(pair: Pair) -> None:
    """The second from where the first left the random numbers."""
    compare(pair, 7, hold, limit=3)
    compare(pair, None, hold, limit=3)
    ours, own = pair
    assert find_random_state(ours) == own.task.np_random.bit_generator.state


def test_a_touch_in_the_first_step_of_a_tick_is_a_collision(pair: Pair) -> None:
    """A drone that leaps off the floor is in the air by the second."""

    def leap(_: Row) -> NDArray[Any]:
        for task in (pair[0].unwrapped, pair[1].task):
            (drone,) = task.env.drones
            task.env.resetBasePositionAndOrientation(drone.Id, [0, 0, 0.005], [0, 0, 0, 1])
            task.env.resetBaseVelocity(drone.Id, [0, 0, 20], [0, 0, 0])
        return np.array([0, 0, 0, HOVER])

    assert compare(pair, 0, leap) == "collision"


def test_contacts_stay_until_the_next_step_of_physics(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyFlyt asks for them before a step and behind it; what it hears before is what it heard behind the last."""
    own = Own(shaped=False)
    own.reset(0)
    client, heard = own.task.env, []
    ask = client.getContactPoints
    monkeypatch.setattr(client, "getContactPoints", lambda: heard.append(ask()) or heard[-1], raising=False)
    for _ in range(120):  # it falls, and lies; a flight would have ended at its first contact
        client.step()
    own.task.close()
    before, behind = heard[0::2], heard[1::2]
    assert before[0] == ()
    assert before[1:] == behind[:-1]
    assert len({len(contacts) for contacts in behind}) > 1


def test_nothing_of_pyflyt_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled where it is called")

    quadx, motors = (importlib.import_module(f"PyFlyt.core.{name}") for name in ("drones.quadx", "abstractions.motors"))
    monkeypatch.setattr(quadx, "PID", refuse)
    monkeypatch.setattr(motors.Motors, "_jitted_compute_thrust_torque", staticmethod(refuse))
    flight, _ = make_environment(FLIGHT)
    for seed in (0, 1):
        flight.reset(seed=seed)
        flight.step(np.array([0, 0, 0, HOVER]))
    flight.close()
    assert quadx.PID is refuse  # as it was: PyFlyt's other drones have controllers


OTHERS = [
    {"flight_mode": 7},
    {"angle_representation": "euler"},
    {"num_targets": 2},
    {"use_yaw_targets": True},
    {"sparse_reward": True},
    {"render_mode": "rgb_array"},
]


def make_pair(**options: Any) -> Pair:
    own, other = (Own(shaped=True, **options) for _ in range(2))
    return Flight(own.task, shaped=True), other


def ticks_of(pair: Pair) -> int:
    """How often PyFlyt's own step was taken."""
    return int(pair[0].unwrapped.env.aviary_steps)


@pytest.mark.parametrize("options", OTHERS, ids=lambda options: next(iter(options)))
def test_pyflyt_flies_what_is_not_known(options: dict[str, Any]) -> None:
    pair = make_pair(**options)
    assert compare(pair, 3, wander(3, HOVER, 0.05), limit=3) == "flying"
    assert ticks_of(pair) == 10 + 3 * 4
    for one in pair:
        getattr(one, "task", one).close()


@pytest.mark.parametrize(
    "options", [{"agent_hz": 40}, {"flight_dome_size": 2.0}, {"max_duration_seconds": 0.2}], ids=str
)
def test_other_numbers_are_known(options: dict[str, Any]) -> None:
    pair = make_pair(**options)
    ends = {compare(pair, seed, wander(seed, thrust, 0.05), limit=60) for seed, thrust in enumerate([0.0, 0.8])}
    assert ends <= {"collision", "out_of_bounds", "cut", "env_complete"}
    assert ticks_of(pair) == 0
    for one in pair:
        getattr(one, "task", one).close()


def test_pyflyt_in_another_version_flies_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "KNOWN_VERSION", "0.30.0")
    pair = make_pair()
    compare(pair, 3, wander(3, HOVER, 0.05), limit=3)
    assert ticks_of(pair) == 10 + 3 * 4


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_action_that_is_not_finite_is_refused(pair: Pair, number: float) -> None:
    ours, _ = pair
    ours.reset(seed=0)
    with pytest.raises(PolicyError, match=r"^the action \[.*\] is not finite; no motor can do that$"):
        ours.step(np.array([0, 0, 0, number]))
