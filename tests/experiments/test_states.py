"""Visited states in the store: visited once, equal afterwards, and made again where the file is damaged."""

import numpy as np
import pytest

from quarl_bench.errors import StoreError
from quarl_bench.experiments.states import read_states, write_states
from quarl_bench.experiments.store import Store, StorePaths

KEY = {"policy": "abc", "calibration": [30_000, 100]}


def draw(dtype, shape):
    return np.random.default_rng(1).integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize(("dtype", "shape"), [(np.float32, (7, 4)), (np.uint8, (3, 4, 8, 8)), (np.float64, (5, 1))])
def test_states_are_read_as_they_were_written(tmp_path, dtype, shape):
    path = tmp_path / "states.npz"
    path.write_bytes(write_states(draw(dtype, shape), KEY))
    found = read_states(path, KEY)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, draw(dtype, shape))


def test_another_key_is_an_error(tmp_path):
    path = tmp_path / "states.npz"
    path.write_bytes(write_states(draw(np.float32, (2, 2)), KEY))
    with pytest.raises(StoreError, match="holds another key"):
        read_states(path, {"policy": "other"})


@pytest.mark.parametrize("kept", [slice(0), slice(0, 300), slice(3, None)])
def test_a_damaged_file_is_one_line(tmp_path, kept):
    path = tmp_path / "states.npz"
    path.write_bytes(write_states(draw(np.float32, (50, 4)), KEY)[kept])
    with pytest.raises(StoreError, match="not a file of states"):
        read_states(path, KEY)


def test_a_stranger_s_objects_are_not_unpickled(tmp_path):
    path = tmp_path / "states.npz"
    np.savez_compressed(path, key=np.array("{}"), states=np.array([{"an": "object"}], dtype=object))
    with pytest.raises(StoreError, match="not a file of states"):
        read_states(path, {})


def test_states_are_visited_once_by_all_stores_of_a_cache(tmp_path):
    visits, notes = [], []

    def visit():
        visits.append(1)
        return draw(np.float32, (20, 4))

    first = Store(StorePaths(tmp_path)).states(KEY, visit)
    second = Store(StorePaths(tmp_path), note=notes.append).states(KEY, visit)
    np.testing.assert_array_equal(first, second)
    assert visits == [1]
    (damaged,) = tmp_path.rglob("*.npz")
    damaged.write_bytes(b"PK")
    np.testing.assert_array_equal(Store(StorePaths(tmp_path), note=notes.append).states(KEY, visit), first)
    assert visits == [1, 1]
    assert "stored states were damaged and made again" in notes[0]
