"""How long a run will take, from stage times of its first seconds."""

import math
from dataclasses import replace

import pytest

from quarl_bench.actorq.breakdown import ACTING, LEARNING
from quarl_bench.actorq.prediction import Prediction, list_predictions, predict
from quarl_bench.actorq.settings import choose_settings
from quarl_bench.cli import main
from quarl_bench.errors import EngineError
from tests.support.engine import run_alone
from tests.support.sizes import exhaustive

SETTINGS = choose_settings("dqn", "cartpole", steps=10_000, batch=64, samples_per_insert=32.0, precision="fp32")
NOTHING = dict.fromkeys(ACTING, 0.0)


def make_report(*, steps=1000, updates=400, update=1.0, idle=9.0, **stages):
    """Of a run whose actors took `stages` seconds for all their steps, and whose learner took `update` for all its."""
    learning = dict.fromkeys(LEARNING, 0.0) | {"update": update, "idle": idle, "save": 5.0}
    return {
        "acting": {"steps": steps, "wall": NOTHING | stages, "cpu": NOTHING},
        "breakdown": {"steps": updates, "wall": learning, "cpu": learning},
    }


def test_the_slower_side_decides_and_waiting_is_nobodys():
    report = make_report(environment=1.0, inference=3.0, wait=6.0, update=1.0)
    found = predict(SETTINGS, report)
    assert found.acting == pytest.approx(4e-3)  # 4 s for 1,000 steps of one actor
    assert found.learning == pytest.approx(1.25e-3)  # 2.5 ms an update, and one update for two steps
    assert found.seconds == pytest.approx(40.0)
    assert found.share == 1.0
    assert found.quantized == pytest.approx(0.75)
    assert found.ceiling == pytest.approx(4e-3 / 1.25e-3)  # then the learner decides
    many = predict(replace(SETTINGS, actors=8), report)
    assert many.acting == pytest.approx(0.5e-3)
    assert (many.seconds, many.share) == (pytest.approx(12.5), pytest.approx(0.4))
    assert many.ceiling == 1.0


def test_a_ceiling_leaves_what_no_precision_changes():
    found = Prediction(SETTINGS, acting=4e-3, learning=0.0, quantized=0.75)
    assert found.ceiling == pytest.approx(4.0)
    assert found.share == 1.0
    assert math.isinf(Prediction(SETTINGS, acting=4e-3, learning=0.0, quantized=1.0).ceiling)


def test_precisions_are_compared_with_fp32_of_the_same_run():
    one = Prediction(SETTINGS, acting=4e-3, learning=1e-3, quantized=0.5)
    other = replace(one, settings=replace(SETTINGS, precision="int8"), acting=2e-3)
    alone = replace(other, settings=replace(other.settings, actors=2))
    header, *lines = list_predictions([one, other, alone])
    assert header[-2:] == ["predicted", "x fp32"]
    assert [line[-2:] for line in lines] == [["0 min 40 s", "1.00"], ["0 min 20 s", "2.00"], ["0 min 20 s", "-"]]


def test_a_run_in_which_nothing_was_learned_predicts_nothing():
    with pytest.raises(EngineError, match="nothing was learned in the time that was given; calibrate for longer"):
        predict(SETTINGS, make_report(environment=1.0, updates=0))


@pytest.mark.needs("actorq")
@pytest.mark.parametrize("options", [(), ("--output", "runs", "--calibrate", "3")], ids=["neither", "both"])
def test_a_run_is_trained_or_calibrated(options, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["actorq", "dqn", "cartpole", *options]) == 2
    said = "name a folder by --output, or a number of seconds by --calibrate, and not both"
    assert capsys.readouterr().err == f"quarl actorq: {said}\n"
    assert not list(tmp_path.iterdir())


CALIBRATE = """
from quarl_bench.actorq.prediction import calibrate
from quarl_bench.actorq.settings import choose_settings

settings = choose_settings("dqn", "cartpole", widths=(16,), batch=16, chunk=32, samples_per_insert=1.0)
found = calibrate(settings, 1.0)
print(found.acting > 0, found.learning > 0, 0 < found.quantized < 1, found.seconds > 0)
"""


@pytest.mark.needs("actorq")
@exhaustive
def test_a_real_run_of_a_second_predicts(tmp_path):
    code, out, err = run_alone(CALIBRATE, tmp_path / "cache")
    assert code == 0, err
    assert out.strip() == "True True True True"
