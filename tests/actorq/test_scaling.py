"""The model on paper of many actors: what is full first, and whether it says what a few actors did."""

from dataclasses import replace

import pytest

from quarl_bench.actorq.breakdown import ACTING, LEARNING, SERVING
from quarl_bench.actorq.scaling import ERROR, Costs, Site, estimate, list_estimates, read_costs, size_transition
from quarl_bench.actorq.settings import choose_settings

COSTS = Costs(acting=1e-3, learning=1e-4, serving=1e-6, overhead=0.0, sent=200.0, broadcast=1000.0)


def test_what_is_full_first_decides():
    few, many = estimate(COSTS, 4, Site()), estimate(COSTS, 64, Site())
    assert (few.rate, few.bound) == (pytest.approx(4000), "actors")
    assert (many.rate, many.bound) == (pytest.approx(10_000), "learner")
    assert many.traffic == pytest.approx(10_000 * (200 + 8 * 1000)), "a broadcast goes once to each of 8 nodes"
    slow = estimate(COSTS, 64, Site(bandwidth=8.2e6))
    assert (slow.rate, slow.bound) == (pytest.approx(1000), "network")
    assert estimate(replace(COSTS, serving=1e-2), 64, Site()).bound == "server"
    shared = estimate(COSTS, 4, Site(cores=2.0))
    assert (shared.rate, shared.bound) == (pytest.approx(2 / 1.101e-3), "cores")
    assert shared.traffic == 0


def test_costs_are_read_from_a_run():
    chosen = choose_settings("dqn", "cartpole", batch=50, samples_per_insert=10.0, publish_period=100)
    acting = dict.fromkeys(ACTING, 0.0) | {"inference": 2.0, "wait": 7.0}
    learning = dict.fromkeys(LEARNING, 0.0) | {"update": 0.5, "save": 9.0}
    serving = dict.fromkeys(SERVING, 0.0) | {"encode": 0.1}
    report = {
        "acting": {"steps": 1000, "wall": acting, "cpu": acting},
        "breakdown": {"steps": 250, "wall": learning, "cpu": learning},
        "server": {"bytes": 5000.0, "breakdown": {"steps": 2, "wall": serving, "cpu": serving}},
        "learner_cpu": 1.0,
        "steps": 1250,
    }
    found = read_costs(chosen, report, sent=60.0)
    assert found.acting == pytest.approx(2e-3)
    assert found.learning == pytest.approx(0.5 / 250 / 5), "an update for five steps"
    assert found.serving == pytest.approx(0.05 / 500)
    assert found.overhead == pytest.approx(1 / 1250 - 0.4e-3)
    assert found.broadcast == pytest.approx(10.0)
    assert size_transition(4, 2, discrete=True) == 52
    assert size_transition(17, 6, discrete=False) == 172


# D4PG on cheetah run, 3 x 512, fp32, 4 samples per insert: `quarl actorq d4pg cheetahrundmc --widths 512,512,512
# --precision fp32 --actors 1,2,4 --samples-per-insert 4 --warmup 500 --calibrate 8` on two cores of an AMD EPYC with
# other work; by number of actors the steps per second, and the cores that the run had of it.
ONE = Costs(acting=3.737e-4, learning=6.787e-4, serving=4.0e-7, overhead=0.0, sent=172.0, broadcast=336.2)
MEASURED = {1: (476.4, 0.4945), 2: (730.4, 0.7077), 4: (711.2, 0.5534)}


@pytest.mark.parametrize("actors", MEASURED)
def test_costs_of_one_actor_say_what_several_did_here(actors):
    rate, cores = MEASURED[actors]
    found = estimate(ONE, actors, Site(cores=cores))
    assert found.bound == "cores"
    assert found.rate == pytest.approx(rate, rel=ERROR)


def test_the_table_goes_to_64_actors():
    header, *lines = list_estimates([("int8", COSTS)], Site())
    assert len(header) == len(lines[0])
    assert [line[1] for line in lines] == ["1", "2", "4", "8", "16", "32", "64"]
    assert lines[-1][3:5] == ["learner", "100%"]
