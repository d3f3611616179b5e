"""Numbers in the sentences of docs/findings.md and docs/repair.md: of rows, of manifests, of committed policies."""

import re

import numpy as np
import pytest

from quarl_bench.checking.subject import open_subject
from quarl_bench.policies.storage.fp32 import load_policy
from quarl_bench.report.documents import Document, read_document
from tests.support.pages import DOCS, load_script
from tests.support.places import POLICIES
from tests.support.rows import make_row, to_rows

CITED = load_script("cited_numbers")
PAGE = " ".join((DOCS / "findings.md").read_text(encoding="utf-8").split())
SAMPLED = {"sampled": {"returns": [[1.0, 4.0]]}}
ROW = make_row("w8", 0.794, "refuted", line="refuted: 6,456 Hz", returns={"measured": SAMPLED, "reference": SAMPLED})
ROW["measured"] |= {"per_policy": [1389.4, 25.38, -0.004]}
MEMBERS = [{"return": {"mean": 643.2}, "run": {"timesteps": 259_008}}, {"return": {"mean": 70.0}}]


def cite(target, what, row=ROW):
    return CITED.cite_numbers(f'[old [1, 2]]({target}: {what}") of it', to_rows([row]), {"dqn-qbert": MEMBERS})


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("estimate", "0.79 [0.75, 0.83]"),
        ("percent", "79% [75%, 83%]"),
        ("times", "0.79x [0.75x, 0.83x]"),
        ("verdict", "refuted"),
        ("line", "refuted: 6,456 Hz"),
        ("return", "159"),
        ("fp32 return", "200"),
        ("returns", "1389, 25.4 and -0.004"),
        ("sampled return", "2.5"),
    ],
)
def test_a_link_has_the_number_of_its_row(what, told):
    target = 'claims.md#table2-cell "ppo-cartpole-w8'
    assert cite(target, what) == f'[{told}]({target}: {what}") of it'


def test_a_link_has_the_number_of_its_policies():
    assert cite('policies.md "dqn-qbert', "returns").startswith("[643 and 70](")
    assert cite('policies.md "dqn-qbert', "return").startswith("[357](")
    assert cite('policies.md "dqn-qbert', "steps").startswith("[259,008](")


def test_an_interval_that_is_a_point_is_left_out_and_nothing_is_minus_0():
    row = ROW | {"estimate": -0.001, "interval": [-0.001, -0.001]}
    assert cite('claims.md#table2-cell "ppo-cartpole-w8', "percent", row).startswith("[0%](")


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ('claims.md#table2-cell "ppo-cartpole-w7', "estimate"),
        ('claims.md#table2-cell "ppo-cartpole-w8', "guess"),
        ('policies.md "dqn-pong', "return"),
        ('policies.md "dqn-qbert', "guess"),
    ],
)
def test_a_link_to_nothing_is_named(target, what):
    with pytest.raises(ValueError, match=re.escape(target)):
        cite(target, what)


def test_the_pages_are_current_and_have_no_interval_by_hand():
    generator = load_script("generate")
    rows = Document("", read_document(generator.STORED).data).rows
    manifests = generator.read_manifests(generator.BASELINES)
    for page in generator.CITING:
        text = page.read_text(encoding="utf-8")
        assert text == CITED.cite_numbers(text, rows, manifests), "run python docs/scripts/generate.py"
        by_hand = re.sub(
            r"<!-- ([^:\n]+): made by.*?<!-- end of \1 -->", "", CITED.CITED.sub("", text), flags=re.DOTALL
        )
        assert re.findall(r"[\d%x] \[-?\d[^\]]*\]", by_hand) == []


@pytest.fixture(scope="module")
def ranges():
    """By game or task, DQN's range of weights and their SD, over PPO's."""

    def measure(cell):
        found = []
        for folder in sorted(POLICIES.glob(f"{cell}-seed*")):
            pooled = np.concatenate([layer.weight.ravel() for layer in load_policy(folder).policy.net.layers])
            found.append((np.ptp(pooled), pooled.std()))
        return np.mean(found, axis=0)

    tasks = ("cartpole", "acrobot", "lunarlander", "mountaincar")
    games = ("beamrider", "breakout", "mspacman", "pong", "qbert", "seaquest", "spaceinvaders")
    return [{name: measure(f"dqn-{name}") / measure(f"ppo-{name}") for name in group} for group in (tasks, games)]


def test_what_is_said_of_weights_is_true_of_the_committed_policies(ranges):
    tasks, games = ranges
    wide, of_games = ({name: ratio[0] for name, ratio in group.items()} for group in ranges)
    assert {round(wide[name]) for name in ("cartpole", "acrobot", "lunarlander")} == {4, 5}
    said = (
        "The range of DQN's weights is 4 to 5 times PPO's range on CartPole, Acrobot and LunarLander, and "
        f"{wide['mountaincar']:.0f} times on MountainCar. On Atari it is {min(of_games.values()):.1f} to "
        f"{max(of_games.values()):.1f} times PPO's range ({of_games['breakout']:.2f} on Breakout, "
        f"{of_games['pong']:.2f} on Pong)."
    )
    assert said in PAGE
    said = "wider on CartPole, LunarLander and MountainCar, as wide on Acrobot, and a fifth to a half as wide on Atari."
    assert said in PAGE
    assert min(tasks[name][1] for name in ("cartpole", "lunarlander", "mountaincar")) > 1.5
    assert tasks["acrobot"][1] == pytest.approx(1, abs=0.05)
    assert all(0.2 <= ratio[1] <= 0.5 for ratio in games.values())


def test_what_is_said_of_ties_is_true_of_the_committed_policies():
    gaps, steps, ties = [], [], []
    for folder in sorted(POLICIES.glob("dqn-cartpole-seed*")):
        subject = open_subject(folder)
        policy, quantized = subject.stored.policy, subject.quantize("int8")
        best, rounded = (np.sort(form.outputs(subject.observations), axis=1) for form in (policy, quantized))
        gaps.append(np.median(best[:, -1] - best[:, -2]))
        steps.append(float(quantized.net.output.scale))
        ties.append(np.mean(rounded[:, -1] == rounded[:, -2]))
    assert (
        f"our eight CartPole policies differ by {min(gaps):.2f} to {max(gaps):.2f} (medians), but one step of the int8 "
        f"output is {min(steps):.2f} to {max(steps):.2f}. So up to {max(ties):.0%} of their decisions are ties "
        f"({min(ties):.0%} in the best policy, a quarter or more in five)."
    ) in PAGE
    assert sorted(ties)[2] < 0.24 < sorted(ties)[3]
