"""Compiled bands are those of NumPy and OpenCV, and NumPy's are taken where compiled ones cannot be had, or differ."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quarl_bench.environments.atari import bands
from quarl_bench.environments.atari.bands import (
    COLORS,
    HEIGHT,
    SIDE,
    WIDTH,
    ArrayBands,
    Buffers,
    CompiledBands,
    begin_bands,
)
from quarl_bench.errors import StoreError
from quarl_bench.system import compiler
from tests.support.sizes import draw_examples

pytestmark = pytest.mark.needs("atari")
compiled = pytest.mark.needs("cc")


@pytest.fixture
def cv2() -> Any:
    return pytest.importorskip("cv2")


@pytest.fixture
def asked_anew() -> Iterator[None]:
    """What this process knows of its compiler is forgotten, before and after."""
    forget = bands.compiles.cache_clear, compiler._load_library.cache_clear
    for clear in forget:
        clear()
    yield
    for clear in forget:
        clear()


def fill(buffers: Buffers, mixed: NDArray[np.uint8]) -> None:
    buffers.mixed[:], buffers.known[:] = mixed, True


@compiled
@given(st.integers(0, 1 << 32), st.lists(st.tuples(st.integers(0, HEIGHT), st.integers(0, HEIGHT)), max_size=6))
@draw_examples(100)
def test_compiled_bands_are_those_of_arrays(seed: int, parts: list[tuple[int, int]]) -> None:
    cv2 = pytest.importorskip("cv2")
    generator = np.random.default_rng(seed)
    mixed = generator.integers(COLORS, size=(COLORS, COLORS), dtype=np.uint8)
    ours, theirs = Buffers.allocate(), Buffers.allocate()
    fill(ours, mixed)
    fill(theirs, mixed)
    both = (CompiledBands(ours), ours), (ArrayBands(theirs, cv2), theirs)
    for place, part in enumerate([(0, HEIGHT), *map(sorted, parts)]):
        shown = generator.integers(COLORS, size=(part[1] - part[0], WIDTH), dtype=np.uint8)
        for way, buffers in both:
            buffers.now[slice(*part)] = shown
            assert way.take(place % 2)
            way.make()
            assert not buffers.changed.any()
        assert np.array_equal(ours.frame, theirs.frame)
        assert np.array_equal(ours.kept, theirs.kept)


@pytest.mark.parametrize("way", [pytest.param("compiled", marks=compiled), "arrays"])
def test_a_frame_is_the_shrunken_maximum_and_an_unknown_color_is_said(way: str, cv2: Any) -> None:
    buffers = Buffers.allocate()
    fill(buffers, np.maximum.outer(*2 * [np.arange(COLORS, dtype=np.uint8)]))
    buffers.known[7] = False
    made = CompiledBands(buffers) if way == "compiled" else ArrayBands(buffers, cv2)
    screens = np.random.default_rng(0).integers(8, COLORS, size=(2, HEIGHT, WIDTH), dtype=np.uint8)
    for place, screen in enumerate(screens):
        buffers.now[:] = screen
        assert made.take(place)
    made.make()
    expected = cv2.resize(screens.max(0), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    assert np.array_equal(buffers.frame, expected)
    buffers.now[HEIGHT - 1, WIDTH - 1] = 7
    assert not made.take(1)
    assert buffers.changed.tolist() == [0] * (len(buffers.changed) - 1) + [1]


@compiled
@pytest.mark.usefixtures("asked_anew")
def test_where_there_is_a_compiler_its_code_is_kept_and_used(cv2: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path))
    assert isinstance(begin_bands(Buffers.allocate(), cv2), CompiledBands)
    assert len([*tmp_path.glob("kernels/*.so")]) == 1


@pytest.mark.usefixtures("asked_anew")
def test_without_a_compiler_arrays_do_the_same(cv2: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path))
    assert isinstance(begin_bands(Buffers.allocate(), cv2), ArrayBands)


@compiled
@pytest.mark.usefixtures("asked_anew")
def test_where_nothing_can_be_kept_arrays_are_used(cv2: Any, tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "file"))
    assert isinstance(begin_bands(Buffers.allocate(), cv2), ArrayBands)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@compiled
@pytest.mark.usefixtures("asked_anew")
def test_where_the_disk_is_full_arrays_are_used(cv2: Any, tmp_path: Any, monkeypatch: Any) -> None:
    def refuse(target: Any, _: bytes) -> None:
        raise StoreError(f"cannot write file {target}: No space left on device")

    monkeypatch.setattr(compiler, "write_file", refuse)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path))
    assert isinstance(begin_bands(Buffers.allocate(), cv2), ArrayBands)


@compiled
@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize("constant", ["12582912.0f", "!b->known"])
def test_code_that_differs_is_not_used(constant: str, cv2: Any, monkeypatch: Any, tmp_path: Any) -> None:
    """Of sums that are cut instead of rounded, and of colors that are known when they are not."""
    other = {"12582912.0f": "8388607.5f", "!b->known": "b->known"}[constant]
    load = compiler.load_library

    def change(files: dict[str, bytes]) -> Any:
        (code,) = files.values()
        assert constant.encode() in code
        return load({"bands.c": code.replace(constant.encode(), other.encode())})

    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(bands, "load_library", change)
    assert isinstance(begin_bands(Buffers.allocate(), cv2), ArrayBands)
