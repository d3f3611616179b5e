"""Cases on boards in real pytest runs: what is skipped, what fails, and what a row says."""

import json
import socket
from dataclasses import replace
from fnmatch import fnmatch

import pandas as pd
import pytest

from quarl_bench.boards.speedup import (
    describe_rate,
    explain_memory,
    explain_size,
    explain_speed,
    judge_memory,
    judge_peak,
    judge_rate,
    judge_size,
    judge_speed,
)
from quarl_bench.boards.timing import TimingPlan
from quarl_bench.errors import SpecError
from quarl_bench.papers.quarl.navigation import HIDDEN, find_random_policy
from quarl_bench.plugin.board_fixtures import find_plan
from quarl_bench.spec import Outcome
from tests.support.boards import compare_boards, measure_once
from tests.support.inner import run_inside

pytestmark = pytest.mark.needs("litert", "claims")

BENCH = """
import pytest

@pytest.mark.claim("table4-speed")
def test_speed(case, board_run, times_regression, board_verdict):
    times_regression.check(board_run)
    board_verdict.check(board_run)

@pytest.mark.claim("table4-memory")
def test_memory(case, board_run, board_verdict):
    board_verdict.check(board_run)
"""
# `quiet`: these tests are about the machinery, on machines that do other work.
GLANCE = TimingPlan(blocks=2, calls=50, seconds=0.02, warmup=0.01)
BOARDS = '[desk]\ntransport = "local"\nquiet = 1000\nfolder = "{folder}"\n'


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(pytester.path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("QUARL_BOARDS", raising=False)
    pytester.makepyfile(test_bench=BENCH)
    folder = pytester.path / "board"
    folder.mkdir()
    (pytester.path / "boards.toml").write_text(BOARDS.format(folder=folder))
    return pytester


def run(project, *arguments):
    return run_inside(project, "--quarl-profile", "quick", *arguments)


def test_without_a_board_file_hardware_is_skipped_or_required(project):
    skipped = run(project, "-m", "hardware", "-v")
    assert skipped.parseoutcomes() == {"skipped": 6, "deselected": 6}
    skipped.stdout.fnmatch_lines(
        ["*test_speed?ppo-quadx1-int8-raspi3b? SKIPPED*", "skipped 6: no board 'raspi3b': no board file: pass --quarl*"]
    )
    for name in ("raspi3b", "pi4"):  # also one that no claim names
        required = run(project, "-m", "hardware", "-k", f"quadx1 and {name}", "--quarl-require", name)
        assert required.parseoutcomes()["errors"] == 2
        required.stdout.fnmatch_lines([f"MissingBoard: no board '{name}': no board file*"])


def test_a_misspelt_requirement_is_refused_beside_a_board_file(project):
    result = run(project, "--quarl-boards=boards.toml", "--quarl-require", "litret")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--quarl-require litret: no extra and no board; known are baselines, *litert*, desk"])
    assert run(project, "--quarl-boards=boards.toml", "--quarl-require", "desk", "--co", "-q").ret == 0
    alone = run(project, "--quarl-require", "liter")
    assert alone.ret == pytest.ExitCode.USAGE_ERROR
    alone.stderr.fnmatch_lines(["*--quarl-require liter: no extra; did you mean litert?*"])


def test_sentences_over_policies_are_of_every_board_of_the_file_too(project):
    (project.path / "test_growth.py").write_text(
        "import pytest\n\n@pytest.mark.claim('table4-growth')\ndef test_growth(claim, board_runs):\n    pass\n"
    )
    result = run(project, "test_growth.py", "--quarl-boards=boards.toml", "--collect-only", "-q")
    names = [line.split("[")[1] for line in result.outlines if "::test_growth[" in line]
    assert names == ["ppo-growth-int8-local]", "ppo-growth-int8-desk]"]


@pytest.mark.needs("ssh")
def test_a_listed_board_that_is_silent_fails(project):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = f'[pi4]\ntransport = "ssh"\nhost = "127.0.0.1"\nport = {port}\noptions = ["ConnectTimeout=2"]\n'
    (project.path / "boards.toml").write_text(text)
    result = run(project, "-m", "hardware", "-k", "quadx1", "--quarl-boards=boards.toml")
    assert result.ret == 1
    assert result.parseoutcomes()["errors"] == 2
    result.stdout.fnmatch_lines(["BoardError: board 'pi4': not reached over ssh: *refused*; try `ssh*"])
    assert "Traceback" not in result.stdout.str()
    assert not [*project.path.rglob("*.tflite")]  # nothing was exported for it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pi4]\ntransport = 'pigeon'\n", "*boards.toml, board 'pi4', key 'transport': 'pigeon' is unknown*"),
        (None, "*board file boards.toml: *No such file*"),
    ],
)
def test_a_bad_board_file_ends_the_run_before_it_starts(project, text, message):
    (project.path / "boards.toml").unlink()
    if text is not None:
        (project.path / "boards.toml").write_text(text)
    result = run(project, "--quarl-boards=boards.toml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_board_gives_rows_regression_files_and_leaves_nothing(project, monkeypatch):
    monkeypatch.setattr("quarl_bench.plugin.board_fixtures.find_plan", lambda _: GLANCE)
    measure_once(monkeypatch)
    options = ("-m", "hardware", "--quarl-boards=boards.toml", "--quarl-json", "rows.json", "-k")
    assert run(project, *options, "test_memory and quadx1").ret == 0  # refuted, on a machine without a stored session
    (memory,) = read_rows(project)
    assert (memory["verdict"], memory["outcome"], memory["known"]) == ("refuted", "passed", "")
    assert memory["caveats"][-1].startswith("no session on ")
    assert any("32-bit biases, scales and metadata" in caveat for caveat in memory["caveats"])
    assert run(project, *options, "test_memory and quadx1", "--quarl-strict").ret == 1
    first = run(project, *options, "quadx1", "--regen-all", "--quarl-html", "page.html")
    speed, memory = sorted(read_rows(project), key=lambda row: row["rule"])
    slower = speed["verdict"] == "refuted"  # as it may be where others keep the processor busy
    assert first.parseoutcomes()["failed"] == 1 + slower, first.stdout.str()
    assert (speed["id"], speed["board"], speed["source"]) == ("ppo-quadx1-int8-desk", "desk", "measured")
    assert speed["weights"] == "random weights: timing only"
    assert speed["paper"] == {"reference": 0.147, "value": 0.124, "unit": "ms"}
    assert speed["interval"][0] < speed["estimate"] < speed["interval"][1]
    assert speed["measured"]["golden"]["first"] is None
    assert speed["measured"]["ms"]["p50"] > 0
    assert len(speed["measured"]["memory"][0]) == 3
    # With a session stored, what was refuted is a failure.
    assert (memory["verdict"], memory["outcome"], memory["known"]) == ("refuted", "failed", "")
    assert (speed["outcome"] == "failed") == slower
    assert list((project.path / "board").iterdir()) == []
    assert "ppo-quadx1-int8-desk" in (project.path / "page.html").read_text()

    file = project.path / "test_bench" / "ppo-quadx1-int8-desk.quick.csv"
    sessions = pd.read_csv(file.with_suffix(".sessions.csv"))
    assert sessions["speed"].tolist() == pytest.approx([speed["estimate"]], rel=1e-4)
    assert speed["scope"] == "this policy on desk, this session"
    sessions.assign(when="2026-01-01T00:00Z").to_csv(file.with_suffix(".sessions.csv"), index=False)
    good = pd.read_csv(file)
    write(good.assign(machine="another", p50_us=0.001), file)
    run(project, *options, "test_speed and quadx1")
    (row,) = read_rows(project)
    assert row["regression"] == "mismatch"
    assert row["scope"] == "this policy on desk, 2 sessions on 2 days (5 on 2 days are wanted)"
    write(good.assign(p50_us=0.001, p50_se_us=0.0), file)
    moved = run(project, *options, "test_speed and quadx1")
    assert moved.parseoutcomes()["failed"] == 1
    moved.stdout.fnmatch_lines(["*To update values, use --force-regen option.*", "*obtained_p50_us*"])


def read_rows(project):
    return json.loads((project.path / "rows.json").read_text())["rows"]


def write(frame, file):
    frame.to_csv(file, index=False, float_format="%#.9g")


# --- the verdicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fp32", "int8", "state", "outcome"),
    [
        (2000.0, 1000.0, {}, Outcome.SUPPORTED),
        (1000.0, 2000.0, {}, Outcome.REFUTED),
        (1000.0, 1000.0, {}, Outcome.INCONCLUSIVE),
        (2000.0, 1000.0, {"throttled": 1}, Outcome.INCONCLUSIVE),  # void, whatever the ratio
        (1000.0, 2000.0, {"others": 1.0}, Outcome.INCONCLUSIVE),
    ],
)
def test_an_interval_decides_about_speed_unless_the_times_are_void(fp32, int8, state, outcome):
    compared = compare_boards(fp32, int8, **state)
    verdict = judge_speed(compared, 1.0)
    assert verdict.outcome is outcome
    assert verdict.needed.startswith("void: ") is bool(state)
    assert (verdict.low is None) is bool(state)


def test_the_explanation_names_size_instructions_runtime_and_threads():
    line = explain_speed(compare_boards(1.0, 2.0))
    assert line == (
        "10,000 parameters; Raspberry Pi 3 (aarch64), no int8 dot product instruction; fp32 by r in k kernels, int8 by "
        "r in k kernels; 1 thread"
    )
    assert "int8 dot product (asimddp)" in explain_speed(compare_boards(1.0, 2.0, features=("asimd", "asimddp")))
    assert "40,000 -> 10,000 bytes" in explain_size(compare_boards(1.0, 2.0))


def test_size_is_known_exactly():
    assert judge_size(compare_boards(1.0, 1.0), 4.0).outcome is Outcome.SUPPORTED
    assert judge_size(compare_boards(1.0, 1.0), 4.1).outcome is Outcome.REFUTED


def test_memory_is_judged_by_the_peaks_of_paired_blocks():
    def take(timing, mebibytes):
        return replace(timing, blocks=tuple(replace(block, peak_rss=mebibytes << 20) for block in timing.blocks))

    compared = compare_boards(1.0, 1.0, others=1.0)  # void as times
    half = replace(compared, first=take(compared.first, 50), second=take(compared.second, 25))
    assert judge_memory(half, 1.9).outcome is Outcome.SUPPORTED
    assert judge_memory(half, 2.1).outcome is Outcome.REFUTED
    assert "peaks of 50.0 and 25.0 MiB, of which the files are 0.04 and 0.01" in explain_memory(half)
    untimed = replace(compared, second=replace(compared.second, blocks=()))
    assert judge_memory(untimed, 1.9).outcome is Outcome.INCONCLUSIVE
    assert explain_memory(untimed) == explain_size(untimed)


@pytest.mark.parametrize(
    ("fp32", "int8", "outcome", "line"),
    [
        (201e6, 10e6, Outcome.SUPPORTED, "supported: 5 Hz in fp32, 100 Hz in int8 against 90 Hz on pi"),
        (201e6, 12e6, Outcome.REFUTED, "refuted: 5 Hz in fp32, 83 Hz in int8 against 90 Hz on pi"),
        (146e3, 46e3, Outcome.REFUTED, "refuted: 6,815 Hz in fp32, 21,631 Hz in int8 against 90 Hz on pi"),
        (1e9 / 90, 1e6, Outcome.INCONCLUSIVE, "*against 90 Hz on pi; more blocks: fp32's rate varies"),
        (201e6, 1e9 / 90, Outcome.INCONCLUSIVE, "*against 90 Hz on pi; more blocks: the rate varies"),
    ],
)
def test_a_rate_is_what_int8_reaches_and_fp32_does_not(fp32, int8, outcome, line):
    compared = compare_boards(fp32, int8)
    verdict = judge_rate(compared, 90.0)
    assert verdict.outcome is outcome
    assert verdict.low < verdict.estimate < verdict.high
    assert fnmatch(describe_rate(compared, verdict), line)


def test_a_rate_of_a_busy_board_is_void():
    busy = compare_boards(201e6, 11e6, others=2.0)
    verdict = judge_rate(busy, 90.0)
    assert (verdict.outcome, verdict.low) == (Outcome.INCONCLUSIVE, None)
    assert describe_rate(busy, verdict).startswith("inconclusive: no number against 90 Hz on pi; void: other processes")


def test_a_peak_is_a_share_of_a_boards_memory():
    compared = compare_boards(4000.0, 1000.0)
    blocks = tuple(replace(block, peak_rss=(700 + i) << 20) for i, block in enumerate(compared.first.blocks))
    compared = replace(compared, first=replace(compared.first, blocks=blocks))
    assert judge_peak(compared, 1 << 30, 1.0).outcome is Outcome.REFUTED
    assert judge_peak(compared, 512 << 20, 1.0).outcome is Outcome.SUPPORTED
    verdict = judge_peak(compared, 701 << 20, 1.0)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.low < 1 < verdict.high
    untimed = replace(compared, second=replace(compared.second, blocks=()))
    assert judge_peak(untimed, 1 << 30, 1.0).estimate is None


def test_flight_policies_have_the_papers_sizes():
    counts = {name: find_random_policy(name).net.parameters for name in HIDDEN}
    assert counts == {"quadx1": 10_180, "quadx2": 139_012, "quadx3": 2_729_476, "quadxl": 11_662_004}
    with pytest.raises(SpecError, match="no flight policy for 'quadx4'; known are quadx1"):
        find_random_policy("quadx4")


def test_plans_of_the_profiles():
    assert find_plan("nightly") == TimingPlan()
    assert TimingPlan().blocks * TimingPlan().calls >= 1000
    assert TimingPlan().blocks * TimingPlan().seconds >= 10
    assert find_plan("quick").seconds < TimingPlan().seconds
