"""Files of tables: what is none, or would keep the reader busy for ever, is one line."""

import os

import pytest

from quarl_bench.errors import SpecError
from quarl_bench.system.toml_file import DOTS, LIMIT, read_toml


def test_tables_are_read(tmp_path):
    (tmp_path / "a.toml").write_text('[board]\nhost = "10.0.0.7"\n')
    assert read_toml(tmp_path / "a.toml", "file", "mend it") == {"board": {"host": "10.0.0.7"}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = = 1", "not TOML"),
        (b"\xff", "no text"),
        (b"a = " + b"[" * 100_000, "brackets within brackets"),
        (b".".join([b"a"] * 100_000) + b" = 1", f"a line with more than {DOTS} points"),
        (b"#" * (LIMIT + 1), f"{LIMIT + 1} bytes, more than the {LIMIT}"),
    ],
    ids=["syntax", "text", "deep", "dotted", "large"],
)
def test_what_would_not_end_is_refused(tmp_path, content, said):
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(SpecError, match=said) as error:
        read_toml(tmp_path / "a.toml", "board file", "mend it")
    assert str(error.value).startswith("board file: ")
    assert str(error.value).endswith("; mend it")
    assert "\n" not in str(error.value)


def test_a_pipe_and_a_folder_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(SpecError, match="not a regular file; mend it"):
            read_toml(path, "board file", "mend it")
    with pytest.raises(SpecError, match="No such file"):
        read_toml(tmp_path / "absent", "board file", "mend it")
