"""Compiled code that is kept in the cache."""

import pytest

from quarl_bench.errors import StoreError
from quarl_bench.system import compiler
from quarl_bench.system.compiler import load_library

FILES = {"seven.c": b"int seven(void);\nint seven(void) { return 7; }\n"}


@pytest.mark.needs("cc")
def test_a_library_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path))
    assert load_library(FILES, ("-DONCE",)).seven() == 7
    assert len([*tmp_path.glob("kernels/*.so")]) == 1


@pytest.mark.needs("cc")
def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(StoreError, match=r"cannot write the cache .*file: .*; choose another place with QUARL_CACHE_"):
        load_library(FILES, ("-DNEVER",))


@pytest.mark.needs("cc")
def test_a_damaged_library_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path))
    load_library(FILES, ("-DDAMAGED",))
    (library,) = tmp_path.glob("kernels/*.so")
    other = tmp_path / "elsewhere" / "kernels" / library.name  # this process has loaded the first
    other.parent.mkdir(parents=True)
    other.write_bytes(b"damaged")
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "elsewhere"))
    compiler._load_library.cache_clear()
    with pytest.raises(StoreError, match=r"\.so cannot be loaded \(.*\); delete it, or choose another cache"):
        load_library(FILES, ("-DDAMAGED",))
