"""LQCC, section 3.1 and Table 1, on the authors' own returns: 2,400 quantized and 50 fp32 policies, SAC.

Their files are not part of this package: $QUARL_LQCC_RUNS names their folder, by default `shared/data/lqcc` beside the
checkout.
"""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

DEFAULT = Path(__file__).parents[3] / "shared" / "data" / "lqcc"


@pytest.fixture(scope="session")
def published():
    from quarl_bench.papers.lqcc.published import FP32_FILE, read_published

    folder = Path(os.environ.get("QUARL_LQCC_RUNS", DEFAULT))
    if not (folder / FP32_FILE).exists():
        pytest.skip("the authors' runs are not here: QUARL_LQCC_RUNS names the folder of their two CSV files")
    return read_published(folder)


@pytest.fixture
def settle(verdict):
    """Take a verdict on returns that others measured."""
    from quarl_bench.spec import Source

    return partial(verdict.check_result, source=Source.PUBLISHED)


@pytest.fixture
def tasks(claim, published):
    """By task of the claim: fp32 returns, and those of a configuration."""
    names = [environment for _, environment in claim.claim.cells]
    return {name: (published.fp32[name], partial(published.find, name)) for name in names}


@pytest.mark.claim("lqcc-bits")
def test_every_part_needs_three_bits(claim, tasks, published, settle):
    from quarl_bench.papers.lqcc.figures import AUTHORS, show_scopes
    from quarl_bench.papers.lqcc.sentences import judge_parity

    everything = {name: (published.fp32[name], partial(published.find, name)) for name in published.fp32}
    panels = show_scopes("Figure 1 (SAC)", AUTHORS, everything)
    settle(judge_parity(tasks, "all", range(3, 9)), panels=panels)


@pytest.mark.claim("lqcc-core")
def test_the_core_needs_three_bits(claim, tasks, settle):
    from quarl_bench.papers.lqcc.sentences import judge_parity

    settle(judge_parity(tasks, "core", range(3, 9)))


@pytest.mark.claim("lqcc-bottleneck")
def test_the_input_is_the_bottleneck(claim, tasks, settle):
    from quarl_bench.papers.lqcc.selection import Configuration
    from quarl_bench.papers.lqcc.sentences import judge_bottleneck

    settle(judge_bottleneck(tasks, Configuration.find_scope(claim.scheme)[0]))


@pytest.mark.claim("lqcc-output-least")
def test_output_bits_matter_less_than_the_cores(claim, tasks, settle):
    from quarl_bench.papers.lqcc.selection import Configuration
    from quarl_bench.papers.lqcc.sentences import judge_bottleneck

    settle(judge_bottleneck(tasks, Configuration.find_scope(claim.scheme)[0], "core"))


@pytest.mark.claim("lqcc-output")
def test_output_bits_do_not_matter(claim, tasks, settle):
    from quarl_bench.papers.lqcc.sentences import judge_output

    settle(judge_output(tasks, claim.claim.threshold))


@pytest.mark.claim("lqcc-two-bit-output", "lqcc-halfcheetah-bits")
def test_fewer_bits_cost_return(claim, tasks, settle):
    from quarl_bench.papers.lqcc.selection import Configuration
    from quarl_bench.papers.lqcc.sentences import judge_cost

    settle(judge_cost(tasks, Configuration.parse(claim.scheme)))


@pytest.mark.claim("lqcc-halfcheetah-width")
def test_narrower_layers_cost_return(claim, tasks, settle):
    from quarl_bench.papers.lqcc.selection import WIDTHS, Configuration
    from quarl_bench.papers.lqcc.sentences import judge_cost

    narrow = Configuration.parse(claim.scheme)
    settle(judge_cost(tasks, narrow, replace(narrow, width=WIDTHS[-1])))


@pytest.mark.claim("lqcc-input-bits")
def test_behind_a_small_core_fewer_input_bits_do(claim, tasks, settle):
    from quarl_bench.papers.lqcc.sentences import judge_input_bits, read_printed

    settle(judge_input_bits(tasks, read_printed(claim.claim)))


@pytest.mark.claim("lqcc-two-bit-core")
def test_three_tasks_do_with_a_core_of_two_bits(claim, tasks, settle):
    from quarl_bench.papers.lqcc.sentences import judge_parity

    settle(judge_parity(tasks, "core", (2,)))


@pytest.mark.claim("lqcc-table1")
def test_the_rule_selects_what_is_printed(claim, tasks, settle):
    from quarl_bench.papers.lqcc.figures import AUTHORS, show_steps
    from quarl_bench.papers.lqcc.sentences import judge_table, read_printed

    printed = read_printed(claim.claim)
    settle(judge_table(tasks, printed), panels=show_steps(AUTHORS, tasks, printed))


@pytest.mark.claim("lqcc-parity")
def test_selected_configurations_match(claim, tasks, settle):
    from quarl_bench.papers.lqcc.sentences import judge_selected, read_printed

    settle(judge_selected(tasks, read_printed(claim.claim)))


@pytest.mark.claim("lqcc-sensitivity")
def test_which_reading_of_the_rule_changes_which_task(claim, tasks, settle):
    from quarl_bench.papers.lqcc.sentences import judge_sensitivity, read_printed

    settle(judge_sensitivity(tasks, read_printed(claim.claim)))
