"""Sampling noise is the episode's own, and turns logits into draws from their softmax."""

import numpy as np
import pytest

from quarl_bench.evaluation.noise import GumbelNoise

LOGITS = np.array([2.0, 0.0, -1.0, 1.0])


def draw_alone(seed: int, steps: int) -> list[list[float]]:
    noise = GumbelNoise([seed], 3)
    return [noise.draw(np.arange(1))[0].tolist() for _ in range(steps)]


def test_a_stream_does_not_depend_on_the_episodes_beside_it() -> None:
    noise = GumbelNoise([5, 9, 2], 3)
    drawn: dict[int, list[list[float]]] = {5: [], 9: [], 2: []}
    for running in ([0, 1, 2], [0, 1, 2], [0, 2], [2], [2]):
        for index, row in zip(running, noise.draw(np.array(running)).tolist(), strict=True):
            drawn[(5, 9, 2)[index]].append(row)
    assert drawn == {5: draw_alone(5, 3), 9: draw_alone(9, 2), 2: draw_alone(2, 5)}


def test_streams_differ_between_seeds_and_steps() -> None:
    drawn = [tuple(row) for seed in range(40) for row in draw_alone(seed, 10)]
    assert len(set(drawn)) == 400


def test_noise_has_a_row_per_running_episode_and_a_column_per_action() -> None:
    noise = GumbelNoise(range(4), 6).draw(np.array([1, 3]))
    assert (noise.shape, noise.dtype) == ((2, 6), np.float64)


@pytest.mark.parametrize("seeds", [range(200), [7]], ids=["over episodes", "over steps"])
def test_the_largest_is_a_draw_from_the_softmax(seeds: range | list[int]) -> None:
    # Of 20,000 draws the standard error of a frequency is at most 0.0036; the tolerance is four of them.
    noise, active = GumbelNoise(seeds, len(LOGITS)), np.arange(len(seeds))
    actions = np.concatenate([(LOGITS + noise.draw(active)).argmax(axis=1) for _ in range(20_000 // len(seeds))])
    frequencies = np.bincount(actions, minlength=len(LOGITS)) / len(actions)
    np.testing.assert_allclose(frequencies, np.exp(LOGITS) / np.exp(LOGITS).sum(), rtol=0, atol=0.0145)


def test_successive_draws_are_independent() -> None:
    # The correlation of 20,000 pairs has a standard error of 0.007.
    drawn = np.array(draw_alone(3, 20_001))
    for lead, follow in ((drawn[:-1, 0], drawn[1:, 0]), (drawn[:, 0], drawn[:, 1])):
        assert abs(np.corrcoef(lead, follow)[0, 1]) < 0.03
