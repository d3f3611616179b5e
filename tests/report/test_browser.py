"""The page in a real Chromium: sorted, filtered, a case opened, printed, exported; at both widths, light and dark."""

import shutil
import subprocess

import pytest

from quarl_bench.report.documents import Document
from quarl_bench.report.page.export import write_figures
from quarl_bench.report.page.html import write_report
from tests.support.browser import open_chromium, open_file
from tests.support.rows import CHECK, CLAIM, make_row
from tests.support.sizes import choose

pytestmark = pytest.mark.needs("report", "chromium", "playwright")
MORE = [(400, "light"), (1400, "dark")]
A4 = 794  # CSS pixels between the edges of a sheet
CELLS = [
    ("ppo", "cartpole", "w8", 0.99, "supported"),
    ("ppo", "cartpole", "int4", 0.64, "refuted"),
    ("ppo", "acrobot", "w8", 0.96, "inconclusive"),
    ("dqn", "cartpole", "w8", 0.81, "inconclusive"),
    ("dqn", "cartpole", "int8", 0.66, "refuted"),
]
OUTSIDE = """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const box = svg.getBoundingClientRect();
  const inside = (it) => it.left > box.left - 1 && it.right < box.right + 1 && it.top > box.top - 1;
  const texts = [...svg.querySelectorAll("text")];
  return texts.filter((text) => !inside(text.getBoundingClientRect())).map((text) => text.textContent);
})"""
NAMELESS = """() => {
  const all = [...document.querySelectorAll("a, button, input, [role=img], [role=region], table")];
  const named = (each) => each.getAttribute("aria-label") || each.textContent.trim() || each.closest("label");
  return all.filter((each) => !named(each)).map((each) => each.outerHTML);
}"""


@pytest.fixture(scope="module")
def chromium():
    with open_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def results():
    rows = [
        make_row(scheme, kept, verdict, id=f"{algo}-{env}-{scheme}", nodeid=f"t.py::t[{algo}-{env}-{scheme}]",
                 algo=algo, env=env)
        for algo, env, scheme, kept, verdict in CELLS
    ]  # fmt: skip
    return Document("results.json", {"schema_version": 1, "rows": [*rows, CLAIM]})


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_report(path, [results])
    return path


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light"), *choose([], MORE)])
def test_nothing_is_cut_and_everything_has_a_name(width, scheme, page, chromium):
    with open_file(chromium, page, width, color_scheme=scheme) as shown:
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.evaluate(OUTSIDE) == []
        assert shown.evaluate(NAMELESS) == []
        dark = shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
        assert dark == (scheme == "dark")
        matrix = shown.locator("#matrix").bounding_box()
        assert matrix["y"] < 900  # on the first screen
        assert shown.get_by_role("link", name="ppo-cartpole-int4: refuted, keeps 64% of the return").is_visible()


def test_a_mark_opens_its_case_by_mouse_and_by_keyboard(page, chromium):
    with open_file(chromium, page) as shown:
        shown.get_by_role("searchbox").fill("acrobot")
        link = shown.get_by_role("link", name="dqn-cartpole-int8: refuted")
        row = shown.locator(link.get_attribute("href"))
        assert not row.is_visible()
        link.click()
        shown.wait_for_function("document.activeElement.tagName === 'TR'")
        assert row.is_visible()
        assert row.locator("details").evaluate("each => each.open")
        shown.get_by_role("link", name="ppo-cartpole-w8: supported").focus()
        shown.keyboard.press("Enter")
        shown.wait_for_function("document.activeElement.textContent.includes('ppo-cartpole-w8')")


def test_tables_sort_and_filter(page, chromium):
    with open_file(chromium, page) as shown:
        cases = shown.locator("table.filtered")
        names = cases.locator("tbody th[scope=row]")
        head = cases.get_by_role("columnheader", name="interval")
        button = head.get_by_role("button")
        button.focus()
        shown.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert "dqn-cartpole-int8" in names.nth(0).inner_text() + names.nth(1).inner_text()
        button.click()
        assert head.get_attribute("aria-sort") == "descending"
        assert "ppo-cartpole-w8" in names.first.inner_text()
        shown.get_by_role("searchbox").fill("dqn refuted")
        assert sum(row.is_visible() for row in cases.locator("tbody tr").all()) == 1


def test_lines_without_a_number_of_ours_are_folded(page, chromium):
    with open_file(chromium, page) as shown:
        breakout = shown.get_by_role("row", name="dqn breakout")
        assert not breakout.first.is_visible()
        shown.get_by_text("more lines of the paper").first.click()
        assert breakout.first.is_visible()


def test_it_prints_without_what_needs_a_hand(page, chromium):
    with open_file(chromium, page, color_scheme="dark") as shown:
        printed = shown.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        shown.emulate_media(media="print")
        assert not shown.get_by_role("navigation").is_visible()
        assert shown.evaluate("getComputedStyle(document.body).getPropertyValue('--page')") == "#ffffff"
        assert shown.get_by_text("3 policies x 100 episodes").first.is_visible()  # what rests in details


@pytest.mark.parametrize("schemes", choose([10], [1, 3, 10]))
def test_on_paper_neither_the_matrix_nor_a_table_is_cut(schemes, tmp_path, chromium):
    rows = [
        make_row(scheme, 0.64, "refuted", id=f"{algo}-{env}-{scheme}", nodeid=f"{algo}-{scheme}", algo=algo, env=env)
        for algo in ("a2c", "ddpg", "dqn", "ppo", "sac")
        for scheme in ["int8repaired", *(f"w{bits}" for bits in range(2, 1 + schemes))]
        for env in ("cartpole", "mountaincarcontinuous")
    ]
    write_report(tmp_path / "page.html", [Document("results.json", {"schema_version": 1, "rows": rows})])
    with open_file(chromium, tmp_path / "page.html", A4) as shown:
        shown.emulate_media(media="print")
        assert shown.locator("#matrix tbody td a").count() == len(rows)
        matrix, whole = (shown.locator(name).bounding_box() for name in ("#matrix", "main"))
        assert matrix["x"] + matrix["width"] <= whole["x"] + whole["width"]
        assert shown.evaluate("document.documentElement.scrollWidth") <= A4  # else the printer shrinks all of it


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="pdftotext (poppler) reads what was printed")
def test_no_head_of_a_table_stands_alone_at_the_foot_of_a_sheet(page, tmp_path, chromium):
    feet = []
    with open_file(chromium, page) as shown:
        for height in choose((0, 100, 200), range(0, 300, 50)):  # the foot falls on every part of a table
            shown.evaluate(f"document.querySelector('header').style.paddingBottom = '{height}px'")
            shown.pdf(format="A4", path=tmp_path / "page.pdf")
            command = ["pdftotext", "-layout", tmp_path / "page.pdf", "-"]
            sheets = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\f")
            feet += [sheet.strip().splitlines()[-1] for sheet in sheets if sheet.strip()]
    assert len(feet) > choose(3, 6)
    assert not [foot for foot in feet if "\u2195" in foot]  # the mark of a head that sorts


def test_exported_figures_are_pictures(results, tmp_path, chromium):
    names = [f"{name}{suffix}" for name in ("verdicts", "bits", "overview") for suffix in (".svg", ".png")]
    assert sorted(path.name for path in write_figures(tmp_path, results.rows)) == sorted(names)
    (tmp_path / "page.html").write_text("".join(f'<img src="{name}" alt="">' for name in names))
    with open_file(chromium, tmp_path / "page.html") as shown:
        widths = shown.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 6
    assert min(widths) > 300


def test_a_check_has_its_threshold_its_title_and_its_whole_legend(tmp_path, chromium):
    write_report(tmp_path / "check.html", [CHECK])
    with open_file(chromium, tmp_path / "check.html", 400) as shown:
        assert shown.evaluate("document.documentElement.scrollWidth") <= 400
        assert shown.evaluate(OUTSIDE) == []
        words = shown.locator("figure svg").text_content()
        assert "to be kept" in words
        assert "mine on CartPole-v1" in words
        assert "QuaRL, Figure" not in shown.locator("body").inner_text()
