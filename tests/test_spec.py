"""Frozen values: ids, names, and the JSON form of measurements."""

import json
from typing import Any

import pytest

from quarl_bench import errors
from quarl_bench.errors import QuarlError, SpecError
from quarl_bench.spec import Case, Measurement, Outcome, PolicySpec, Source, Verdict

MEASUREMENT = Measurement(
    policies=("a", "b"),
    environment_seeds=(1, 2, 3),
    episodes=("x", "y", "x"),
    returns=((1.0, 2.0, 1.0), (0.5, -3.0, 0.5)),
    lengths=((1, 2, 1), (4, 5, 4)),
    agreement=(1.0, 0.25),
    deterministic=False,
    source=Source.SIMULATED,
)


@pytest.mark.parametrize(
    "case, name",
    [
        (Case("ppo", "cartpole", "int8"), "ppo-cartpole-int8"),
        (Case("a2c", "hopperv4", "w8", "zoo"), "a2c-hopperv4-w8-zoo"),
        (Case("dqn", "pong", "int4pc", "zoo", "pi4"), "dqn-pong-int4pc-zoo-pi4"),
        (Case("dqn", "pong", "fp32", board="pi4"), "dqn-pong-fp32-pi4"),
    ],
    ids=str,
)
def test_ids(case: Case, name: str) -> None:
    assert case.id == name


@pytest.mark.parametrize(
    "parts",
    [
        ("", "cartpole", "w8"),
        ("ppo", "", "w8"),
        ("ppo", "cartpole", ""),
        ("PPO", "cartpole", "w8"),
        ("ppo", "CartPole-v1", "w8"),
        ("ppo", "cartpole", "w8 "),
        ("ppo", "cartpole", "w8\n"),
        ("ppo", "cartpole", "w\u0668"),
        ("ppo", "cartpole", "w8", "sb3_zoo"),
        ("ppo", "cartpole", "w8", "", "pi/4"),
    ],
    ids=range(10),
)
def test_parts_outside_the_alphabet_are_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(SpecError, match="an id part is one or more of"):
        Case(*parts)


def test_policy_names() -> None:
    assert PolicySpec("ppo", "cartpole", 0).name == "ppo-cartpole-seed0"
    assert PolicySpec("ppo", "cartpole", 3, "zoo").name == "ppo-cartpole-zoo-seed3"


def test_a_measurement_survives_json() -> None:
    text = json.dumps(MEASUREMENT.as_dict())
    assert Measurement.from_dict(json.loads(text)) == MEASUREMENT
    plain = Measurement(("a",), (1,), ("x",), ((1.0,),), ((1,),))
    assert Measurement.from_dict(json.loads(json.dumps(plain.as_dict()))) == plain


def test_summaries() -> None:
    assert MEASUREMENT.distinct_episodes == 2
    assert MEASUREMENT.mean == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    "change",
    [
        *({key: None} for key in ("policies", "environment_seeds", "episodes", "returns", "lengths")),
        {"policies": ["a"]},
        {"environment_seeds": [1, 2]},
        {"episodes": ["x"]},
        {"returns": [[1, 2, 3]]},
        {"returns": [[1, 2], [1, 2, 3]]},
        {"lengths": [[1, 2, 3]]},
        {"lengths": [[1, 2, 3], [1, 2]]},
        {"agreement": [1.0]},
        {"source": "guessed"},
        {"returns": [["a", 2, 3], [1, 2, 3]]},
    ],
    ids=str,
)
def test_what_is_no_measurement_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Measurement.from_dict(json.loads(json.dumps(MEASUREMENT.as_dict())) | change)


@pytest.mark.parametrize("key", MEASUREMENT.as_dict())
def test_every_key_is_needed(key: str) -> None:
    data = MEASUREMENT.as_dict()
    del data[key]
    with pytest.raises(KeyError, match=key):
        Measurement.from_dict(data)


def test_a_verdict_is_plain_data() -> None:
    verdict = Verdict(Outcome.PARTIAL, None, None, 1.0, 0.95, "this policy", 1, 10, 9, missing=("ppo-cartpole-w8",))
    data = verdict.as_dict()
    assert type(data["outcome"]) is str
    assert json.loads(json.dumps(data))["missing"] == ["ppo-cartpole-w8"]


def test_every_error_is_in_the_tree_and_in_its_drawing() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(kinds) > 5
    assert all(issubclass(kind, QuarlError) for kind in kinds)
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in kinds)
