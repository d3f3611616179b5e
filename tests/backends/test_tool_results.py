"""What a tool made of files is kept for the same files."""

import pytest

from quarl_bench.backends.tool_results import run_once
from quarl_bench.errors import StoreError


def test_the_same_files_are_asked_about_once(tmp_path):
    sources, asked = tmp_path / "sources", []
    (sources / "part").mkdir(parents=True)
    (sources / "part" / "one.v").write_text("module")
    (sources / "notes.txt").write_text("a word")

    def compute(work):
        (work / "left.o").write_text("what a tool leaves")
        asked.append(sorted(path.name for path in work.rglob("*")))
        return {"size": len((work / "part" / "one.v").read_text())}

    def run(*patterns, salt="tool 1"):
        return run_once(sources, tmp_path / "cache", "sizes", salt, compute, *patterns)

    assert [run(), run()] == [{"size": 6}] * 2
    assert asked == [["left.o", "notes.txt", "one.v", "part"]]
    assert not (sources / "left.o").exists()
    run(salt="tool 2")
    run("**/*.v")
    assert len(asked) == 3
    (sources / "notes.txt").write_text("another")
    run("**/*.v")
    assert len(asked) == 3
    assert run() == {"size": 6}
    (sources / "part" / "one.v").write_text("mod")
    assert run("**/*.v") == {"size": 3}
    assert len(asked) == 5
    for kept in (tmp_path / "cache" / "sizes").glob("*.json"):
        kept.write_text("{")
    with pytest.raises(StoreError, match=r"cannot be read .*; delete it"):
        run("**/*.v")
