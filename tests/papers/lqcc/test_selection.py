"""LQCC's parity rule and three-step selection: on made-up returns, on the authors' runs, and on runs of our own."""

import itertools
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from quarl_bench.cli import main
from quarl_bench.errors import QuarlError, SpecError, StoreError
from quarl_bench.papers.lqcc import selection
from quarl_bench.papers.lqcc.parity import VARIANTS, Parity, average_differences, band_p_values, compare
from quarl_bench.papers.lqcc.runs.published import TASKS, read_published
from quarl_bench.papers.lqcc.search import Search
from quarl_bench.papers.lqcc.selection import (
    BITS,
    WIDTHS,
    Configuration,
    list_steps,
    resample,
    select,
    vary_rule,
)
from quarl_bench.papers.lqcc.sentences import (
    judge_bottleneck,
    judge_cost,
    judge_gain,
    judge_input_bits,
    judge_output,
    judge_parity,
    judge_selected,
    judge_sensitivity,
    judge_table,
    read_printed,
)
from quarl_bench.papers.registry import read_catalog
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Outcome
from quarl_bench.system.interruption import Interrupted
from quarl_bench.training.multi_seed import train
from quarl_bench.training.multi_seed.recipe import find_recipe
from quarl_bench.training.sb3 import run as rl_run
from quarl_bench.training.sb3.run import TrainingOptions
from tests.support.places import SHARED
from tests.support.sizes import choose

RUNS = Path(os.environ.get("QUARL_LQCC_RUNS", SHARED / "data" / "lqcc"))
FP32 = np.array([90.0, 100.0, 110.0])  # mean 100, SD 10 with n - 1, 8.16 without
needs_runs = pytest.mark.skipif(not (RUNS / "sac_fp.csv").exists(), reason="the authors' runs are not here")


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(selection, "RESAMPLES", choose(100, selection.RESAMPLES))


@pytest.fixture(scope="module")
def tasks():
    published = read_published(RUNS)
    return {task: (published.fp32[task], partial(published.find, task)) for task in TASKS}


@pytest.fixture(scope="module")
def printed():
    (claim,) = (claim for claim in read_catalog() if claim.id == "lqcc-table1")
    return read_printed(claim)


def returns(mean):
    return np.array([mean - 5.0, mean, mean + 5.0])


@pytest.mark.parametrize(
    ("mean", "matching"),
    [
        (111, {"one-sided, sample SD", "one-sided, population SD"}),
        (109, {"one-sided, sample SD", "one-sided, population SD", "two-sided, sample SD"}),
        (100, {variant.name for variant in VARIANTS}),
        (91, {"one-sided, sample SD", "two-sided, sample SD"}),
        (89, set()),
    ],
)
def test_every_variant_draws_its_own_band(mean, matching):
    assert {variant.name for variant in VARIANTS if variant.matches(FP32, returns(mean))} == matching


def test_differences_are_welchs():
    rng = np.random.default_rng(0)
    base, other = rng.normal(100, 10, 10), rng.normal(90, 30, 8)
    found = compare(base, other)
    theirs = scipy_stats.ttest_ind(other, base, equal_var=False).confidence_interval(0.9)
    assert [found.low, found.high] == pytest.approx([side / base.mean() for side in theirs])
    assert found.estimate == pytest.approx((other.mean() - base.mean()) / base.mean())
    pooled = average_differences({"one": (base, [other], [base])})
    assert tuple(pooled) == pytest.approx(tuple(found))
    above, below = band_p_values(base, other)
    assert above + below == pytest.approx(1)
    steady = base.mean() + (base - base.mean()) * 1e-9  # whose band is a point
    point = scipy_stats.ttest_1samp(other, base.mean(), alternative="greater").pvalue
    assert band_p_values(steady, other)[0] == pytest.approx(point, rel=1e-4)
    assert (
        band_p_values(base[:1], other)
        == band_p_values(base, other[:1])
        == band_p_values(FP32 * 0, FP32 * 0)
        == (1.0, 1.0)
    )


@pytest.mark.parametrize("policies", [3, 10])
def test_the_floor_of_the_band_is_an_estimate_too(policies):
    """With the true mean exactly at the true floor; the floor taken as known, "above" came to 9 and 14%."""
    rng = np.random.default_rng(0)
    cells = [band_p_values(rng.normal(100, 10, policies), rng.normal(90, 10, policies)) for _ in range(2000)]
    above, below = (np.mean([weights[side] < 0.05 for weights in cells]) for side in (0, 1))
    assert above < 0.05
    assert below < 0.1


def test_a_match_can_be_below_fp32():
    """The rule and the interval disagree: ten policies of 10% less, one SD wide apart."""
    base = 100 + 12 * np.array([-1.5, -1, -0.5, -0.2, 0, 0, 0.2, 0.5, 1, 1.5])
    worse = base - 10
    assert Parity().matches(base, worse)
    assert compare(base, worse).below


def test_one_policy_has_no_band_and_no_interval():
    with pytest.raises(SpecError, match="at least two seeds"):
        Parity().find_band(np.array([1.0]))
    assert compare(FP32, np.array([1.0])).high == np.inf
    with pytest.raises(QuarlError, match="NaN"):
        Parity().matches(FP32, np.array([np.nan, 1.0]))
    with pytest.raises(SpecError, match="normalised"):
        compare(np.array([-1.0, 1.0]), FP32)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_stopping_early_selects_what_a_full_sweep_does(seed, two_sided):
    def find(configuration):
        rng = np.random.default_rng([seed, configuration.core, configuration.width, configuration.input])
        return returns(rng.uniform(70, 120))

    rule = Parity(two_sided)
    full, early = (select(FP32, find, rule=rule, full=whole) for whole in (True, False))
    assert (early.configuration, early.matched) == (full.configuration, full.matched)
    assert len(early.decisions) <= len(full.decisions)
    matching = {d.configuration for d in full.decisions if d.matches}
    assert (full.configuration in matching) == full.matched
    if full.matched:
        chosen = full.configuration
        smaller = [replace(chosen, input=value) for value in BITS if value < chosen.input]
        assert not matching & set(smaller)


def test_resampled_policies_select_the_same_where_nothing_is_close():
    rng = np.random.default_rng(0)
    base = rng.normal(100, 1, 10)

    def find(clear):
        """Matches from 3 core bits, a width of 64 and 4 input bits on: by far, or by a hair."""
        table = {}
        for core, width, inputs in itertools.product(BITS, WIDTHS, BITS):
            fine = core >= 3 and width >= 64 and inputs >= 4
            shift = (5 if fine else -50) if clear else (0 if fine else -1.1)
            table[Configuration(core, width, inputs)] = rng.normal(100 + shift, 1, 10)
        return table.get

    clear, close = find(clear=True), find(clear=False)
    far = resample(select(base, clear), base, clear)
    assert far.configuration.scheme == "i4c3o8h64"
    assert (far.stability.same, far.stability.open) == (selection.RESAMPLES, 0)
    near = resample(select(base, close), base, close)
    assert near.stability.same < 0.7 * selection.RESAMPLES
    ran = {decision.configuration for decision in near.decisions}
    some = resample(select(base, close), base, {configuration: close(configuration) for configuration in ran}.get)
    assert some.stability.open > 0
    assert "it asks for what was not run" in some.explain()[-1]
    two = base[:2]
    assert resample(select(two, clear), two, clear).stability is None


def test_each_step_keeps_what_the_one_before_chose():
    good = {Configuration(3), Configuration(3, 32), Configuration(3, 64), Configuration(3, 32, 5)}
    asked = []

    def find(configuration):
        asked.append(configuration)
        return returns(100 if configuration in good else 50)

    found = select(FP32, find)
    assert found.configuration == Configuration(3, 32, 5)
    assert found.configuration.scheme == "i5c3o8h32"
    assert asked == [
        Configuration(2), Configuration(3), Configuration(3, 16), Configuration(3, 32),
        *(Configuration(3, 32, bits) for bits in (2, 3, 4, 5)),
    ]  # fmt: skip
    lines = found.explain()
    assert len(lines) == len(asked) + 1
    assert "core bits: i8c2o8: mean 50 of 3 policies does not match (>= 90)" in lines[0]
    assert lines[-1] == "selected i5c3o8h32 (one-sided, sample SD); intervals: 90%, Welch"


def test_nothing_matches_and_it_says_so():
    found = select(FP32, lambda configuration: returns(40 + configuration.core))
    assert not found.matched
    assert found.configuration == Configuration(8)
    assert (
        found.explain()[-1] == "nothing matches fp32; the best is i8c8o8 (one-sided, sample SD); intervals: 90%, Welch"
    )


def test_what_was_not_run_is_listed():
    run = {Configuration(3), Configuration(4)}
    found = select(FP32, lambda configuration: returns(100) if configuration in run else None)
    assert found.configuration == Configuration(3)
    assert Configuration(2) in found.absent
    assert "which were not run" in found.explain()[-1]
    with pytest.raises(SpecError, match="core bits"):
        select(FP32, lambda _: None)


@pytest.mark.parametrize("grid", [{"core": ()}, {"core": (1, 2)}, {"widths": (0,)}, {"inputs": (9,)}])
def test_impossible_grids_are_refused(grid):
    with pytest.raises(SpecError):
        list_steps(**grid)


def test_scopes_are_schemes():
    schemes = {scope: Configuration.of_scope(scope, 3).scheme for scope in ("all", "input", "output", "core")}
    assert schemes == {"all": "i3c3o3", "input": "i3c8o8", "output": "i8c8o3", "core": "i8c3o8"}
    assert Scheme.parse(Configuration(2, 16, 6).scheme).width == WIDTHS[0]
    with pytest.raises(SpecError, match="scope"):
        Configuration.of_scope("hidden", 3)


@needs_runs
def test_table_1_is_reproduced_on_five_of_five_tasks(tasks, printed):
    found = {task: select(*runs, full=True) for task, runs in tasks.items()}
    assert {task: chosen.configuration for task, chosen in found.items()} == printed
    verdict = judge_table(tasks, printed, 1.0)
    assert verdict.outcome is Outcome.SUPPORTED
    assert "5 of 5 selected average below fp32 (sign flips p = 0.031)" in verdict.caveats
    assert any("antv4" in line and "below fp32" in line for line in verdict.caveats)


@needs_runs
def test_each_variant_of_the_rule_changes_its_own_task(tasks, printed):
    changes = {rule: set(found) for rule, found in vary_rule(tasks, printed).items()}
    assert changes == {
        Parity(): set(),
        Parity(sample=False): {"humanoidv4"},
        Parity(two_sided=True): {"hopperv4"},
        Parity(two_sided=True, sample=False): {"humanoidv4", "hopperv4"},
    }
    verdict = judge_sensitivity(tasks, printed, 0.25)
    assert (verdict.outcome, verdict.estimate) == (Outcome.SUPPORTED, 0.25)
    humanoid, hopper = "humanoidv4 (i7c3o8h16)", "hopperv4 (i8c3o8; 10 it asks for were not run)"
    assert verdict.caveats[:4] == (
        "one-sided, sample SD: selects otherwise for no task",
        f"one-sided, population SD: selects otherwise for {humanoid}",
        f"two-sided, sample SD: selects otherwise for {hopper}",
        f"two-sided, population SD: selects otherwise for {humanoid}, {hopper}",
    )
    wrong = judge_sensitivity(tasks, printed | {"hopperv4": Configuration(3)}, 0.25)
    assert wrong.outcome is Outcome.REFUTED  # then the two-sided rule would be the right one


@needs_runs
def test_verdicts_show_both_the_rule_and_the_interval(tasks, printed):
    verdict = judge_parity(tasks, "core", range(3, 9), 0.8)
    assert (verdict.outcome, verdict.estimate) == (Outcome.SUPPORTED, pytest.approx(25 / 30))
    outside = ", ".join(f"humanoidv4 at {bits}" for bits in range(4, 9))
    assert verdict.caveats[0] == f"the rule matches 25 of 30 cells, not {outside}"
    assert "humanoidv4 at 7" in verdict.caveats[3]
    selected = judge_selected(tasks, printed, 0.8)
    assert selected.caveats[0] == "the rule matches 5 of 5 cells"
    assert selected.caveats[1].startswith("on average -11.9% [-18.4%, -5.4%]")
    assert selected.caveats[1].endswith(" of fp32, below it in 5 of 5")
    assert selected.caveats[2].startswith("certainly above the floor of fp32's band in ")
    assert selected.caveats[3] == "an interval says below fp32 in 1: antv4 (-15%)"
    assert judge_parity(tasks, "input", [2], 0.8).outcome is Outcome.REFUTED
    some = judge_selected({**tasks, "antv4": (np.empty(0), lambda _: None)}, printed, 0.8)
    assert (some.outcome, some.missing) == (Outcome.PARTIAL, ("antv4: fp32", "antv4: i3c2o8h64"))
    assert some.estimate == 1.0
    assert judge_output(tasks).low < judge_output(tasks).estimate
    unrun = {task: (reference, lambda _: None) for task, (reference, _) in tasks.items()}
    partial_verdict = judge_parity(unrun, "core", [3], 0.8)
    assert partial_verdict.outcome is Outcome.PARTIAL
    assert partial_verdict.missing == tuple(f"{task}: i8c3o8" for task in TASKS)
    nothing = {task: (np.empty(0), find) for task, (_, find) in tasks.items()}
    assert judge_table(nothing, printed, 1.0).missing == tuple(f"{task}: fp32" for task in TASKS)


def test_published_files_are_checked(tmp_path):
    with pytest.raises(StoreError, match="sac_fp"):
        read_published(tmp_path)
    for rows, message in (
        ("Hopper-v4,1,12.5\nHopper-v4,2,nan\n", "line 3"),
        ("Hopper-v4,1,12.5\nHopper-v4,1,12.6\n", "line 3: seed 1 of this configuration comes twice"),
        ("Hopper-v4,1\n", "line 2: fewer columns than the first line has"),
        (f"Hopper-v4,1,{'1' * 200_000}\n", "field larger"),
    ):
        (tmp_path / "sac_fp.csv").write_text(f"env,seed,return\n{rows}")
        with pytest.raises(StoreError, match=message):
            read_published(tmp_path)
    (tmp_path / "sac_fp.csv").write_text("")
    with pytest.raises(StoreError, match="its columns are not env, seed, return"):
        read_published(tmp_path)
    (tmp_path / "sac_fp.csv").write_text("env,seed,return\nHopper-v4,1,12.5\n")
    (tmp_path / "sac_quant.csv").write_text("size,env\n16,Hopper-v4\n")
    with pytest.raises(StoreError, match="columns"):
        read_published(tmp_path)


@pytest.fixture
def tiny(monkeypatch):
    """A search that trains in seconds."""
    monkeypatch.setattr(train, "CURVE_EPISODES", 2)
    monkeypatch.setattr(train, "CURVE_POINTS", 2)
    monkeypatch.setattr(train, "EXPORT_STATES", 200)
    monkeypatch.setattr(rl_run, "SCORE_EPISODES", 3)
    return find_recipe("sac").override(timesteps=60, learning_starts=40, width=8, batch=8)


def test_a_search_trains_what_it_needs_once(tmp_path, tiny, monkeypatch):
    steps = list_steps(core=(2, 3), widths=(16, 256), inputs=(4,))
    ours = Search(tiny, "pendulum", (0, 1), tmp_path, steps=steps, full=True)
    trained = []
    real = train.train_seeds
    monkeypatch.setattr(train, "train_seeds", lambda *a: (trained.append(a[0].scheme), real(*a))[1])
    found = ours.run(TrainingOptions())
    assert trained[0] == "fp32"
    assert len(trained) == len(set(trained)) == 1 + len({d.configuration for d in found.decisions})
    result = json.loads((tmp_path / "selection-sac-pendulum.json").read_text())
    assert result["seeds"] == [0, 1]
    assert result["scheme"] == found.configuration.scheme
    assert [d["scheme"] for d in result["decisions"]] == [d.configuration.scheme for d in found.decisions]
    trained.clear()
    assert ours.run(TrainingOptions()).configuration == found.configuration
    assert not trained
    with pytest.raises(StoreError, match=r"search has core \[2, 3\] instead of \[2, 3, 4, 5, 6, 7, 8\] and width"):
        replace(ours, steps=list_steps()).run(TrainingOptions())
    with pytest.raises(StoreError, match=r"another recipe \(--steps .*\) and seeds \[0, 1\] instead of \[0, 2\]"):
        replace(ours, seeds=(0, 2), recipe=replace(tiny, gamma=0.9)).run(TrainingOptions())
    with pytest.raises(SpecError, match="at least two"):
        replace(ours, seeds=(0,)).run(TrainingOptions())


@needs_runs
def test_the_table_needs_what_the_rule_asks_for_and_no_more(tasks, printed):
    """So that what `quarl select` trains settles it; tasks of which something lacks are left out and listed."""
    asked = {task: {d.configuration for d in select(*tasks[task]).decisions} for task in TASKS}

    def limit(task, wanted):
        reference, find = tasks[task]
        return reference, lambda configuration: find(configuration) if configuration in wanted else None

    enough = {task: limit(task, asked[task]) for task in TASKS}
    assert sum(map(len, asked.values())) < 5 * (len(BITS) + len(WIDTHS) + len(BITS)) / 2
    least, whole = judge_table(enough, printed, 1.0), judge_table(tasks, printed, 1.0)
    assert replace(least, caveats=least.caveats[:-1]) == replace(whole, caveats=whole.caveats[:-1])
    assert whole.caveats[-1].startswith("with policies drawn again from these, the same is selected: humanoidv4 ")
    assert least.caveats[-1].endswith("% open)"), "resampling asks for more than the rule does"
    some = judge_table(
        enough | {"antv4": limit("antv4", set()), "hopperv4": (np.empty(0), tasks["hopperv4"][1])}, printed, 1.0
    )
    assert (some.outcome, some.estimate, some.missing[-1]) == (Outcome.PARTIAL, 1.0, "hopperv4: fp32")
    assert some.missing[0] == "antv4: i8c2o8"
    assert len(some.caveats) == len(whole.caveats) - 2
    assert judge_sensitivity(enough | {"antv4": limit("antv4", set())}, printed, 0.25).estimate is None


@needs_runs
def test_sentences_are_judged_on_the_tasks_that_are_whole(tasks):
    two = {task: tasks[task] for task in ("hopperv4", "antv4")}
    gap = {"walker2dv4": (tasks["walker2dv4"][0], lambda _: None)}
    for judge in (
        partial(judge_parity, scope="core", bits=range(3, 9), threshold=0.8),
        partial(judge_bottleneck, other="core"),
        judge_output,
        partial(judge_cost, few=Configuration(3, 256, 3, 3)),
        partial(judge_gain, scope="all", bits=(2, 3)),
    ):
        whole, some = judge(two), judge(two | gap)
        assert some.outcome is Outcome.PARTIAL
        assert replace(some, outcome=whole.outcome, missing=()) == whole
        assert some.missing[0].startswith("walker2dv4: i")


def test_input_bits_are_compared_where_some_match_either_way():
    chosen = Configuration(core=2, width=16, input=4)
    fp32, short = np.array([90.0, 110.0]), np.array([0.0, 1.0])

    def make(before, after):
        """fp32 is matched from `before` bits on with the whole net, from `after` on with the chosen one."""
        return fp32, lambda one: fp32 if one.input >= (before if one.core == 8 else after) else short

    tasks = {"less": make(5, 3), "more": make(3, 5), "never": make(9, 4)}
    found = judge_input_bits(tasks, dict.fromkeys(tasks, chosen), 0.8)
    assert (found.outcome, found.estimate) == (Outcome.REFUTED, 0.5)
    assert found.caveats == ("less: 5 to 3 bits", "more: 3 to 5 bits", "never: none to 4 bits")
    assert judge_input_bits({"less": tasks["less"]}, {"less": chosen}, 0.8).outcome is Outcome.SUPPORTED
    gaps = tasks | {"more": (fp32, lambda one: None if one == chosen else fp32)}
    some = judge_input_bits(gaps, dict.fromkeys(tasks, chosen), 0.8)
    assert (some.outcome, some.estimate, some.missing) == (Outcome.PARTIAL, 1.0, ("more: i4c2o8h16",))
    assert judge_input_bits({"more": gaps["more"]}, {"more": chosen}, 0.8).estimate is None


def test_fewer_bits_or_narrower_layers_cost_return():
    narrow = Configuration.parse("i8c3o8h16")
    assert narrow == Configuration(core=3, width=16)
    fp32 = np.array([90.0, 100.0, 110.0])
    tasks = {"task": (fp32, lambda one: fp32 * (0.5 if one.width == 16 else 0.9))}
    cost = judge_cost(tasks, narrow, replace(narrow, width=256))
    assert (cost.outcome, cost.estimate) == (Outcome.SUPPORTED, pytest.approx(-0.4))
    assert judge_cost(tasks, replace(narrow, width=256)).outcome is Outcome.INCONCLUSIVE
    for scheme in ("int8", "qat4", "i8c3o8ptq"):
        with pytest.raises(SpecError, match="i<bits>c<bits>o<bits>"):
            Configuration.parse(scheme)


@needs_runs
def test_the_authors_runs_are_not_written_into_a_search_of_ones_own(tmp_path, capsys):
    (tmp_path / "grid-sac-hopperv4.json").write_text("{}")
    arguments = ["select", "sac", "hopperv4", "--published", str(RUNS), "--output", str(tmp_path)]
    assert main(arguments) == 2
    assert "holds a search that trains; choose another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["grid-sac-hopperv4.json"]


def test_a_search_that_is_stopped_says_how_it_goes_on(tmp_path, monkeypatch, capsys):
    """It has no --resume: what is there is kept whenever the command is typed."""
    monkeypatch.setattr(Search, "run", Mock(side_effect=Interrupted("stopped at 5 of 9 steps; --resume goes on")))
    assert main(["select", "sac", "pendulum", "--seeds", "0,1", "--output", str(tmp_path)]) == 3
    assert capsys.readouterr().err == "stopped at 5 of 9 steps; the same command goes on\n"


def test_a_search_that_died_between_two_policies_goes_on(tmp_path, tiny, monkeypatch):
    ours = Search(tiny, "pendulum", (0, 1), tmp_path, steps=list_steps(core=(3,), widths=(256,), inputs=(8,)))
    publish = train.TrainingLoop.publish

    def die(loop, index, spec):
        if index:
            raise KeyboardInterrupt
        return publish(loop, index, spec)

    monkeypatch.setattr(train.TrainingLoop, "publish", die)
    with pytest.raises(KeyboardInterrupt):
        ours.run(TrainingOptions())
    folders = [tmp_path / f"sac-pendulum-lqcc-seed{seed}" for seed in (0, 1)]
    assert [folder.exists() for folder in folders] == [True, False]
    monkeypatch.setattr(train.TrainingLoop, "publish", publish)
    monkeypatch.setattr(train.TrainingLoop, "advance", lambda _: pytest.fail("trained again"))
    ours._find_returns(tiny, TrainingOptions(resume=True), print)
    assert folders[1].exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sac hopperv4 --seeds 0,1", "--output"),
        ("sac hopperv4 --seeds 0 --output o", "at least two"),
        ("sac hopperv4 --seeds 0,1 --output o --core 1..3", "core"),
        ("sac hopperv4 --seeds 0,1 --output o --widths 0", "width"),
        ("sac hopperv4 --published nowhere", "nowhere"),
        ("sac hopperv4 --published nowhere --steps 10", "--steps"),
        ("sac hopprv4 --seeds 0,1 --output o", "hopprv4"),
        ("sac cartpole --seeds 0,1 --output o", "vectors"),
    ],
)
def test_what_cannot_be_selected_ends_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["select", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("o/grid-*"))


@pytest.mark.parametrize("content", ["[1]", "{"])
def test_a_damaged_grid_is_one_line(tmp_path, tiny, content):
    (tmp_path / "grid-sac-pendulum.json").write_text(content)
    with pytest.raises(StoreError, match=r"grid-sac-pendulum\.json"):
        Search(tiny, "pendulum", (0, 1), tmp_path).run(TrainingOptions())


def test_policies_of_another_recipe_stop_a_search_before_it_trains(tmp_path, tiny, monkeypatch):
    train.train_seeds(tiny, "pendulum", [0], tmp_path)
    monkeypatch.setattr(train.TrainingLoop, "advance", lambda _: pytest.fail("trained"))
    with pytest.raises(StoreError, match=r"lqcc-seed0 was trained by another recipe"):
        Search(replace(tiny, gamma=0.9), "pendulum", (0, 1), tmp_path).run(TrainingOptions())


@needs_runs
@pytest.mark.parametrize(
    ("arguments", "scheme", "step"),
    [("hopperv4 --inputs 2,3", "i8c2o8h16", "input bits"), ("halfcheetahv4 --widths 16,32", "i8c3o8", "hidden width")],
)
def test_a_later_step_without_a_match_keeps_what_matched(capsys, tmp_path, arguments, scheme, step):
    output = tmp_path / "result"
    assert main(["select", "sac", *arguments.split(), "--published", str(RUNS), "--output", str(output)]) == 0
    said = capsys.readouterr().out
    assert f"selected {scheme} " in said
    assert f"{step}: nothing tried matches; what was chosen before stays" in said
    task = arguments.split()[0]
    written = json.loads((output / f"selection-sac-{task}.json").read_text())
    assert (written["matched"], written["fp32"]["policies"]) == (True, 10)
    assert (output / f"selection-sac-{task}.png").read_bytes().startswith(b"\x89PNG")


@needs_runs
def test_the_command_replays_the_published_runs(capsys):
    assert main(["select", "sac", "hopperv4", "--published", str(RUNS), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["scheme"], result["matched"]) == ("i6c2o8h16", True)
    assert main(["select", "sac", "hopperv4", "--published", str(RUNS), "--two-sided"]) == 0
    assert "selected i8c3o8" in capsys.readouterr().out
    assert main(["select", "ddpg", "hopperv4", "--published", str(RUNS)]) == 2
