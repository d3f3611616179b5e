"""The table of designs, made of regression files."""

import pytest

from tests.support.pages import load_script

CYCLES = "cycles: 1208\ninterval: 196\n"
DESIGNS = load_script("designs_table")
SIZE = "block_rams: 22.5\ndsps: 0\nffs: 5680\nlevels: 8\nluts: 8936\n"


def test_cycles_and_sizes_stand_beside_the_papers(tmp_path):
    for name in DESIGNS.NAMES:
        (tmp_path / f"cycles-{name}.yml").write_text(CYCLES)
        (tmp_path / f"resources-{name}.yml").write_text(SIZE)
    lines = DESIGNS.list_designs(tmp_path)
    assert len(lines) == 2 + len(DESIGNS.NAMES)
    assert lines[2] == (
        "| HalfCheetah, 8-3-8, 256 wide | 1,208 | 196 | 24,320 | 24,576 | 8,936 | 5,680 | 22.5 | 0 | 8 |"
    )
    assert any(line.startswith("| Humanoid, 4-3-8, 16 wide, 8 values a cycle |") for line in lines)


def test_a_design_without_its_file_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cycles-halfcheetah\.yml"):
        DESIGNS.list_designs(tmp_path)
