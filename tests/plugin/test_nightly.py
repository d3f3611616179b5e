"""The nightly: shards, merging, comparing with the last run, junit XML."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.cli import main
from quarl_bench.environments.atari.games import NOOPS, count_noops
from quarl_bench.errors import StoreError
from quarl_bench.evaluation.profiles import PROFILES
from quarl_bench.evaluation.protocol import list_test_seeds
from quarl_bench.plugin.shard import group_durations, pick_shard, split
from quarl_bench.plugin.state import CASE
from quarl_bench.report.compare import compare_rows, list_changes, list_conditions
from quarl_bench.report.documents import Document
from quarl_bench.report.merge import merge_results
from tests.support.inner import run_apart, run_inside
from tests.support.rows import to_rows
from tests.support.sizes import choose

BENCH = """
import json, pathlib, pytest
NUMBERS = json.loads(pathlib.Path("numbers.json").read_text())

@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_it(name, quarl_record):
    verdict, estimate = NUMBERS[name]
    interval = [estimate - 0.1, estimate + 0.1]
    quarl_record({"kind": "claim", "id": name, "claim": "c", "verdict": verdict, "estimate": estimate, "known": "",
                  "interval": interval, "threshold": 0.95, "regression": "none", "line": f"{verdict}: {estimate}",
                  "missing": [], "caveats": [], "layers": ["x" * 10000]})
    assert verdict != "refuted", name
"""
LATE = """
ROW = {"kind": "claim", "claim": "c", "verdict": "supported", "threshold": 0.95, "line": "fine"}

@pytest.fixture
def subject(quarl_record):
    yield
    quarl_record(ROW | {"id": "late"})

def test_late(subject, quarl_record):
    quarl_record(ROW | {"id": "early"})
"""
NUMBERS = {f"case{index}": ("supported", 1.0) for index in range(7)} | {"open": ("inconclusive", 0.95)}
STANDARD_ERROR = 0.1 / 1.6448536


@pytest.fixture
def project(pytester):
    pytester.makepyfile(test_bench=BENCH)
    write(pytester)
    return pytester


def write(project, **changes):
    (project.path / "numbers.json").write_text(json.dumps(NUMBERS | changes))


def read(project, name):
    return json.loads((project.path / name).read_text())


def forget_seconds(results):
    """Rows without the duration of their test, which is another one every time."""
    return [row | {"seconds": None} for row in results["rows"]]


def make_item(nodeid, case=None):
    return SimpleNamespace(nodeid=nodeid, user_properties=[] if case is None else [(CASE, case)])


durations = st.dictionaries(st.text(min_size=1), st.floats(0, 1e4), max_size=40)


@given(durations, st.integers(1, 9))
def test_every_name_is_in_one_part_and_the_parts_are_balanced(weights, parts):
    lists = split(weights, parts)
    assert sorted(name for names in lists for name in names) == sorted(weights)
    assert lists == split(dict(sorted(weights.items(), reverse=True)), parts), "the order of collection changes nothing"
    loads = [sum(weights[name] for name in names) for names in lists]
    # A greedy list is at most its last name above the mean; without that name it was the lightest.
    heaviest = max(weights.values(), default=0.0)
    assert max(loads) <= sum(weights.values()) / parts + heaviest * (1 - 1 / parts) + 1e-6


def test_durations_that_vary_a_little_move_nothing():
    groups = {name: [name] for name in "abcdef"}
    first = {name: 2.0**index for index, name in enumerate("abcdef")}
    second = {name: seconds * 1.1 for name, seconds in first.items()}
    assert group_durations(groups, first) == group_durations(groups, second)


def test_unknown_items_count_as_the_median_one():
    assert (
        group_durations({"a": ["a"], "b": ["b"], "c": ["c"], "d": ["d"]}, {"a": 1.0, "b": 4.0, "c": 64.0})["d"] == 4.0
    )
    assert group_durations({"a": ["a"]}, {}) == {"a": 1.0}


def test_cases_of_one_cell_stay_together():
    schemes = ("fp16", "w8", "int8")
    items = [make_item(f"b.py::t[{a}-cartpole-{s}]", f"{a}-cartpole-{s}") for a in ("ppo", "a2c") for s in schemes]
    parts = [pick_shard(items, (i, 2), {}) for i in (1, 2)]
    assert [len({nodeid.partition("[")[2][:3] for nodeid in part}) for part in parts] == [1, 1]
    assert parts[0] | parts[1] == {item.nodeid for item in items}


def test_a_run_in_parts_merges_to_the_whole(project, capsys):
    run_inside(project, "--quarl-json", "whole.json")
    for index in (1, 2, 3):
        run_inside(
            project, "--quarl-json", f"{index}.json", "--quarl-shard", f"{index}/3", "--quarl-compare", "whole.json"
        )
    parts = [read(project, f"{index}.json") for index in (1, 2, 3)]
    assert all(part["rows"] for part in parts)
    assert sum(len(part["rows"]) for part in parts) == len(NUMBERS)
    files = [str(project.path / f"{index}.json") for index in (2, 3, 1)]
    merged = str(project.path / "merged.json")
    assert main(["report", "merge", *files, "--output", merged, "--compare", str(project.path / "whole.json")]) == 0
    assert "0 verdicts changed; 0 numbers moved" in capsys.readouterr().out
    assert main(["compare", str(project.path / "whole.json"), merged]) == 0
    assert "0 verdicts changed; 0 numbers moved" in capsys.readouterr().out
    whole = read(project, "whole.json")
    assert forget_seconds(read(project, "merged.json")) == forget_seconds(whole)
    for key in ("skipped", "notes", "settings", "machine", "commit"):
        assert read(project, "merged.json")[key] == whole[key]
    assert read(project, "merged.json")["durations"].keys() == whole["durations"].keys()
    assert main(["report", "merge", *files[:2], "--output", merged]) == 2
    assert "shard 1/3 is missing" in capsys.readouterr().err
    assert main(["report", "merge", *files, files[0], "--output", merged]) == 2
    assert "name each part once" in capsys.readouterr().err


def test_parts_that_were_cut_otherwise_are_not_merged(project, capsys):
    """Without the durations that the other has, or from fewer cases, a part leaves some out and repeats others."""
    run_inside(project, "--quarl-json", "whole.json")
    cuts = {"1": ("--quarl-compare", "whole.json"), "2": (), "3": ("--quarl-compare", "whole.json", "-k", "not case1")}
    for name, options in cuts.items():
        shard = f"{min(int(name), 2)}/2"
        run_inside(project, "--quarl-json", f"{name}.json", "--quarl-shard", shard, *options)
    for other in ("2", "3"):
        files = [str(project.path / f"{name}.json") for name in ("1", other)]
        assert main(["report", "merge", *files, "--output", str(project.path / "merged.json")]) == 2
        assert "cut from other selections" in capsys.readouterr().err
    assert all("quarl_basis" not in str(row) for row in read(project, "1.json")["rows"])


@pytest.mark.parametrize("workers", choose(["0"], ["0", "2"]))
def test_an_interrupted_part_says_so_and_is_not_merged(project, capsys, workers):
    project.makeconftest("""
        import pytest
        @pytest.hookimpl(trylast=True)
        def pytest_runtest_logreport(report):
            if "case4" in report.nodeid and report.when == "call":
                raise KeyboardInterrupt
    """)
    result = run_apart(project, "--quarl-json", "1.json", "-n", workers)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    part = read(project, "1.json")
    assert part["interrupted"] is True
    assert any("interrupted" in note for note in part["notes"])
    result.stdout.fnmatch_lines(["note: the run was interrupted: *"])
    without = run_apart(project, "-n", choose("0", workers))  # results
    without.stdout.fnmatch_lines(["note: the run was interrupted: *"])
    assert main(["report", "merge", str(project.path / "1.json"), "--output", str(project.path / "all.json")]) == 2
    assert "1.json: its run was interrupted" in capsys.readouterr().err


def test_changed_verdicts_fail_and_moves_are_told_in_standard_errors(project):
    run_inside(project, "--quarl-json", "last.json", "-n", "2")
    options = ("--quarl-compare", "last.json", "--quarl-json", "now.json")
    write(project, case3=("supported", 1.2), new=("supported", 1.0))
    result = run_inside(project, *options)
    assert result.ret == 0
    result.stdout.fnmatch_lines([
        "*quarl changes*", "0 verdicts changed; 1 numbers moved by more than a standard error, 7 not",
        "  case3: supported; 1 -> 1.2, +3.3 standard errors", "new: 1 (-v lists them)",
    ])  # fmt: skip
    (change,) = read(project, "now.json")["changes"]
    assert change["errors"] == pytest.approx(0.2 / STANDARD_ERROR, rel=1e-6)
    write(project, open=("supported", 1.1))
    result = run_inside(project, *options)
    assert result.parseoutcomes() == {"passed": 8}
    assert result.ret == 1, "a verdict that changed for the better is to be looked at, too"
    result.stdout.fnmatch_lines(
        ["1 verdicts changed; *", "  open: inconclusive -> supported; 0.95 -> 1.1, +2.5 standard*"]
    )


def test_what_is_no_longer_judged_is_listed(project):
    run_inside(project, "--quarl-json", "last.json")
    result = run_inside(project, "--quarl-compare", "last.json", "-k", "case1", "-v", "--quarl-episodes", "7")
    assert result.ret == 0
    note = "note: settings of the last run were others: episodes 20 -> 7, games 4 -> 7, cheap 100 -> 7"
    result.stdout.fnmatch_lines([note])
    result.stdout.fnmatch_lines(["not judged in this run: 7: case0, case2, *"])


@pytest.mark.parametrize(("now", "told"), [(1.1, "+inf"), (0.9, "-inf")])
def test_an_interval_without_width_moves_infinitely_far_up_or_down(now, told):
    before, after = (to_rows([make_row("a", estimate=value, interval=[1.0, 1.0])]) for value in (1.0, now))
    found = compare_rows(before, after)
    assert [*list_changes(found, verbose=False)][1].endswith(f"1 -> {now}, {told} standard errors")
    assert found.as_dicts()[0]["errors"] is None  # JSON does not know infinity


def test_what_an_older_file_does_not_say_is_no_other_machine():
    older, now = {"machine": {"cores": 2}}, {"machine": {"cores": 2, "instructions": ["avx2"]}}
    assert not [*list_conditions(older, now)]
    (note,) = list_conditions({"machine": {"cores": 2, "instructions": []}}, now)
    assert note == "note: machine of the last run were others: instructions [] -> ['avx2']"


def test_junit_xml_has_verdicts_and_no_bulk(project):
    result = run_inside(project, "-W", "error", "--junitxml", "out.xml")
    assert result.parseoutcomes() == {"passed": 7, "inconclusive": 1}
    assert (project.path / "out.xml").stat().st_size < 10_000
    tree = ET.parse(project.path / "out.xml")
    values = [p.get("value") for p in tree.iter("property") if p.get("name") == "quarl_verdict"]
    assert sorted(values) == ["inconclusive"] + ["supported"] * 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quarl-shard", "4/3"), "*'4/3' is not I/N*"),
        (("--quarl-shard", "0/3"), "*'0/3' is not I/N*"),
        (("--quarl-shard", "third"), "*'third' is not I/N*"),
        (("--quarl-compare", "nothing.json"), "*--quarl-compare: nothing.json: No such file*"),
        (("--quarl-compare", "numbers.json"), "*--quarl-compare: numbers.json: holds no rows*"),
        (
            ("--quarl-compare", "keyless.json"),
            "*--quarl-compare: keyless.json: a row is ill-formed: row None lacks nodeid, *",
        ),
        (
            ("--quarl-compare", "interval.json"),
            "*interval.json: a row is ill-formed: row 'x' of claim 'c': interval is *; restore it, or run *",
        ),
        (
            ("--quarl-compare", "estimate.json"),
            "*estimate.json: a row is ill-formed: row 'x' of claim 'c': estimate is 'much'; *",
        ),
        (("--quarl-compare", "settings.json"), "*settings.json: settings of another type; *"),
        (("--quarl-compare", "durations.json"), "*durations.json: durations of another type; *"),
    ],
)
def test_bad_options_are_one_line(project, arguments, message):
    row = make_row("x")
    for name, damage in (
        ("keyless", {"rows": [{}]}),
        ("interval", {"rows": [row | {"interval": [None, None]}]}),
        ("estimate", {"rows": [row | {"estimate": "much"}]}),
        ("settings", {"rows": [row], "settings": []}),
        ("durations", {"rows": [row], "durations": {"x": -1.0}}),
    ):
        (project.path / f"{name}.json").write_text(json.dumps({"schema_version": 1} | damage))
    result = run_inside(project, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def make_row(nodeid, verdict="supported", estimate=1.0, **more):
    about = {"nodeid": nodeid, "id": nodeid, "claim": "c", "kind": "claim", "threshold": 0.95}
    return about | {"verdict": verdict, "estimate": estimate, "interval": None} | more


def make_part(name, rows, **more):
    data = {"schema_version": 1, "commit": "a", "settings": {"episodes": 100}, "machine": {"cores": 2}, "rows": rows}
    return Document(name, data | {"skipped": [], "notes": []} | more)


def test_a_job_on_boards_joins_the_rest():
    skip = {"nodeid": "board", "reason": "no board"}
    host = make_part("host.json", [make_row("a")], skipped=[skip, {"nodeid": "other", "reason": "no board"}])
    board = make_part("board.json", [make_row("board")], machine={"cores": 4})
    merged = merge_results([host, board])
    assert merged == merge_results([board, host])
    assert [row["nodeid"] for row in merged["rows"]] == ["a", "board"]
    assert [entry["nodeid"] for entry in merged["skipped"]] == ["other"], "what the board judged was not skipped"
    assert merged["machine"] == {"cores": "2 | 4"}


def test_merging_exits_with_1_on_a_changed_verdict(tmp_path, capsys):
    for name, verdict in (("last", "supported"), ("now", "inconclusive")):
        (tmp_path / f"{name}.json").write_text(json.dumps(make_part(name, [make_row("a", verdict)]).data))
    now, last, merged = (str(tmp_path / f"{name}.json") for name in ("now", "last", "merged"))
    assert main(["report", "merge", now, "--compare", last, "--output", merged]) == 1
    assert "  a: supported -> inconclusive; 1 -> 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "merged.json").read_text())["changes"][0]["after"] == "inconclusive"
    assert main(["report", "merge", now, "--compare", now, "--output", merged]) == 0
    assert main(["report", now, "--compare", last]) == 2
    assert "--compare goes with merge" in capsys.readouterr().err
    assert main(["report", "merge", str(tmp_path / "nothing.json")]) == 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (make_part("b", [], commit="b"), "another commit"),
        (make_part("b", [], settings={}), "another settings"),
        (make_part("b", [make_row("a", "refuted")]), "differs from that of a"),
        (make_part("b", [], shard="1/2"), "shard 2/2 is missing"),
    ],
)
def test_parts_of_different_runs_are_refused(other, message):
    with pytest.raises(StoreError, match=message):
        merge_results([make_part("a", [make_row("a")]), other])


def test_rows_without_an_interval_are_compared_by_their_verdict():
    found = compare_rows(
        to_rows([make_row("a"), make_row("b", interval=[1.0, 1.0])]),
        to_rows([make_row("a", "refuted", 0.5), make_row("b", estimate=0.9)]),
    )
    assert [change.errors for change in found.changes] == [None, float("-inf")]
    assert [change.id for change in found.changed] == ["a"]
    assert list(list_changes(found, verbose=False))[1] == "  a: supported -> refuted; 1 -> 0.5"
    json.dumps(found.as_dicts(), allow_nan=False)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_that_a_test_ends_with_code_0_says_interrupted(project, workers):
    """`pytest.exit` may ask for the code of a run that went well."""
    bench = (project.path / "test_bench.py").read_text()
    stop = "    if name == 'case4':\n        pytest.exit('enough', returncode=0)\n"
    (project.path / "test_bench.py").write_text(bench.replace("    verdict, estimate", f"{stop}    verdict, estimate"))
    run_apart(project, "--quarl-json", "1.json", "-n", workers)
    part = read(project, "1.json")
    assert part["interrupted"] is True
    assert any("interrupted" in note for note in part["notes"])


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_verdict_in_a_fixture_s_teardown_is_not_lost(project, workers):
    (project.path / "test_bench.py").write_text("import pytest\n" + LATE)
    result = run_inside(project, "--quarl-json", "1.json", "-n", workers)
    assert result.ret == 0
    rows = [(row["id"], row["nodeid"], row["outcome"]) for row in read(project, "1.json")["rows"]]
    assert rows == [("early", "test_bench.py::test_late", "passed"), ("late", "test_bench.py::test_late", "passed")]
    result.stdout.fnmatch_lines(["c: 2 verdicts: 2 supported; *"])


def test_a_nightly_meets_every_start_of_atari():
    starts = [count_noops(seed) for seed in list_test_seeds(PROFILES["nightly"].games)]
    assert len(set(starts)) == NOOPS
    assert len(set(starts[:-1])) < NOOPS
