"""The papers' main statements, each in one line: the paper's number, ours with its interval, the verdict."""

from dataclasses import replace

import pytest

from quarl_bench.judging.claim import expand
from quarl_bench.papers.registry import list_providers, read_catalog
from quarl_bench.report.findings import list_findings
from quarl_bench.views.rows import Row
from tests.support.inner import run_inside
from tests.support.rows import ROWS, make_row, to_rows

STATEMENTS = [s for paper in list_providers("statements") for s in paper.open("statements").STATEMENTS]


def test_nine_statements_are_about_items_that_exist():
    assert sum(bool(statement.printed) for statement in STATEMENTS) == 9  # the others are ours
    ids = {claim.id: {item.id for item in expand(claim)} for claim in read_catalog()}
    for statement in STATEMENTS:
        assert statement.item in ids[statement.claim] or (not statement.item and statement.scheme), statement


def test_a_count_names_what_is_refuted_and_a_row_gives_its_interval():
    rows = [
        make_row("w8", 0.99, "supported"),
        make_row("w8", 0.5, "refuted", id="dqn-x-w8"),
        make_row("w8", 0.94, "inconclusive", id="dqn-breakout-w8", interval=[0.89, 0.99]),
    ]
    count, single = list_findings(to_rows(rows))
    assert count.endswith("3 cells, 1 supported, 1 inconclusive, 1 refuted (dqn-x-w8)")
    assert single.endswith("(paper: 36% kept, Table 2): 3 policies, 94% [89%, 99%] kept: inconclusive")
    none = make_row("w8", 0.94, "supported", id="dqn-breakout-w8", interval=[-0.004, 1.0])
    _, line = list_findings(to_rows([none]))
    assert "94% [0%, 100%]" in line  # never "-0%"
    exact = none | {"interval": [0.94, 0.94], "scope": "this policy, on all 30 starts"}
    _, line = list_findings(to_rows([exact]))
    assert line.endswith("Table 2): this policy, on all 30 starts, 94% kept: supported")
    (line,) = list_findings(to_rows(ROWS[:1]))
    assert line.endswith("of the return (paper: 2 to 5% without DQN, section 4): 1 cell, 1 supported")


def test_a_verdict_without_a_number_is_told_alone_and_what_was_not_run_is_not_told():
    bare = Row(id="dqn-pongc-bf16", claim="table5-half-again", kind="claim", verdict="supported", threshold=0.0)
    (line,) = list_findings([bare])
    told = "(paper: 1.61x, Table 5): supported on a CPU in bf16; our number "
    assert line.endswith(f"{told}is not stored yet")
    (line,) = list_findings([replace(bare, estimate=1.4, interval=(1.2, 1.6))])
    assert "1.40x [1.20x, 1.60x] as fast a step: supported on a CPU" in line
    (line,) = list_findings([replace(bare, kind="timing", estimate=None, needed="void: a busy machine")])
    assert line.endswith("; our times are void, because the machine was busy")
    assert not [*list_findings([])]


@pytest.mark.parametrize(("profile", "lines"), [("quick", 0), ("nightly", 1)])
def test_the_nightly_s_terminal_ends_with_them(pytester, profile, lines):
    row = make_row("w8", 0.99, "supported", nodeid="x")
    pytester.makepyfile(f"def test_x(quarl_record):\n    quarl_record({row!r})\n")
    result = run_inside(pytester, f"--quarl-profile={profile}")
    assert result.ret == 0
    assert result.stdout.str().count("quarl findings") == lines
    assert result.stdout.str().count("Weights in 8 bits after training") == lines
