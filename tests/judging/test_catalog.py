"""Claims files: what they expand to, and how they fail."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import SpecError
from quarl_bench.judging.catalog import expand_cases, expand_claims, parse_claims
from quarl_bench.papers.registry import read_catalog
from quarl_bench.training.recipes import ALGORITHMS
from tests.support.places import ROOT
from tests.support.sizes import draw_examples

GOOD = """
[paper]
title = "A paper"

[[claim]]
id = "first"
locus = "Table 1"
kind = "case"
rule = "retention"
threshold = 0.05
sentence = "it holds"
schemes = ["w8"]
cells = [{ algo = "ppo", environments = ["cartpole"] }]

[[claim]]
id = "second"
locus = "Table 1"
kind = "aggregate"
rule = "mean_error"
threshold = 0.05
sentence = "it holds on average"
schemes = ["w8", "int8"]
cells = [{ algo = "ppo", environments = ["cartpole", "pong"] }, { algo = "dqn", environments = ["pong"] }]
"""


def test_the_package_catalog_has_unique_ids_in_the_id_grammar():
    for claim in read_catalog():
        items = list(expand_cases(claim)) if claim.kind == "case" else list(expand_claims(claim))
        ids = [item.id for item in items]
        assert ids
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in ids)
        assert set(claim.known) <= set(ids), "a known reason for an id that does not exist"


def test_table_2_errors_are_those_the_paper_prints():
    """The transcribed returns give the printed relative errors (percent)."""
    (claim,) = [c for c in read_catalog() if c.id == "table2-mean"]
    printed = {("a2c", "breakout"): (2.11, 7.65), ("dqn", "breakout"): (-1.40, 63.55), ("ppo", "qbert"): (0.0, 3.90),
               ("dqn", "mspacman"): (0.28, -41.24), ("ddpg", "bipedalwalker"): (8.16, 15.31),
               ("ppo", "beamrider"): (-9.97, -2.54), ("ddpg", "walker2dbullet"): (-2.06, 1.27)}  # fmt: skip
    for cell, (fp16, int8) in printed.items():
        row = claim.values[cell]
        assert 100 * (row["fp32"] - row["fp16"]) / row["fp32"] == pytest.approx(fp16, abs=0.006)
        assert 100 * (row["fp32"] - row["w8"]) / row["fp32"] == pytest.approx(int8, abs=0.006)
    means = {"a2c": (1.66, 2.31), "dqn": (-0.88, 8.60), "ppo": (-0.62, 0.54), "ddpg": (1.54, 4.93)}
    for algo, expected in means.items():
        rows = [row for (a, _), row in claim.values.items() if a == algo]
        for scheme, value in zip(("fp16", "w8"), expected, strict=True):
            mean = sum(100 * (row["fp32"] - row[scheme]) / row["fp32"] for row in rows) / len(rows)
            assert mean == pytest.approx(value, abs=0.011)


def test_no_algorithm_name_contains_another_or_names_a_file():
    assert not [(a, b) for a in ALGORITHMS for b in ALGORITHMS if a != b and a in b]
    root = ROOT
    names = [path.name for folder in ("benches", "tests") for path in (root / folder).rglob("*.py")]
    assert not [(a, name) for a in ALGORITHMS for name in names if a in name]


def test_a_good_file_expands():
    first, second = parse_claims("good.toml", GOOD)
    assert [item.id for item in expand_cases(first)] == ["ppo-cartpole-w8"]
    assert [item.id for item in expand_claims(second)] == [
        "ppo-second-w8", "ppo-second-int8", "dqn-second-w8", "dqn-second-int8"]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ('locus = "Table 1"', "", 5, "locus"),
        ("threshold = 0.05", 'threshold = "5%"', 10, "threshold"),
        ("threshold = 0.05", "threshold = 5.0", 10, "threshold"),
        ('schemes = ["w8"]', 'schemes = ["w33"]', 12, "schemes"),
        ('schemes = ["w8"]', "schemes = [8]", 12, "schemes"),
        ('rule = "retention"', 'rule = "vibes"', 9, "rule"),
        ('algo = "ppo"', 'algo = "pqo"', 13, "cells"),
        ('environments = ["cartpole"]', 'environments = ["Cart_Pole"]', 13, "cells"),
        ('environments = ["cartpole"]', "envs = []", 13, "cells"),
        ('sentence = "it holds"', 'sentence = "it holds"\ncolour = "red"', 12, "colour"),
    ],
)
def test_an_ill_formed_entry_is_named_by_file_line_and_key(old, new, line, key):
    with pytest.raises(SpecError) as caught:
        parse_claims("mine.toml", GOOD.replace(old, new, 1))
    message = str(caught.value)
    assert message.startswith(f"claims file mine.toml, line {line}, key '{key}'"), message
    assert "\n" not in message


@pytest.mark.parametrize("threshold", ["0.0", "-1.0"])
def test_a_ratio_of_nothing_is_refused(threshold):
    """Intervals on ratios are judged by their logarithms."""
    text = f"""{GOOD}
[[claim]]
id = "third"
locus = "Figure 1"
kind = "aggregate"
rule = "wider"
threshold = {threshold}
sentence = "weights spread wider"
schemes = ["range"]
against = "ppo"
cells = [{{ algo = "dqn", environments = ["cartpole"] }}]
"""
    with pytest.raises(SpecError, match=r"'threshold'.*must be a ratio above 0; 1 is equality"):
        parse_claims("mine.toml", text)
    assert parse_claims("mine.toml", text.replace(f"= {threshold}\n", "= 1.0\n"))[2].threshold == 1


def test_broken_toml_is_named_by_file_and_line():
    with pytest.raises(SpecError, match=r"claims file mine.toml: not TOML: .*line 3"):
        parse_claims("mine.toml", "[paper]\ntitle = 'x'\nid = = 3\n")


def test_an_id_given_twice_and_a_missing_file_are_refused(tmp_path):
    (tmp_path / "a.toml").write_text(GOOD)
    (tmp_path / "b.toml").write_text(GOOD)
    with pytest.raises(SpecError, match="'first' is defined twice"):
        read_catalog((tmp_path / "a.toml", tmp_path / "b.toml"))
    with pytest.raises(SpecError, match="no-such"):
        read_catalog((tmp_path / "no-such.toml",))


def test_what_is_known_is_known_of_the_committed_policies(tmp_path):
    """And of the zoo's; of what one's own file knows, one is the judge."""
    own = tmp_path / "own.toml"
    own.write_text(GOOD + '\n[claim.known]\nppo-cartpole-w8 = "mine"\n')
    with_reasons = {claim.id for claim in read_catalog((own,), elsewhere=True) if claim.known}
    records = {claim for claim in with_reasons if claim.startswith("actorq")}
    assert with_reasons - records == {"zoo-cell", parse_claims("own", own.read_text())[-1].id}
    assert records
    assert {"table2-cell", "classic-trained"} <= {claim.id for claim in read_catalog((own,)) if claim.known}


VALUES = st.sampled_from(
    ['""', "3", "-1.5", "[]", "{}", "true", '["w8", 3]', "[{}]", '{ algo = "ppo" }', "nan", "1979-05-27"]
)


@draw_examples(500)
@given(st.data())
def test_mutated_files_raise_nothing_but_spec_errors(data):
    lines = GOOD.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(lines) - 1))
        action = data.draw(st.sampled_from(["drop", "value", "twice", "text"]))
        if action == "drop":
            lines[index] = ""
        elif action == "value" and "=" in lines[index]:
            lines[index] = lines[index].split("=")[0] + "= " + data.draw(VALUES)
        elif action == "twice":
            lines.insert(index, lines[index])
        else:
            lines[index] = data.draw(st.text(max_size=20))
    try:
        for claim in parse_claims("mine.toml", "\n".join(lines)):
            list(expand_cases(claim))
            list(expand_claims(claim))
    except SpecError as error:
        message = str(error)
    else:
        message = "claims file mine.toml"
    assert message.startswith(("claims file mine.toml", "case "))
