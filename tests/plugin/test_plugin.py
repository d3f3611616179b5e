"""The plugin in real pytest runs: options, outcomes, rows, workers."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from quarl_bench.evaluation.measurement_key import evaluation_epoch
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.quantization.net import Linear, Net
from tests.support.boards import compare_boards
from tests.support.inner import run_apart, run_inside
from tests.support.measurements import measure_all
from tests.support.sizes import choose, exhaustive

pytest.importorskip("pytest_regressions", reason="needs pytest-regressions: pip install 'quarl_bench[claims]'")

CLAIMS = """
from quarl_bench.judging.claim import Claim, over
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.judging.rules.returns import MeanError

CARTPOLE = over("ppo", "cartpole")
CLAIMS = (
    Claim("cell", "here", "it holds", Keeps(0.05), ("w8", "w2"), CARTPOLE, known={known}),
    Claim("mean", "here", "it holds on average", MeanError(0.05), ("w8",), over("ppo", "cartpole atlantis")),
    Claim("other", "here", "it holds", Keeps(0.05), ("w3",), CARTPOLE),
)
"""
NAMED = ("--quarl-claims", "own_claims:CLAIMS")

BENCH = """
import pytest

@pytest.mark.claim("cell")
def test_cell(case, policy, quantized_policy, evaluate, metrics_regression, verdict):
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy))

@pytest.mark.claim("mean")
def test_mean(claim, cells, verdict):
    verdict.check_cells(cells)
"""

# Returns of known distribution, so that the verdict is known without a simulation.
SYNTHETIC = """
import numpy as np
import pytest
from quarl_bench.spec import Measurement

def make(factor, episodes=100, spread=10.0):
    noise = np.random.default_rng(0).normal(size=(3, episodes))
    other = np.random.default_rng(int(1000 * factor)).normal(size=(3, episodes))
    returns = factor * (200 + spread * noise) + 0.1 * spread * other
    seeds = tuple(range(episodes))
    rows = tuple(tuple(row) for row in returns.tolist())
    return Measurement(("a", "b", "c"), seeds, tuple(map(str, seeds)), rows, ((1,) * episodes,) * 3)

@pytest.mark.claim("cell")
def test_cell(case, verdict):
    {before}
    verdict.check(make({factor}, {episodes}, {spread}), reference=make(1.0, {episodes}, {spread}))
    {after}
"""

REFUTED, SUPPORTED = {"factor": 0.5}, {"factor": 1.0}
INCONCLUSIVE = {"factor": 0.93, "episodes": 3, "spread": 150.0}


def make_balancer(seed):
    """A hand-made controller that balances CartPole for all 500 steps; seeds differ in the last digits."""
    gains = np.array([0.02, 0.2, 1.0, 0.6], np.float32) * np.float32(1 + 0.001 * seed)
    layer = Linear(np.stack([-gains, gains]), np.zeros(2, np.float32))
    return PolicyNet(ObservationTransform((4,)), Net((4,), (layer,)), ActionHead(HeadKind.ARGMAX))


@pytest.fixture
def project(pytester, monkeypatch):
    """A user's project with three CartPole policies, a claims file and a cache of its own."""
    monkeypatch.setenv("QUARL_CACHE_DIR", str(pytester.path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for seed in range(3):
        save_policy(make_balancer(seed), pytester.path / "baselines" / "policies" / f"ppo-cartpole-seed{seed}", {})
    write_claims(pytester)
    pytester.makepyfile(test_bench=BENCH)
    return pytester


def write_claims(pytester, known="{}"):
    (pytester.path / "own_claims.py").write_text(CLAIMS.replace("{known}", known))


def write_synthetic(pytester, *, before="pass", after="pass", factor=1.0, episodes=100, spread=10.0):
    text = SYNTHETIC.format(before=before, after=after, factor=factor, episodes=episodes, spread=spread)
    pytester.makepyfile(test_bench=text)


def run(pytester, *arguments):
    return run_inside(pytester, *NAMED, *arguments)


def read_rows(pytester):
    return json.loads((pytester.path / "rows.json").read_text())


def test_the_plugin_costs_no_heavy_import():
    code = (
        "import quarl_bench.plugin, sys; print([m for m in ('torch', 'numpy', 'pandas', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_plugin_has_no_entry_points_read(tmp_path):
    (tmp_path / "test_empty.py").touch()
    code = (
        "import importlib.metadata as metadata, sys, pytest; read, listed = [], metadata.distributions\n"
        "metadata.distributions = lambda **given: read.append(given) or listed(**given)\n"
        "pytest.main(['--collect-only', '-q', *sys.argv[1:]]); print(len(read))"
    )
    command = [sys.executable, "-c", code]
    counts = [
        subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()[-1]
        for more in ((), ("-p", "no:quarl_bench.plugin"))
    ]
    assert counts[0] == counts[1] > "0"


def test_it_may_be_named_twice(pytester):
    pytester.makepyfile("def test_ok(): pass")
    named = ("-p", "quarl_bench.plugin", "-p", "quarl_bench.plugin.fixtures")
    run_apart(pytester, *named).assert_outcomes(passed=1)


def test_options_are_one_group_with_defaults(pytester):
    result = run_apart(pytester, "--help")
    result.stdout.fnmatch_lines(["quantized reinforcement learning:", "*--quarl-profile=*", "*Default: quick*"])
    result.stdout.fnmatch_lines(["*quarl_cache_dir (string):*"])
    assert "claim(id, ...)" in run_apart(pytester, "--markers").stdout.str()


@exhaustive
@pytest.mark.parametrize("workers", ["0", "3"])
def test_any_number_of_workers_writes_the_same_rows(project, workers):
    run(project, "-n", "0", "--quarl-json", "serial.json")
    files = {p: p.stat().st_mtime_ns for p in (project.path / "cache").rglob("*.json")}
    assert files
    # The cache of the serial run must not be what makes the rows equal.
    result = run(project, "-n", workers, "--quarl-json", "rows.json", "--quarl-cache-dir", "other")
    assert result.ret == 0
    serial = json.loads((project.path / "serial.json").read_text())
    durations = [row.pop("seconds") for row in serial["rows"]]
    assert all(seconds > 0 for seconds in durations)
    assert [row | {"seconds": None} for row in read_rows(project)["rows"]] == [
        row | {"seconds": None} for row in serial["rows"]
    ]
    assert [row["id"] for row in serial["rows"]] == ["ppo-cartpole-w2", "ppo-cartpole-w8", "ppo-mean-w8"]
    run(project, "-n", workers)
    assert {p: p.stat().st_mtime_ns for p in (project.path / "cache").rglob("*.json")} == files


@pytest.mark.parametrize("workers", choose(["0"], ["0", "2"]))
def test_nothing_is_trained_twice(project, workers):
    project.makeconftest("""
        from dataclasses import replace
        import pytest
        from quarl_bench.training.recipes import find_recipe

        @pytest.fixture(autouse=True)
        def short(monkeypatch):
            shorten = lambda *names: replace(find_recipe(*names), timesteps=256, environments=1)
            monkeypatch.setattr("quarl_bench.experiments.store.find_recipe", shorten)
    """)
    (project.path / "nothing" / "policies").mkdir(parents=True)
    arguments = ("-n", workers, "--quarl-json", "rows.json", "--quarl-episodes", "2", "--quarl-baselines", "nothing")
    arguments += ("-W", "ignore::UserWarning")  # so few steps make an odd batch
    later = choose("0", workers)  # a run with workers starts two processes
    skipped = run(project, *arguments, "-n", later)
    assert skipped.parseoutcomes() == {"skipped": 2, "partial": 1}
    skipped.stdout.fnmatch_lines(["skipped 2: no baseline for ppo-cartpole-seed0: train it with*"])
    run(project, *arguments, "--quarl-train", "missing")
    expected = [f"training ppo-cartpole-seed{seed}: 256 steps" for seed in range(3)]
    assert read_rows(project)["notes"] == expected
    run(project, *arguments, "--quarl-train", "missing", "-n", later)  # where nothing is missing any more
    assert read_rows(project)["notes"] == []
    # What a process has trained is not trained again in it, however often it runs.
    run_apart(project, *NAMED, *arguments, "--quarl-train", "always", "-n", later)
    assert read_rows(project)["notes"] == expected


def test_a_row_states_what_it_rests_on(project):
    run(project, "--quarl-json", "rows.json", "-k", "cartpole and w8")
    data = read_rows(project)
    assert data["schema_version"] == 2
    assert data["settings"]["profile"] == "quick"
    (row,) = data["rows"]
    assert row["measured"]["mean"] == row["reference"]["mean"] == 500.0
    assert (row["measured"]["policies"], row["measured"]["episodes"], row["measured"]["distinct_episodes"]) == (
        3,
        100,
        100,
    )
    assert row["environment_id"] == "CartPole-v1"
    assert (row["source"], row["rounding"], row["verdict"]) == ("measured", "nearest", "supported")
    assert 0.95 < row["interval"][0] < 1.0
    assert row["versions"]["torch"]
    hashes = sorted(row["measured"]["policy_sha256"])
    assert (row["policy_sha256"], row["seeds"]) == (hashes, [row["measured"]["first_environment_seed"], 100])
    assert (row["schema_version"], row["commit"]) == (2, data["commit"])
    assert row["processor"] == data["machine"]["processor"]
    assert row["code_epoch"] == evaluation_epoch()
    assert row["seconds"] == data["durations"][row["nodeid"]] > 0


@pytest.mark.parametrize(
    ("numbers", "known", "options", "outcomes", "ret"),
    [
        (SUPPORTED, False, (), {"passed": 2}, 0),
        (REFUTED, False, (), {"failed": 2}, 1),
        (INCONCLUSIVE, False, (), {"inconclusive": 2}, 0),
        (INCONCLUSIVE, False, ("--quarl-strict",), {"failed": 2}, 1),
        (REFUTED, True, (), {"xfailed": 2}, 0),
        (SUPPORTED, True, (), {"failed": 2}, 1),
        (INCONCLUSIVE, True, (), {"failed": 2}, 1),
        (REFUTED | {"before": "1 / 0"}, True, (), {"failed": 2}, 1),
        (REFUTED | {"before": "assert False"}, True, (), {"failed": 2}, 1),
        (SUPPORTED | {"after": "1 / 0"}, True, (), {"failed": 2}, 1),
        *choose([], [(REFUTED, True, ("-n", "2"), {"xfailed": 2}, 0)]),
        *choose([], [(INCONCLUSIVE, False, ("-n", "2"), {"inconclusive": 2}, 0)]),
    ],
)
def test_verdicts_become_outcomes(project, numbers, known, options, outcomes, ret):
    reasons = {"ppo-cartpole-w8": "too wide", "ppo-cartpole-w2": "too coarse"} if known else {}
    write_claims(project, repr(reasons))
    write_synthetic(project, **numbers)
    result = run(project, *options)
    assert result.parseoutcomes() == outcomes
    assert result.ret == ret


def test_a_reason_of_another_profile_is_none(project):
    """These tests run in profile quick."""
    write_synthetic(project, **REFUTED)
    for profile, ret in (("quick", 0), ("nightly", 1)):
        write_claims(project, repr({f"ppo-cartpole-w8 in {profile}": "too wide"}))
        assert run(project, "-k", "w8").ret == ret
    write_synthetic(project, **INCONCLUSIVE)
    assert run(project, "-k", "w8").ret == 0
    write_claims(project, repr({"ppo-cartpole-w8 in quick": "too wide"}))
    told = run(project, "-k", "w8")
    assert told.ret == 1
    told.stdout.fnmatch_lines(["*it is known not to hold, and is not refuted in profile quick: drop the reason*"])


def test_a_refuted_claim_says_what_where_and_by_how_much(project):
    write_synthetic(project, **REFUTED)
    result = run(project, "-k", "w8")
    result.stdout.re_match_lines(
        [r".*ClaimRefuted: ppo-cartpole-w8: it holds \(here\): refuted: 0\.\d+ .*against 0\.95.*"]
    )
    result.stdout.fnmatch_lines(["*quarl verdicts*", "cell: 1 verdict: 1 refuted; worst ppo-cartpole-w8 refuted*"])


def test_one_function_judges_several_claims_of_a_kind(project):
    head, body = 'import pytest\n\n@pytest.mark.claim("cell", "{}")\n', "def test_both(case): pass\n"
    project.makepyfile(test_bench=head.format("other") + body)
    run(project, "-v").stdout.fnmatch_lines(
        ["*[[]ppo-cartpole-w8] *", "*[[]ppo-cartpole-w2] *", "*[[]ppo-cartpole-w3] *"]
    )
    project.makepyfile(test_bench=head.format("mean") + body)
    run(project).stdout.fnmatch_lines(["*claim 'mean' needs the argument 'claim'*"])
    project.makepyfile(test_bench="import pytest\n\n@pytest.mark.claim('cell')\ndef test_x(verdict):\n    pass\n")
    run(project).stdout.fnmatch_lines(["*marked claim('cell',), but it takes neither 'case' nor 'claim'*"])


def test_results_that_cannot_be_written_do_not_take_the_summary_along(project):
    """Asked before the run, the folder is there; a test removes it."""
    write_synthetic(
        project, after="import shutil; shutil.rmtree('results', True); open('results', 'w').close()", **SUPPORTED
    )
    (project.path / "results").mkdir()
    result = run(project, "--quarl-json", "results/rows.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["cell: 2 verdicts: *supported*", "ERROR: results were not written: *results*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("arguments", [("--collect-only",), ("test_bnech.py",)])
def test_a_run_of_nothing_keeps_earlier_results(project, arguments):
    write_synthetic(project, **SUPPORTED)
    run(project, "--quarl-json", "rows.json")
    before = read_rows(project)
    assert len(before["rows"]) == 2
    run(project, *arguments, "--quarl-json", "rows.json")
    assert read_rows(project) == before


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="needs pytest 9, which has the fixture subtests")
@pytest.mark.parametrize("workers", choose(["0"], ["0", "2"]))
def test_subtests_do_not_repeat_rows(project, workers):
    write_synthetic(project, after="with subtests.test('more'): pass", **SUPPORTED)
    bench = project.path / "test_bench.py"
    bench.write_text(bench.read_text().replace("(case, verdict)", "(case, verdict, subtests)"))
    result = run(project, "-n", workers, "--quarl-json", "rows.json")
    assert [row["outcome"] for row in read_rows(project)["rows"]] == ["passed"] * 2
    result.stdout.fnmatch_lines(["cell: 2 verdicts: 2 supported*"])


def test_paths_of_an_ini_file_begin_there(project, monkeypatch):
    write_synthetic(project, **SUPPORTED)
    project.makeini("[pytest]\nquarl_cache_dir = .qcache\nquarl_baselines = baselines")
    (project.path / "below").mkdir()
    monkeypatch.syspath_prepend(project.path)
    monkeypatch.chdir(project.path / "below")
    for name in ("QUARL_ZOO", "QUARL_BOARDS"):
        monkeypatch.setenv(name, "")  # as CI leaves a variable that nobody set
    result = run_inside(project, *NAMED, "..")
    assert result.ret == 0
    assert (project.path / ".qcache").is_dir()
    assert not (project.path / "below" / ".qcache").exists()


def test_a_case_without_a_verdict_is_said(project):
    project.makepyfile(test_bench="import pytest\n\n@pytest.mark.claim('cell')\ndef test_x(case):\n    pass\n")
    run(project).stdout.fnmatch_lines(["note: 2 tests of a claim passed without a verdict, which says nothing: *"])


def test_an_aggregate_with_missing_cells_is_partial_and_lists_them(project):
    result = run(project, "-v", "-k", "mean", "--quarl-json", "rows.json")
    assert result.parseoutcomes() == {"partial": 1, "deselected": 2}
    result.stdout.fnmatch_lines(["*missing: ppo-atlantis-w8*"])
    assert run(project, "-k", "mean", "--quarl-strict").ret == 1


def test_required_baselines_fail_instead_of_skipping(project):
    (project.path / "nothing" / "policies").mkdir(parents=True)
    options = ("-k", "cell", "--quarl-baselines", "nothing")
    assert run(project, *options).parseoutcomes()["skipped"] == 2
    result = run(project, *options, "--quarl-require", "baselines")
    assert result.parseoutcomes()["errors"] == 2
    result.stdout.fnmatch_lines(["MissingBaseline: no baseline for ppo-cartpole-seed0: *"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quarl-episodes", "0"), "*--quarl-episodes: '0' is not a whole number above 0*"),
        (("--quarl-episodes", "many"), "*'many' is not a whole number above 0*"),
        (("--quarl-profile", "hourly"), "*invalid choice: 'hourly'*"),
        (("--quarl-train", "maybe"), "*invalid choice: 'maybe'*"),
        (
            ("--quarl-cache-dir", "own_claims.py/x"),
            "*--quarl-cache-dir: cannot write folder *own_claims.py/x: Not a directory; *",
        ),
        (("--quarl-json", "no/such/rows.json"), "*no/such does not exist; make it*"),
        (
            ("--quarl-json", "own_claims.py"),
            "*--quarl-json: *own_claims.py exists and is no .json file; it is left alone*",
        ),
        (("--quarl-json=a.x", "--quarl-html=a.x"), "*--quarl-html *a.x: --quarl-json has this name; choose another*"),
        (("--quarl-json=1.json", "--quarl-compare=1.json"), "*--quarl-json 1.json: --quarl-compare reads it; choose *"),
        (("--quarl-json", "."), "*--quarl-json: *: a folder; name the file to write in it*"),
        (("--quarl-json", "/proc/x.json"), "*--quarl-json: cannot write folder /proc: *"),
        (("--quarl-html", "/proc/x.html"), "*--quarl-html: cannot write folder /proc: *"),
        (("--quarl-episodes", "9" * 20), "*--quarl-episodes: '99999999999999999999' is too large; give at most *"),
        (("--quarl-baselines", "nowhere"), "*--quarl-baselines nowhere: no such folder*"),
        (
            ("--quarl-baselines", "baselines/policies"),
            "*: no policies/ in it; name one with policies/<policy>/*",
        ),
        (("--quarl-zoo", "."), "*--quarl-zoo .: no agents in it; name one with <algo>/<Environment>_1/*.zip*"),
        (("--quarl-claims", "no_such:CLAIMS"), "*'no_such:CLAIMS': importing 'no_such' failed (ModuleNotFoundError*"),
        (("--quarl-claims", "bad.toml"), "*claims 'bad.toml': claims are Python values now*add_claim.md shows how*"),
        (("-o", "quarl_profile=hourly"), "*quarl_profile 'hourly' is not one of quick, nightly, paper*"),
        (("-o", "quarl_episodes=-3"), "*quarl_episodes: '-3' is not a whole number above 0*"),
    ],
)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_bad_options_end_the_run_before_it_starts(project, arguments, message, workers):
    result = run(project, *arguments, "-n", workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR == 4
    result.stderr.fnmatch_lines([message])
    assert "Traceback" not in result.stderr.str()
    assert not list(project.path.glob("no*"))


@pytest.mark.parametrize("there", [True, False], ids=["it-is-there", "it-will-be"])
def test_a_path_that_becomes_the_rootdir_is_explained(project, tmp_path_factory, there):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    elsewhere = elsewhere if there else elsewhere / "new"
    project.makepyprojecttoml("[tool.pytest]\n")
    blank = run_apart(project, "--quarl-cache-dir", str(elsewhere))
    assert blank.ret == pytest.ExitCode.USAGE_ERROR
    blank.stderr.fnmatch_lines([f"*write --quarl-cache-dir={elsewhere}, with an equals sign"])
    assert run_apart(project, f"--quarl-cache-dir={elsewhere}", "--co").ret != pytest.ExitCode.USAGE_ERROR


def test_an_unknown_scheme_or_environment_in_a_bench_is_one_line(project):
    project.makepyfile(
        test_bench="""
        import pytest
        @pytest.mark.claim("cell")
        def test_scheme(case, policy, quarl_cells):
            quarl_cells.quantize(policy, "int1")
        @pytest.mark.claim("cell")
        def test_algorithm(case, quarl_cells):
            from quarl_bench.spec import Case
            quarl_cells.find_policies(Case("ppq", "cartpole", "w8"))
    """
    )
    result = run(project, "-k", "w8")
    result.stdout.fnmatch_lines(["SpecError: scheme 'int1': int<bits> takes 2..8 bits, not 1"])
    result.stdout.fnmatch_lines(["SpecError: unknown algorithm 'ppq'; did you mean 'ppo'? known are a2c, *"])
    assert "Traceback" not in result.stdout.str()


def test_a_corrupt_cache_entry_is_recreated_and_reported(project):
    run(project)
    files = sorted((project.path / "cache").rglob("*.json"))
    files[0].write_text("{")
    result = run(project)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["note: stored measurement was damaged and made again: *not a measurement*"])
    json.loads(files[0].read_text())


def test_numpy_values_survive_workers(project):
    project.makepyfile(
        test_bench="""
        import numpy as np
        def test_record(quarl_record):
            quarl_record({"claim": "x", "id": "x", "kind": "claim", "verdict": "supported", "known": "", "line": "",
                          "regression": "none", "interval": None, "threshold": np.float64(1.5), "seeds": np.arange(3)})
    """
    )
    assert run(project, "-n", "2", "--quarl-json", "rows.json").ret == 0
    (row,) = read_rows(project)["rows"]
    assert (row["threshold"], row["seeds"]) == (1.5, [0, 1, 2])


def regression_file(project):
    return project.path / "test_bench" / "ppo-cartpole-w8.quick.csv"


def regression_of(project, *arguments):
    run(project, "-k", "cartpole and w8", "--quarl-json", "rows.json", *arguments)
    (row,) = read_rows(project)["rows"]
    return row["outcome"], row["regression"]


class TestRegression:
    """Create, pass, move, regenerate: the workflow of pytest-regressions without its three traps."""

    def test_workflow(self, project):
        assert regression_of(project) == ("passed", "no-baseline")
        run(project).stdout.fnmatch_lines(
            ["note: 2 verdicts without stored numbers to compare with; --force-regen writes them"]
        )
        assert not regression_file(project).exists()
        run(project, "-k", "cartpole and w8", "--regen-all")
        assert "500.000000" in regression_file(project).read_text()
        assert regression_of(project) == ("passed", "same")
        edit(regression_file(project), "return_mean", lambda value: value - 1)
        result = run(project, "-k", "cartpole and w8")
        assert result.parseoutcomes()["failed"] == 1
        result.stdout.fnmatch_lines(["*To update values, use --force-regen option.*", "*obtained_return_mean*"])
        run(project, "-k", "cartpole and w8", "--force-regen")
        assert regression_of(project) == ("passed", "same")

    def test_whole_numbers_have_a_tolerance_too(self, project):
        run(project, "-k", "cartpole and w8", "--regen-all")
        edit(regression_file(project), "return_mean", lambda value: value - 1)
        edit(regression_file(project), "return_se", lambda _: 2.0)
        assert regression_of(project) == ("passed", "same")

    def test_a_vanished_metric_fails(self, project):
        run(project, "-k", "cartpole and w8", "--regen-all")
        edit(regression_file(project), "energy", lambda _: 1.0)
        result = run(project, "-k", "cartpole and w8")
        assert result.parseoutcomes()["failed"] == 1
        assert "metrics vanished: ['energy']" in result.stdout.str()

    @pytest.mark.parametrize(("column", "state"), [("torch", "versions"), ("policy", "mismatch")])
    def test_other_versions_or_policies_are_said_and_are_no_failure(self, project, column, state):
        run(project, "-k", "cartpole and w8", "--regen-all")
        edit(regression_file(project), "return_mean", lambda value: value - 100)
        edit(regression_file(project), column, lambda _: "other")
        assert regression_of(project) == ("passed", state)
        if state == "versions":
            note = (
                "note: 1 verdict not compared, *numbers are of other versions of libraries; constraints.txt has theirs"
            )
            run(project, "-k", "cartpole and w8").stdout.fnmatch_lines([note])
        run(project, "-k", "cartpole and w8", "--force-regen").stdout.fnmatch_lines(["*stored numbers are of other *"])
        assert regression_of(project) == ("passed", "same")


class TestOtherProcessors:
    """Where a policy's products are rounded differently, the same seeds may be other episodes."""

    @staticmethod
    def accepts(stored, value, error, *, elsewhere, column="return_mean", calibrated=False):
        import pandas as pd

        counts = {"episodes": 1, "distinct_episodes": 1}
        obtained, expected = pd.DataFrame([{"return_se": error}]), pd.DataFrame([counts | stored])
        from quarl_bench.plugin.regression import find_tolerances

        allowed = find_tolerances(obtained, expected, elsewhere=elsewhere, calibrated=calibrated)[column]
        return bool(np.isclose([value], [stored[column]], **allowed).all())

    @pytest.mark.parametrize(
        ("column", "stored", "other", "error", "wrong"),
        [
            ("return_mean", {"return_mean": 2149.7539, "return_se": 18.0403382}, 2191.33098, 11.4449761, 2070.0),
            ("return_mean", {"return_mean": 144.85, "return_se": 0.448828885}, 133.15, 8.62898268, 118.0),
            ("agreement", {"agreement": 0.12615, "return_se": 14.4848569}, 0.1625, 14.1650585, 0.22),
        ],
        ids=["halfcheetahbullet-fp16", "dqn-cartpole-int8", "halfcheetahbullet-int8"],
    )
    def test_two_processors(self, column, stored, other, error, wrong):
        """20 episodes of one policy on an AMD EPYC, then on an Intel Xeon."""
        assert self.accepts(stored, other, error, elsewhere=True, column=column)
        assert not self.accepts(stored, other, error, elsewhere=False, column=column)
        assert not self.accepts(stored, wrong, error, elsewhere=True, column=column)

    def test_equal_episodes_count_once(self):
        """DQN on Space Invaders in int8, on two AMD EPYCs with AVX2 and AVX-512: 114 games, of 30 starts."""
        stored = {"return_mean": 257.45614, "return_se": 11.1928733, "episodes": 114, "distinct_episodes": 30}
        assert self.accepts(stored, 192.98246, 4.46949644, elsewhere=True)
        assert not self.accepts(stored | {"distinct_episodes": 114}, 192.98246, 4.46949644, elsewhere=True)
        assert not self.accepts(stored, 192.98246, 4.46949644, elsewhere=False)
        assert not self.accepts(stored, 180.0, 4.46949644, elsewhere=True)

    def test_another_calibration(self):
        """100 episodes of PPO on BipedalWalker in int8, on an Intel Xeon and on an AMD EPYC; the return is the same."""
        stored = {"agreement": 0.465312039, "return_se": 1.81409796}
        told = {"column": "agreement", "calibrated": True}
        assert self.accepts(stored, 0.382520228, 1.8, elsewhere=True, **told)
        assert not self.accepts(stored, 0.382520228, 1.8, elsewhere=True, column="agreement")
        assert not self.accepts(stored, 0.382520228, 1.8, elsewhere=False, **told)
        assert not self.accepts(stored, 0.05, 1.8, elsewhere=True, **told)

    def test_chance_alone_rarely_fails(self):
        """Of 2,000 pairs of sets of 20 episodes 3 in 1,000 would, were the standard errors known; they are not."""
        both = np.random.default_rng(0).normal(1000, 50, (2, 2_000, 20))
        means, errors = both.mean(2), both.std(2, ddof=1) / np.sqrt(20)
        accepted = [
            self.accepts({"return_mean": mean, "return_se": error}, other, other_error, elsewhere=True)
            for mean, other, error, other_error in zip(*means, *errors, strict=True)
        ]
        assert np.mean(accepted) > 0.99

    def test_the_file_says_whose_it_is(self, project):
        run(project, "-k", "cartpole and w8", "--regen-all")
        edit(regression_file(project), "return_mean", lambda value: value - 1)
        edit(regression_file(project), "return_se", lambda _: 0.4)
        assert run(project, "-k", "cartpole and w8").parseoutcomes()["failed"] == 1
        edit(regression_file(project), "processor", lambda _: "another")
        assert regression_of(project) == ("passed", "same")

    def test_a_file_without_a_processor_is_written_again_though_no_number_moved(self, project):
        import pandas as pd

        run(project, "-k", "cartpole and w8", "--regen-all")
        whole = pd.read_csv(regression_file(project))
        whole.drop(columns="processor").to_csv(regression_file(project), index=False, float_format="%#.9g")
        assert regression_of(project) == ("passed", "same")
        assert "processor" not in pd.read_csv(regression_file(project))
        assert run(project, "-k", "cartpole and w8", "--force-regen").parseoutcomes()["failed"] == 1
        pd.testing.assert_frame_equal(pd.read_csv(regression_file(project)), whole)

    @pytest.mark.parametrize(
        ("damage", "line"),
        [
            (
                lambda _: "",
                "StoreError: ppo-cartpole-w8.quick.csv: no table of numbers (No columns to parse*); restore*",
            ),
            (
                lambda text: text + 'a,b,"c\n',
                "StoreError: ppo-cartpole-w8.quick.csv: no table of numbers (*); restore*",
            ),
            (lambda text: text.replace("return_se", "return_sx"), "*metrics vanished: *return_sx*"),
            (lambda text: "\n".join(line.rpartition(",")[0] for line in text.splitlines()), None),  # a version is gone
        ],
    )
    def test_a_damaged_file_is_one_line_and_is_written_again(self, project, damage, line):
        run(project, "-k", "cartpole and w8", "--regen-all")
        good = regression_file(project).read_text()
        regression_file(project).write_text(damage(good))
        result = run(project, "-k", "cartpole and w8")
        if line is None:
            assert regression_of(project) == ("passed", "versions")
        else:
            assert result.ret == 1
            result.stdout.fnmatch_lines([line])
            assert "Traceback" not in result.stdout.str()
        assert run(project, "-k", "cartpole and w8", "--force-regen").ret == 1
        assert regression_file(project).read_text() == good

    def test_every_kind_of_stored_numbers_says_on_what_it_was_measured(self):
        """The columns of all three; of times it is a part of their identity."""
        from quarl_bench.plugin import board_verdicts, mixed_precision_verdicts, regression
        from quarl_bench.plugin.regression import PROCESSOR, StoredNumbers

        kinds = {kind.__name__ for kind in StoredNumbers.__subclasses__()}
        assert kinds == {"MetricsRegression", "TimesRegression", "StepTimeRegression"}
        assert PROCESSOR in regression.tabulate(measure_all(np.ones((2, 3))), {})
        for times in (board_verdicts, mixed_precision_verdicts):
            assert "machine" in times.IDENTITY
        assert set(board_verdicts.IDENTITY) <= set(board_verdicts.tabulate(compare_boards(2.0, 1.0)))


def edit(file, column, change):
    import pandas as pd

    frame = pd.read_csv(file)
    values = frame[column] if column in frame else [0.0] * len(frame)
    frame[column] = [change(value) for value in values]
    frame.to_csv(file, index=False, float_format="%#.9g")


def test_a_moved_number_fails_even_where_the_refutation_is_known(project):
    write_claims(project, '{"ppo-cartpole-w8": "reason"}')
    run(project, "-k", "cartpole and w8", "--regen-all")
    edit(regression_file(project), "return_mean", lambda value: value - 1)
    assert run(project, "-k", "cartpole and w8").parseoutcomes()["failed"] == 1


def test_the_readme_scheme_names_stay_selectable(project):
    out = run(project, "--collect-only", "-q", "-k", "ppo-cartpole-w8").stdout.str()
    assert textwrap.dedent(out).count("ppo-cartpole-w8") == 1


def test_what_is_no_row_is_one_line_in_its_test(project):
    project.makepyfile(
        test_bench="""
        def test_name(quarl_record):
            quarl_record({"id": "x", "colour": "red"})
        def test_lacks(quarl_record):
            quarl_record({"id": "x"})
    """
    )
    result = run(project)
    assert result.parseoutcomes() == {"failed": 2}
    result.stdout.fnmatch_lines(["SpecError: a row has no colour; its fields are those of quarl_bench.views.rows.Row"])
    result.stdout.fnmatch_lines(["SpecError: row 'x' lacks claim, kind, verdict, threshold"])
