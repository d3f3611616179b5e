"""Tables made of rows of the stored nightly."""

from quarl_bench.report.tables.nightly import list_cells, list_dearest, list_exploration, list_mixed
from quarl_bench.views.rows import Row

CELL = {
    "kind": "case", "claim": "table2-cell", "algo": "dqn", "env": "cartpole", "threshold": 0.05,
    "reference": {"mean": 500.0, "policies": 2, "per_policy": [500.0, 500.0]},
}  # fmt: skip
JUDGED = {"verdict": "refuted", "estimate": 0.5, "interval": [0.4, 0.61]}


def test_a_cell_tells_returns_shares_and_verdicts():
    measured = {"mean": 250.0, "policies": 2, "per_policy": [100.0, 400.0]}
    rows = [Row(id="int8", scheme="int8", measured=measured, **CELL, **JUDGED)]
    cells = [("table2-cell", "dqn", "cartpole"), ("zoo-cell", "dqn", "cartpole")]
    assert list_cells(rows, cells) == [
        "| algorithm and environment | policies | fp32 | `w8` | `int8` | `w8floor` |",
        "|---|---:|---:|---:|---:|---:|",
        "| DQN cartpole | 2 | 500 |  | 250 (100 to 400); 0.50 [0.40, 0.61], refuted |  |",
    ]


def test_exploration_has_a_row_for_each_set_of_states():
    rows = [
        Row(id="a", claim="exploration-visited", kind="claim", threshold=1.0, scheme="qat4", **JUDGED),
        Row(id="b", claim="exploration-norm-fixed", kind="claim", threshold=1.0, verdict="undecidable"),
    ]
    _, _, fixed, visited = list_exploration(rows)
    assert fixed == "| fixed ones |  |  |  |  | undecidable |"
    assert visited.endswith("|  |  | 0.50 [0.40, 0.61], refuted |  |  |")


def test_half_precision_has_a_column_for_each_processor():
    told = {"kind": "timing", "threshold": 1.0, "paper": {"reference": 3, "value": 2, "unit": "min"}} | JUDGED
    rows = [
        Row(id="a", claim="table5-large", env="pongb", scheme="bf16", processor="A processor", **told),
        Row(id="b", claim="table5-large-half", env="pongc", scheme="fp16", processor="A card", **told),
    ]
    head, _, *lines = list_mixed(rows)
    assert head == "| policy / 8 | bf16, A processor | fp16, A card | the paper |"
    assert lines == [
        "| A |  |  |  |",
        "| B | 0.50x [0.40, 0.61], refuted |  | 1.50x |",
        "| C |  | 0.50x [0.40, 0.61], refuted | 1.50x |",
    ]


def test_what_took_longest_comes_first_and_all_is_added_up():
    rows = [
        Row(id=id_, claim="table2-cell", kind="case", verdict="supported", threshold=0.05, seconds=seconds)
        for id_, seconds in (("cheap", 2.0), ("dear", 1_200.4), ("never-run", None), ("usual", 30.0))
    ]
    assert list_dearest(rows, 2)[2:] == [
        "| `dear` | [table2-cell](claims.md#table2-cell) | 1,200 |",
        "| `usual` | [table2-cell](claims.md#table2-cell) | 30 |",
        "| all 3 rows |  | 1,232 |",
    ]
