"""The tables of docs/speed.md, made of stored runs."""

import re
from dataclasses import replace

import pytest

from quarl_bench.judging.times.contest import Contest, Pair
from quarl_bench.report.peers import write_run
from quarl_bench.report.tables.speed import (
    list_comparison,
    list_contenders,
    list_floors,
    list_medians,
    list_pairs,
    list_ratios,
)
from tests.report.test_peers import CONTESTS, PEERS, RUN
from tests.support.pages import load_script

OTHER = Contest("big", "s", {"quarl": (1.0,), "slow": (123.0,)}, (Pair("quarl", "slow"),))


@pytest.fixture(scope="module")
def generator():
    return load_script("generate")


def test_a_block_says_where_its_numbers_are_from():
    assert list_comparison("race", RUN) == [
        (
            "`python benches/peers/race.py`: A processor (avx2, amx_int8), 2 cores, of which others used 0.01; "
            "2 rounds; 2026-11-26, `0123456789ab` with changes."
        ),
        "Left out, because not installed: faraway.",
        "",
        "|  | contender | median (range) | ours beside it |",
        "|---|---:|---:|---:|",
        "| a task, s (small) | quarl | 1.5 (1 to 2) |  |",
        "|  | other | 3 (3 to 3) | quarl 2.25x (1.50x to 3.00x) |",
        "| files, bytes | quarl | 10 (10 to 10) |  |",
    ]


def test_nothing_is_made_up_where_nothing_is_stored():
    assert list_comparison("race", None) == ["No run is stored yet: `python -m benches.peers race`."]


def test_layouts():
    assert list_ratios((*CONTESTS, OTHER)) == [
        ["", "quarl against other", "quarl against slow"],
        ["a task (small)", "2.25x (1.50x to 3.00x)", ""],
        ["big", "", "123x (123x to 123x)"],
    ]
    assert list_pairs(CONTESTS) == [["", "a task (small)"], ["quarl against other", "2.25x (1.50x to 3.00x)"]]
    assert list_medians((*CONTESTS, OTHER)) == [
        ["", "quarl", "other", "slow"],
        ["a task, s", "1.5", "3", ""],
        ["files, bytes", "10", "", ""],
        ["big, s", "1", "", "123"],
    ]
    assert list_contenders((OTHER,))[-1] == ["", "slow", "123 (123 to 123)", "quarl 123x (123x to 123x)"]


def test_floors_are_what_simulator_and_network_leave():
    parts = Contest("big", "us", {"simulator": (150.0, 160.0), "network": (45.0, 45.0), "everything else": (9.0, 8.0)})
    rates = Contest("big", "steps per CPU second", {"quarl": (4000.0, 4000.0), "slow": (1000.0, 1500.0)})
    runs = [replace(RUN, contests=(contest,)) for contest in (rates, parts)]
    assert list_floors(*runs) == ["|  | against slow |", "|---|---:|", "| big | 4.00x |"]
    (line,) = list_floors(runs[0], replace(runs[1], machine={"processor": "another"}))
    assert line == list_floors(None, runs[1])[0]


def test_the_page_takes_what_is_stored(generator, tmp_path):
    page = "<!-- race: made by generate.py -->\n<!-- end of race -->\n<!-- walk: made by generate.py -->"
    write_run(tmp_path / "race.json", RUN)
    (tmp_path / "race.json.part").write_text("{")
    blocks = generator.list_comparisons(page, tmp_path)
    assert blocks == {"race": list_comparison("race", RUN), "walk": list_comparison("walk", None)}
    text = generator.insert_block(page, "race", blocks["race"])
    assert generator.insert_block(text, "race", blocks["race"]) == text
    write_run(tmp_path / "swim.json", RUN)
    with pytest.raises(ValueError, match="for swim"):
        generator.list_comparisons(page, tmp_path)


def test_every_entry_has_a_block_and_every_number_a_run(generator):
    page = generator.SPEED.read_text(encoding="utf-8")
    entries = re.findall(r'^    "([\w-]+)": Entry\(', (PEERS / "__main__.py").read_text(), re.MULTILINE)
    assert sorted(generator.list_comparisons(page, generator.RUNS)) == sorted(entries)
    before, _, history = page.partition("\n## Earlier, by hand\n")
    by_hand = re.sub(r"<!-- ([\w-]+): made.*?<!-- end of \1 -->", "", before, flags=re.DOTALL)
    assert not re.findall(r"\d\.\d|\d+x\b(?! meant)", re.sub(r'"quarl 2\.00x"', "", by_hand))
    assert "history" in history
