"""The lines of the terminal section, from rows alone."""

from quarl_bench.report.terminal import list_lines, list_skips, star_rows
from quarl_bench.views.rows import Row
from tests.support import rows

COUNTS = {"policies": 3, "episodes": 100, "distinct_episodes": 100}


def make_row(name, verdict="supported", p_values=(0.5, 0.5), **changes):
    own = {
        "nodeid": f"t[{name}]",
        "id": name,
        "claim": "c",
        "line": "l",
        "kind": "case",
        "paper": None,
        "caveats": ["a caveat"],
    }
    returns = {"reference": COUNTS | {"mean": 2.0}, "measured": COUNTS | {"mean": 1.0}, "p_values": list(p_values)}
    return Row.from_dict(rows.make_row("w8", 0.95, verdict, **own | returns | changes))


def test_one_line_per_claim_and_more_on_request():
    found = [make_row("a"), make_row("b", "refuted", known="why"), make_row("d", claim="e")]
    short = list(list_lines(found, verbose=False))
    assert short[1:] == [
        "c: 2 verdicts: 1 refuted, 1 supported; worst b (known) l",
        "e: 1 verdict: 1 supported; worst d l",
    ]
    long = "\n".join(list_lines(found, verbose=True))
    assert "known: why" in long
    assert "return 2 -> 1 (measured)" in long
    assert "note: a caveat" in long


def test_it_begins_with_what_was_asked_and_how_often_it_holds():
    found = [make_row("a"), make_row("b", "refuted", known="why"), make_row("d", "refuted"), make_row("e", "partial")]
    of_papers, *_ = list_lines(found, verbose=False)
    assert of_papers == (
        "asked 4 times: does this sentence of a paper hold for these policies? 1 yes, 2 no (1 of them known before), "
        "1 not decided; -v lists each answer, --quarl-html=FILE makes a page of them"
    )
    own = [make_row("a", claim="quantizable")]
    assert next(list_lines(own, verbose=False)).startswith(
        "asked once: does this policy keep its return in fewer bits? 1 yes, 0 no, 0 not decided; "
    )
    both, *_ = list_lines([*own, *found], verbose=True)
    assert both.startswith("asked 5 times: does this policy keep its return in fewer bits? does this sentence of a ")
    assert not list(list_lines([], verbose=True))


def test_replays_are_counted_apart():
    replay = make_row("b", replay=True)
    found, *_ = list_lines([make_row("a"), replay], verbose=False)
    assert "1 yes, 0 no, 0 not decided; 1 replays apart; -v" in found
    assert next(list_lines([replay], verbose=False)) == "1 replays, which measure nothing"


def test_unexpected_refutations_and_moved_numbers_are_always_told():
    found = [make_row("a", "refuted"), make_row("b", regression="moved")]
    assert any(line.startswith("  a:") for line in list_lines(found, verbose=False))
    assert any("regression: moved" in line for line in list_lines(found, verbose=False))


def test_stars_are_for_what_survives_many_looks():
    found = [make_row(f"x{i}", p_values=(0.04, 0.96)) for i in range(20)]
    assert star_rows([*found, make_row("strong", p_values=(1e-5, 1.0))]) == {("t[strong]", "strong")}
    assert star_rows([make_row("strong", p_values=(1.0, 1e-5)), *found]) == {("t[strong]", "strong")}
    twins = [make_row(name, nodeid="t", p_values=values) for name, values in (("a", (1e-5, 1.0)), ("b", (0.4, 0.6)))]
    assert star_rows(twins) == {("t", "a")}
    assert star_rows([]) == set()
    assert star_rows([make_row("claim", p_values=())]) == set()


def test_many_skips_alike_are_one_line_and_all_on_request():
    reasons = [f"no baseline for x{i}: train it" for i in range(6)] * 2 + ["no zoo agent of a"]
    short = list(list_skips(reasons, verbose=False))
    assert short[0].startswith("skipped 12 for 6 reasons like this (-v lists them): no baseline for x0")
    assert short[1:] == ["skipped 1: no zoo agent of a"]
    assert len(list(list_skips(reasons, verbose=True))) == 7
    assert list(list_skips(["a b"] * 3, verbose=False)) == ["skipped 3: a b"]
