"""Claims: what they expand to, how they fail, and that their threshold is what decides."""

import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from quarl_bench.boards.judgements import Faster, Smaller
from quarl_bench.errors import SpecError
from quarl_bench.judging.claim import expand, over
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.judging.rules.judgement import Domain
from quarl_bench.judging.rules.returns import Count, Equivalent, Harder, MeanError, MostCells, Tracks
from quarl_bench.judging.rules.training import Ordered, Rises, Wider
from quarl_bench.papers.registry import read_catalog
from quarl_bench.training.recipes import ALGORITHMS
from tests.support.claims import make_claim
from tests.support.places import ROOT


def test_a_reason_is_of_every_profile_of_one_or_of_one_processor():
    kept = make_claim(Keeps(0.05), known={"a": "always", "b in quick": "there", "c on EPYC": "not of times"})
    assert [kept.find_known(name, "quick", "EPYC") for name in "abcd"] == ["always", "there", "", ""]
    assert [kept.find_known(name, "nightly", "EPYC") for name in "abcd"] == ["always", "", "", ""]
    timed = make_claim(Faster(2.0), known={"a": "always", "c on EPYC": "here"}, boards=("local",))
    assert [timed.find_known(name, "quick", "EPYC") for name in "ac"] == ["", "here"]
    assert timed.find_known("c", "quick", "Xeon") == ""
    sizes = make_claim(Smaller(2.0), known={"a": "always"}, boards=("local",))
    assert sizes.find_known("a", "quick", "Xeon") == "always"


def test_replays_are_on_published_numbers_alone():
    replays = {claim.id for claim in read_catalog() if claim.replay}
    assert {"lqcc-table1", "lqcc-sensitivity", "lqcc-parity", "lqcc-normalization"} == replays
    assert all(claim.origin == "authors" for claim in read_catalog() if claim.replay)


def test_no_reason_restates_the_verdict():
    """A reason says more than the returns that were refuted: it has words for what makes them."""
    for claim in read_catalog():
        for name, reason in claim.known.items():
            words = re.findall(r"[a-z]{3,}", reason)
            assert len(set(words)) >= 5, f"{claim.id} {name}: {reason}"


def test_the_package_catalog_has_unique_ids_in_the_id_grammar():
    for claim in read_catalog():
        items = expand(claim)
        ids = [item.id for item in items]
        assert ids
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in ids)
        names = {re.sub(r" (in (quick|nightly|paper)|on .+)$", "", name) for name in claim.known}
        assert names <= set(ids), "a known reason for an id that does not exist"
        assert all((" on " in name) == claim.judgement.timed for name in claim.known), "times are of one processor"


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
    inside = [(a, b) for a in ALGORITHMS for b in ALGORITHMS if a != b and a in b]
    assert inside == [("ppo", "recurrentppo")]  # which is PPO: `-k ppo` asks for it too
    root = ROOT
    names = [path.name for folder in ("benches", "tests") for path in (root / folder).rglob("*.py")]
    assert not [(a, name) for a in ALGORITHMS for name in names if a in name]


def test_a_claim_expands():
    cells = (*over("ppo", "cartpole pong"), *over("dqn", "pong"))
    assert [item.id for item in expand(make_claim(Keeps(0.05)))] == ["ppo-cartpole-w8"]
    assert [item.id for item in expand(make_claim(MeanError(0.05), schemes=("w8", "int8"), cells=cells))] == [
        "ppo-x-w8", "ppo-x-int8", "dqn-x-w8", "dqn-x-int8"]  # fmt: skip
    assert [item.id for item in expand(make_claim(MeanError(0.05), cells=cells, pooled=True))] == ["all-x-w8"]
    assert [item.id for item in expand(make_claim(Count(3), cells=cells))] == ["all-x-all"]


@pytest.mark.parametrize(
    ("judgement", "changes", "field", "reason"),
    [
        (Keeps("5%"), {}, "judgement", "threshold '5%' must be a number"),
        (Keeps(5.0), {}, "judgement", "threshold 5.0 must be at least 0 and below 1"),
        (Keeps(math.nan), {}, "judgement", "threshold nan must be"),
        (Wider(0.0, "ppo"), {"schemes": ("range",)}, "judgement", "must be a ratio above 0; 1 is equality"),
        (Wider(-1.0, "ppo"), {"schemes": ("range",)}, "judgement", "must be a ratio above 0; 1 is equality"),
        (MostCells(0.05, share=1.5), {}, "judgement", "share 1.5 must be above 0 and at most 1"),
        (Wider(1.0, "w8"), {"schemes": ("range",)}, "judgement", "'w8' must be an algorithm"),
        (Wider(1.0, "ppo"), {}, "schemes", "'w8' must be statistics of weights"),
        (Equivalent(0.05, "fp17"), {}, "judgement", "fp17"),
        (Tracks(0.05, "w8"), {}, "judgement", "statistic 'w8' must be one of range"),
        (Ordered(0.0, "ppo"), {}, "judgement", "states 'ppo' must be one of fixed, visited"),
        (Rises(1.0), {}, "schemes", "'w8' must be precisions of training"),
        ("vibes", {}, "judgement", "'vibes' is no judgement"),
        (Keeps(0.05), {"schemes": ("w33",)}, "schemes", "w33"),
        (Keeps(0.05), {"schemes": (8,)}, "schemes", ""),
        (Keeps(0.05), {"cells": over("pqo", "cartpole")}, "cells", "unknown algorithm 'pqo'"),
        (Keeps(0.05), {"cells": over("ppo", "Cart_Pole")}, "cells", "Cart_Pole"),
        (MostCells(0.05), {"slug": "Not_One"}, "slug", "'Not_One' must be one or more of"),
        (Keeps(0.05), {"origin": "Not_One"}, "origin", "'Not_One' must be one or more of"),
        (Harder(0.0), {}, "cells", "harder compares two cells"),
    ],
)  # fmt: skip
def test_an_ill_formed_claim_is_named_with_its_field(judgement, changes, field, reason):
    with pytest.raises(SpecError) as caught:
        make_claim(judgement, **changes)
    message = str(caught.value)
    assert message.startswith(f"claim 'x', field '{field}': "), message
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize("claim", {type(each.judgement): each for each in read_catalog()}.values(), ids=lambda c: c.id)
def test_every_judgement_of_the_catalog_refuses_a_threshold_out_of_range(claim):
    beyond = {Domain.SHARE: 1.0, Domain.WHOLE: 0.0, Domain.RATIO: 0.0, Domain.NUMBER: -math.inf}
    for threshold in (math.nan, math.inf, "5%", True, beyond[claim.judgement.domain]):
        message = rf"^claim '{claim.id}', field 'judgement': threshold {re.escape(repr(threshold))} must be [^\n]+$"
        with pytest.raises(SpecError, match=message):
            replace(claim, judgement=replace(claim.judgement, threshold=threshold))


def test_a_test_takes_the_fixture_of_its_judgement():
    with pytest.raises(SpecError, match="claim 'x', field 'judgement': Count is no Keeps: it takes another fixture"):
        make_claim(Count(3)).require(Keeps)


MINE = """
from dataclasses import replace
from quarl_bench.judging.claim import Claim, over
from quarl_bench.judging.rules.cells import Keeps

OWN = Claim("mine", "here", "it holds", Keeps(0.05), ("w8",), over("ppo", "cartpole"))
CLAIMS = (OWN,)
TWICE = (OWN, replace(OWN))
KNOWN = (replace(OWN, known={"ppo-cartpole-w8": "mine"}),)
NONE = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of a user's, of a name of its own: what is imported stays."""
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_claims_of_a_users_module(mine):
    assert read_catalog((f"{mine}:CLAIMS",))[-1].id == "mine"
    for name, reason in (
        ("TWICE", "'mine' is defined twice"),
        ("NONE", "no tuple of Claim; docs/extending/add_claim.md"),
        ("ABSENT", "no tuple of Claim"),
    ):
        with pytest.raises(SpecError, match=reason):
            read_catalog((f"{mine}:{name}",))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("claims.toml", "are Python values now, named as module:CLAIMS; docs/extending/add_claim.md shows how"),
        ("claims", "name them as module:CLAIMS"),
        ("no_such_module:CLAIMS", "importing 'no_such_module' failed"),
    ],
)
def test_what_names_no_claims_is_one_line(name, reason):
    with pytest.raises(SpecError, match=reason):
        read_catalog((name,))


def test_what_is_known_is_known_of_the_committed_policies(mine):
    """And of the zoo's; of what one's own claims know, one is the judge."""
    own = f"{mine}:KNOWN"
    with_reasons = {claim.id for claim in read_catalog((own,), elsewhere=True) if claim.known}
    records = {claim for claim in with_reasons if claim.startswith("actorq")}
    assert with_reasons - records == {"zoo-cell", "mine"}
    assert records
    assert {"table2-cell", "classic-trained"} <= {claim.id for claim in read_catalog((own,)) if claim.known}


def test_every_judgement_says_what_it_is():
    for kind in {type(claim.judgement) for claim in read_catalog()}:
        assert re.fullmatch(r"[a-z_]+", kind.name)
        assert kind.meaning


def test_claims_are_read_without_anything_heavy():
    line = (
        "from quarl_bench.papers.registry import read_catalog; read_catalog(); import sys; "
        "print([m for m in ('torch', 'numpy', 'scipy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
