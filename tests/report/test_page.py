"""The HTML page: complete, escaped, self-contained and the same every time."""

import copy
import html.parser
import json
import re
from pathlib import Path

import pytest

from quarl_bench.cli import main
from quarl_bench.errors import StoreError
from quarl_bench.report.documents import Document, read_document
from quarl_bench.report.page.html import render_report
from quarl_bench.report.page.kinds.memory import draw_memory, view_memory
from quarl_bench.report.page.matrix import Mark, view_matrix
from quarl_bench.report.page.overview import describe_matrix
from quarl_bench.report.page.palette import DARK, LIGHT
from quarl_bench.report.page.plots import Bins, Curve, Point, draw_bits, draw_weights, render_png, render_svg
from quarl_bench.report.page.row_views import LARGEST_DISTANCE, WIDTH, view_claims, view_failures, view_plots, view_rows
from quarl_bench.report.page.tables import split_tables, view_tables
from quarl_bench.report.unjudged import list_unjudged
from quarl_bench.views.table import NOT_RUN
from tests.support.inner import run_inside
from tests.support.rows import CHECK, CLAIM, ROWS, SWEEP, WEIGHTS, make_document, make_row, to_rows

HOSTILE = """<script>alert("x")</script><img src=http://evil.example/x.png onerror='y'>&amp;$\\frac{"""
VOID = {"meta", "link", "img", "input", "br", "hr"}


class Reader(html.parser.HTMLParser):
    """Collects what a page holds, and sees that its elements close in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.cells, self.text, self.ids = [], [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.text.append(data.strip())


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_holds_every_row_and_where_it_is_from():
    text = " ".join(read(render_report([make_document(), SWEEP, WEIGHTS])).text)
    for row in ROWS:
        assert row["id"] in text
        assert row["claim"] in text
        assert row["sentence"] in text
        assert row["verdict"] in text
    for part in (
        "two bits are too few", "moved", "87.50%", "500 → 488", "0.99 [0.95, 1.03] against 0.95", "Table 2", "measured",
        "3 policies x 100 episodes (99 distinct), deterministic", "about 5 policies", "missing: ppo-pong-w8",
        "barring any rare collapse", "no baseline for y", "training z", "a chip", "abc123", "nightly", "torch 2.13.0",
        "instructions avx2, fma", "mine on CartPole-v1", "mine under w4", "layers.0.weight",
    ):  # fmt: skip
        assert part in text, part


def test_claims_count_their_cells_and_name_the_worst():
    cell, mean = view_claims(to_rows(ROWS))
    assert (cell.id, cell.worst.locus) == ("table2-cell", "Table 2")
    assert cell.counts == (("refuted", 1), ("inconclusive", 1), ("supported", 1))
    assert (cell.worst.id, cell.worst.verdict) == ("ppo-cartpole-w2", "refuted")
    assert (cell.worst.paper, cell.worst.ours, mean.worst.ours) == ("500 → 488", "200 → 60", "")
    assert (mean.worst.id, mean.counts) == ("ppo-table2-w8", (("partial", 1),))


def test_what_did_not_reproduce_comes_first_and_unexplained_ones_before_the_rest():
    rows = [*ROWS, make_row("w3", 0.5, "refuted"), make_row("w6", 0.99, "supported", regression="moved")]
    assert [view.id for view in view_failures(to_rows(rows))] == [
        "ppo-cartpole-w3",
        "ppo-cartpole-w6",
        "ppo-cartpole-w2",
    ]
    text = read(render_report([make_document(rows)])).text
    first, claims = (
        text.index("What did not reproduce", text.index("What did not reproduce") + 1),
        text.index("ppo-table2-w8"),
    )
    assert first < text.index("two bits are too few") < claims
    assert "not explained" in text[first:claims]
    assert not view_failures(to_rows([make_row("w8", 0.99, "supported")]))


def test_changes_since_the_last_run_are_shown_when_there_was_one():
    change = {"id": "ppo-cartpole-w2", "before": "supported", "after": "refuted", "estimate_before": 0.99}
    changes = [
        change | {"nodeid": "n", "estimate_after": 0.3, "errors": -28.4},
        change | {"estimate_after": None, "errors": None},
    ]
    text = " ".join(read(render_report([make_document(changes=changes)])).text)
    for part in ("Since the last run", "(changed)", "0.99", "-28.4", "2 in all"):
        assert part in text, part
    assert "Since the last run" not in render_report([make_document()])


def test_the_papers_tables_stand_beside_ours():
    tables = {table.title.partition(":")[0]: table for table in view_tables(to_rows(ROWS))}
    assert list(tables) == [f"QuaRL, Table {n}" for n in range(2, 6)] + [
        f"LQCC, {name}" for name in ("Table 1", "sections 3.1 and 3.2", "Table 2", "Table 3", "Table 6")
    ]
    for table in tables.values():
        assert {len(line) for line in table.lines} == {len(table.head)}
    lines = {line[0]: line[1:] for line in tables["QuaRL, Table 2"].lines}
    assert lines["ppo cartpole"][:6] == ("500", "500", "500", "200", "", "198")
    assert lines["ppo cartpole"][-2:] == ("supported", "")
    assert lines["dqn breakout"][:4] == ("214", "217", "78", NOT_RUN)
    assert lines["dqn mean error"][1:3] == ("-0.88%", "8.60%")  # the paper's last row
    assert tables["QuaRL, Table 3"].lines[0][1:4] == ("214", "63.55%", "-1.40%")
    assert tables["QuaRL, Table 5"].lines[2][3] == "1.62x"
    assert tables["LQCC, Table 6"].lines[0] == ("antv4", "5,000 ± 1,700", "5,100 ± 900", NOT_RUN, NOT_RUN)
    assert view_tables(to_rows([make_row("w8", 0.99, "supported", claim="quantizable")])) == ()


def test_lines_of_a_table_without_a_number_of_ours_stand_apart():
    table = next(table for table in split_tables(to_rows(ROWS)) if "Table 2" in table.title)
    assert [line[0] for line in table.lines] == ["ppo cartpole", "ppo mean error"]
    assert "dqn breakout" in [line[0] for line in table.bare]
    assert not split_tables(to_rows([make_row("w8", 0.99, "supported", claim="quantizable")]))


def test_the_matrix_has_a_mark_for_every_cell_that_was_judged():
    more = [
        make_row("w8", 0.5, "refuted", board="local", id="ppo-cartpole-w8-local"),  # the simulation's stands for it
        make_row("int8", 0.97, "inconclusive", env="acrobot", id="ppo-acrobot-int8"),
        make_row("w8", 0.2, "supported", rule="drops", env="pong"),  # says that the return is lost
        make_row("fp16", 1.0, "supported", env="rover", algo="", origin="mine", id="rover"),
    ]
    matrix = view_matrix(to_rows([*ROWS, *more]))
    assert matrix.groups == (("policy", 1), ("ppo", 4))
    assert [column.scheme for column in matrix.columns] == ["fp16", "w8", "w4", "w2", "int8"]
    assert [(line.environment, line.origin) for line in matrix.lines] == [
        ("cartpole", ""), ("acrobot", ""), ("rover", "mine"),
    ]  # fmt: skip
    marks = [mark and (mark.symbol, mark.share) for mark in matrix.lines[0].marks]
    assert marks == [None, ("✔", "99%"), ("?", "96%"), ("✖", "30%"), None]
    assert matrix.counts == {"supported": 2, "refuted": 1, "inconclusive": 2}
    assert "cartpole: ppo w8 supported 99%" in describe_matrix(matrix)
    assert view_matrix(to_rows([CLAIM])) is None


def test_a_project_s_page_names_its_tests_and_no_paper():
    own = [
        make_row("w8", 0.99, "supported", claim="quantizable", nodeid="tests/test_release.py::test_keeps[w8]"),
        make_row("int4", 0.5, "refuted", claim="quantizable", nodeid="tests/test_release.py::test_keeps[int4]"),
    ]
    text = " ".join(read(render_report([make_document([row | {"paper": None} for row in own])])).text)
    assert "Does a policy keep its return in fewer bits? Asked 2 times: 1 yes, 1 no, 0 not decided." in text
    assert text.count("tests/test_release.py::test_keeps[int4]") == 2
    assert not re.search("paper|QuaRL|LQCC|claim|reproduce", text.partition("results.json")[0])


def test_every_verdict_can_be_read_on_either_ground():
    """WCAG's contrast of 4.5 for text, in light and in dark, also on its own tint."""
    for colours in (LIGHT, DARK):
        for name in ("ink", "soft", "link", "supported", "refuted", "inconclusive", "partial"):
            assert find_contrast(colours[name], colours["page"]) >= 4.5, name


def find_contrast(one, other):
    light, dark = sorted((find_luminance(one), find_luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def find_luminance(colour):
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_claims_that_were_not_judged_are_counted():
    skipped = ["benches/quarl/test_table2.py::test_x[dqn-pong-w8]"]
    entry = {entry.claim: entry for entry in list_unjudged(to_rows(ROWS), skipped)}["table2-cell"]
    assert entry.skipped == 1
    everything = next(
        e for e in list_unjudged(to_rows([make_row("w8", 1, "supported", id="x")]), []) if e.claim == "table2-cell"
    )
    assert everything.absent == entry.absent + 2  # ROWS have one of its cells: ppo-cartpole-w8
    assert list_unjudged(to_rows([make_row("w8", 0.99, "supported", claim="quantizable")]), skipped) == ()


def test_a_check_shows_layers_differences_the_fewest_bits_and_what_would_decide():
    reader = read(render_report([CHECK]))
    text = " ".join(reader.text)
    for part in (
        "Ship w8.", "at 95.0% confidence: w8", "-50", "[-3, +1]", "99.5%", "[98.5%, 100.5%]", "no interval",
        "about 300 distinct episodes", "no gains", "Of all of them: one policy.", "layers.0", "64 x 4", "6.8%", "2.8%",
        "98.6%", "12,345", "7.0", "684", "no kernel", "8,232", "bytes of flash", "too wide",
        "mine on CartPole-v1", "59 distinct",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("one policy,") == 1  # the figure's note; the caveat is said once, for all lines
    floored = Document("check.json", CHECK.data | {"floor": -21.0})
    assert "keep 95.0% of the return above -21 at" in " ".join(read(render_report([floored])).text)


def test_memory_over_time_is_drawn_once_for_a_board():
    side = {"memory": [[0.0, 20 << 20, 0], [1.0, 24 << 20, 1 << 20]]}
    row = make_row("int8", 1.0, "supported", kind="timing", env="quadx3", board="local", measured=side, reference=side)
    (view,) = view_memory(to_rows([row, row, make_row("w8", 1.0, "supported")]))
    assert view.title == "quadx3 on local"
    assert "swapped" in render_svg(draw_memory(view), "m")
    assert not list(view_memory(to_rows([row | {"measured": {}}])))


def test_bars_share_a_scale_and_stay_inside():
    bars = {view.id: view.bar for view in view_rows(to_rows(ROWS))}
    assert bars["ppo-table2-w8"] is None
    good, bad = bars["ppo-cartpole-w8"], bars["ppo-cartpole-w2"]
    assert good.threshold == bad.threshold
    assert good.threshold < good.estimate < good.high <= WIDTH
    assert 0 <= bad.low == bad.estimate < bad.threshold  # further than LARGEST_DISTANCE away: cut off
    assert ROWS[1]["threshold"] - ROWS[1]["interval"][1] > LARGEST_DISTANCE


def test_plots_show_returns_and_only_intervals_that_are_theirs():
    (plot,) = view_plots(to_rows(ROWS))
    assert (plot.title, plot.reference) == ("ppo / cartpole", 200.0)
    (curve,) = plot.curves
    assert [point.bits for point in sorted(curve.points, key=lambda p: p.bits)] == [2, 4, 8]
    point = next(point for point in curve.points if point.bits == 8)
    assert (point.value, point.low, point.high) == pytest.approx((198.0, 190.0, 206.0))
    other = [make_row("w8", 0.5, "refuted", interval=[0.9, 1.0]), make_row("w4", 0.5, "refuted", interval=None)]
    (plot,) = view_plots(to_rows(other))
    assert all(point.low is None for point in plot.curves[0].points)
    assert list(view_plots(to_rows([make_row("fp32", 1.0, "supported"), make_row("w8", 1.0, "supported")]))) == []


def test_nothing_in_a_file_becomes_markup():
    hostile = copy.deepcopy(ROWS)
    for row in hostile:
        row.update(dict.fromkeys(("id", "claim", "sentence", "locus", "known", "source", "regression"), HOSTILE))
        row.update(dict.fromkeys(("needed", "algo", "env", "board"), HOSTILE), caveats=[HOSTILE], missing=[HOSTILE])
    hostile[0] |= {"versions": {HOSTILE: HOSTILE}}
    skipped = [{"nodeid": HOSTILE, "reason": HOSTILE}]
    results = make_document(hostile, machine={HOSTILE: HOSTILE}, commit=HOSTILE, skipped=skipped, notes=[HOSTILE])
    weights = copy.deepcopy(WEIGHTS.data) | {"policy": HOSTILE, "scheme": HOSTILE}
    weights["rows"] = [{HOSTILE: HOSTILE}]
    weights["histograms"][0]["name"] = HOSTILE
    sweep = SWEEP.data | {"policy": HOSTILE, "environment": HOSTILE, "source": HOSTILE}
    page = render_report([results, Document(HOSTILE, sweep), Document(HOSTILE, weights)])
    reader = read(page)
    assert reader.tags.count("script") == 1
    assert "img" not in reader.tags
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    assert "".join(reader.text).count("alert(") > 20


def test_the_page_needs_nothing_but_itself():
    page = render_report([make_document(), SWEEP, WEIGHTS])
    reader = read(page)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(reader.tags)
    references = [value for _, name, value in reader.attributes if name in ("src", "href", "xlink:href", "srcset")]
    assert references
    assert all(value.startswith("#") for value in references)
    assert {value[1:] for value in references} <= set(reader.ids)
    assert "http" not in page
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    assert "@import" not in page
    assert len(reader.ids) == len(set(reader.ids))  # figures do not take each other's clip paths


def test_the_same_rows_give_the_same_page():
    assert render_report([make_document(), SWEEP, WEIGHTS]) == render_report([make_document(), SWEEP, WEIGHTS])
    assert render_report([make_document(ROWS[::-1])]).count("<tr>") == render_report([make_document()]).count("<tr>")


def test_an_empty_run_is_a_page_too():
    assert "no rows" in " ".join(read(render_report([make_document([])])).text)
    assert read(render_report([])).tags[0] == "html"


def test_figures_follow_the_page_s_colours_and_nobody_s_settings():
    import matplotlib as mpl

    curves = [Curve("w", (Point(2, 1.0, 0.5, 1.5), Point(8, 2.0)))]
    plain = render_svg(draw_bits(curves, 2.0), "a"), render_png(draw_weights([Bins("x", 0, 1, (1, 2))]))
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert (render_svg(draw_bits(curves, 2.0), "a"), render_png(draw_weights([Bins("x", 0, 1, (1, 2))]))) == plain
    assert plain[1].startswith(b"\x89PNG")
    assert "currentColor" in plain[0]
    assert "#101418" not in plain[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON, or cut short"),
        ('{"rows": [NaN]}', "it holds NaN"),
        (
            '{"rows": [{"id": "a-b-w8", "claim": "c", "interval": [0.9, -Infinity]}]}',
            "row 'a-b-w8' of claim 'c', field 'interval': it holds -Infinity; restore it",
        ),
        (
            '{"rows": [{"id": "x", "claim": "c", "measured": {"mean": NaN}}]}',
            "row 'x' of claim 'c', field 'measured': it holds NaN; restore it",
        ),
        ("[]", "holds no rows"),
        ('{"rows": 3}', "holds no rows"),
        ('{"rows": [], "schema_version": 99}', "schema_version is 99, not 1 or 2; make it again"),
        ('{"rows": [], "kind": "poem"}', "unknown kind 'poem'"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(StoreError, match=rf"x\.json: .*{message}"):
        read_document(path)
    with pytest.raises(StoreError, match="No such file"):
        read_document(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ({"rows": [{}]}, "row None lacks nodeid, id, claim, kind, verdict, threshold"),
        ({"rows": [{"nodeid": "x", "id": "x"}]}, "row 'x' lacks claim, kind, verdict, threshold"),
        ({"rows": [3]}, "3 is no row"),
        (
            {"rows": [make_row("w8", 1.0, "supported", interval=[1.04, 0.96])]},
            "row 'ppo-cartpole-w8' of claim 'table2-cell': interval is [1.04, 0.96]: its limits are swapped",
        ),
        ({"rows": [make_row("w8", 1.0, "supported", interval=[0.9])]}, "interval is [0.9], not two numbers"),
        ({"rows": [make_row("w8", 1.0, "supported", estimate="much")]}, "estimate is 'much'"),
        ({"rows": [make_row("w8", 1.0, "supported", threshold=10**400)]}, "threshold is "),
        ({"rows": [make_row("w8", 1.0, "splendid")]}, "verdict is 'splendid', none of supported, refuted"),
        ({"rows": [make_row("w8", 1.0, "supported", measured={"mean": 1.0})]}, "measured lacks one of mean, policies"),
        ({"rows": [make_row("w8", 1.0, "supported", paper={})]}, "paper lacks reference or value"),
        ({"rows": [CLAIM | {"gains": {"a": {}}, "device": {"name": "x"}}]}, "gains lack the name or the machine of"),
        ({"rows": [make_row("w8", 1.0, "supported", caveats=[3])]}, "caveats is [3]"),
        ({"skipped": [{}]}, "skipped of another type"),
        ({"skipped": None}, "skipped of another type"),
        ({"notes": 5}, "notes of another type"),
        ({"shard": "x/y"}, "shard of another type"),
        ({"shard": "2"}, "shard of another type"),
    ],
)
def test_a_damaged_results_file_is_one_line(tmp_path, monkeypatch, capsys, damaged, message):
    monkeypatch.chdir(tmp_path)
    good = {"schema_version": 1, "rows": [], "skipped": []}
    Path("good.json").write_text(json.dumps(good))
    Path("bad.json").write_text(json.dumps(good | damaged))
    for arguments in (["bad.json"], ["good.json", "--compare", "bad.json"]):
        assert main(["report", "merge", *arguments]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("quarl report: bad.json: ")
        assert message in line
    assert not Path("results.json").exists()


@pytest.mark.parametrize(
    "row",
    [{}, {"id": "x"}, make_row("w8", 1.0, "supported", interval=[1]), make_row("w8", 1.0, "supported", measured={}), 3],
)
def test_an_ill_formed_row_is_one_line(row):
    with pytest.raises(StoreError, match=r"results\.json: a row is ill-formed"):
        render_report([make_document([row])])


def test_pytest_writes_the_page(pytester):
    pytester.makepyfile(f"def test_x(quarl_record):\n    quarl_record({ROWS[0] | {'nodeid': 'x'}!r})\n")
    result = run_inside(pytester, "--quarl-html=page.html", "--quarl-json=rows.json")
    assert result.ret == 0
    text = " ".join(read((pytester.path / "page.html").read_text()).text)
    assert "ppo-cartpole-w8" in text
    assert json.loads((pytester.path / "rows.json").read_text())["rows"]
    refused = run_inside(pytester, "--quarl-html=no/such/page.html")
    refused.stderr.fnmatch_lines(["*--quarl-html no/such/page.html: the folder * does not exist; make it*"])


@pytest.mark.parametrize(
    ("kept", "share"), [(-1e-12, "0%"), (-0.004, "0%"), (-0.006, "<0%"), (0.984, "98%"), (None, "")]
)
def test_a_mark_says_how_much_is_kept(kept, share):
    """Of nothing there is no minus."""
    mark = Mark("ppo-cartpole-int2", "table2-cell", "refuted", kept, None, None)
    assert mark.share == share
    assert "-0%" not in mark.words
