"""Figure 1 on the page: learning curves of arms."""

import pytest

from quarl_bench.report.documents import Document
from quarl_bench.report.page.html import render_report
from quarl_bench.report.page.kinds.exploration import smooth, view_learning
from tests.support.rows import ROWS, to_rows

POINTS = [{"timesteps": 100.0 * i, "variance": 0.2 - 0.01 * i, "return": 10.0 * i} for i in range(1, 11)]


def make_row(states, *arms):
    curves = {"ppo-cartpole": dict.fromkeys(arms, POINTS)}
    return {"id": f"all-flatter{states}-x", "curves": curves, "states": states}


def test_arms_of_several_rows_share_a_figure_in_the_paper_s_order():
    rows = [make_row("fixed", "qat2", "fp32"), make_row("fixed", "layernorm"), make_row("visited", "fp32"), {"id": "x"}]
    fixed, visited = view_learning(to_rows(ROWS[3] | row for row in rows))
    assert list(fixed.arms) == ["fp32", "layernorm", "qat2"]
    assert (fixed.title, visited.title) == tuple(
        f"ppo-cartpole: exploration in {states} states" for states in ("fixed", "visited")
    )


@pytest.mark.parametrize("size", [1, 20, 200])
def test_smoothing_keeps_constants_and_begins_at_the_first_value(size):
    assert smooth([3.0] * size) == pytest.approx([3.0] * size)
    assert smooth([float(i) for i in range(size)])[0] == 0.0


def test_a_run_of_200_points_is_smoothed_by_the_paper_s_weight():
    smoothed = smooth([0.0] * 100 + [1.0] * 100)
    assert smoothed[100] == pytest.approx(0.05, abs=0.001)


def test_the_page_shows_the_figure():
    about = {"kind": "claim", "claim": "exploration-fixed", "measured": {}, "reference": {}}
    row = ROWS[0] | about | make_row("fixed", "fp32", "qat4")
    page = render_report([Document("r.json", {"schema_version": 1, "rows": [row]})])
    assert "exploration in fixed states" in page
    assert page.count("<svg") >= 1
