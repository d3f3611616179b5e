"""Losses of imitation: zero where decisions are equal, by formula elsewhere; a clip stops no gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given

from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.repairing.imitation import Loss, OutputKind, name_outputs
from tests.support.strategies import SEEDS

ARGMAX = ActionHead(HeadKind.ARGMAX)
BOUNDS = np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)
CLIP, TANH = (ActionHead(kind, *BOUNDS) for kind in (HeadKind.CLIP, HeadKind.TANH))


def draw(seed, columns=2):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(20, columns)).astype(np.float32))


@given(SEEDS)
def test_what_decides_nothing_costs_nothing(seed):
    teacher = draw(seed, 3)
    shifted = teacher + torch.arange(20.0)[:, None]
    for kind in (OutputKind.VALUES, OutputKind.LOGITS):
        loss = Loss.of(kind, ARGMAX, teacher)
        assert float(loss(shifted, teacher)) == pytest.approx(0, abs=1e-5)
        assert float(loss(draw(seed + 1, 3), teacher)) > 0


def test_values_are_compared_by_their_differences():
    teacher = torch.tensor([[1.0, 3.0], [5.0, 1.0]])
    student = torch.tensor([[1.0, 5.0], [5.0, 1.0]])
    loss = Loss.of(OutputKind.VALUES, ARGMAX, teacher)
    assert loss.unit == 2  # the smaller of the two medians
    assert float(loss(student, teacher)) == pytest.approx((2 / (2 + 2)) ** 2 / 4)


def test_logits_are_compared_by_their_distribution():
    teacher, student = torch.log(torch.tensor([[0.5, 0.5]])), torch.log(torch.tensor([[0.25, 0.75]]))
    wanted = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert float(Loss.of(OutputKind.LOGITS, ARGMAX, teacher)(student, teacher)) == pytest.approx(wanted, rel=1e-5)


def test_parts_of_an_action_are_compared_apart():
    """What a part shares costs nothing; the divergences of parts are added, a bit being a choice between 0 and it."""
    parts, bits = ActionHead(HeadKind.PARTS, sizes=(2, 3)), ActionHead(HeadKind.BITS)
    teacher, student = draw(0, 5), draw(1, 5)
    shared = teacher + torch.tensor([5.0, 5.0, -1.0, -1.0, -1.0])
    for kind in (OutputKind.VALUES, OutputKind.LOGITS):
        loss = Loss.of(kind, parts, teacher)
        assert float(loss(shared, teacher)) == pytest.approx(0, abs=1e-5)
        assert float(loss(student, teacher)) > 0
    single = [Loss.of(OutputKind.LOGITS, ARGMAX, part) for part in (teacher[:, :2], teacher[:, 2:])]
    wanted = single[0](student[:, :2], teacher[:, :2]) + single[1](student[:, 2:], teacher[:, 2:])
    found = Loss.of(OutputKind.LOGITS, parts, teacher)(student, teacher)
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)
    one, other = (torch.tensor([[value]]) for value in (0.3, -1.0))
    pairs = [torch.tensor([[0.0, value]]) for value in (0.3, -1.0)]
    assert float(Loss.of(OutputKind.LOGITS, bits, one)(other, one)) == pytest.approx(
        float(Loss.of(OutputKind.LOGITS, ARGMAX, pairs[0])(pairs[1], pairs[0])), rel=1e-5
    )


@pytest.mark.parametrize("kind", [OutputKind.VALUES, OutputKind.LOGITS])
def test_what_a_mask_forbids_costs_nothing_and_moves_nothing(kind):
    teacher, masks = draw(0, 4), torch.tensor([[True, True, False, True]]).expand(20, 4)
    student = teacher.clone()
    student[:, 2] += 100
    loss = Loss.of(kind, ARGMAX, teacher, masks)
    assert float(loss(student, teacher, masks)) == pytest.approx(0, abs=1e-6)
    assert float(loss(student, teacher)) > 0.1
    student.requires_grad_()
    loss(student + draw(2, 4), teacher, masks).backward()
    assert (student.grad[:, 2] == 0).all()
    assert (student.grad[:, :2] != 0).any()


@pytest.mark.parametrize("head", [CLIP, TANH], ids=["clip", "tanh"])
def test_numbers_are_compared_as_actions(head):
    teacher, student = 3 * draw(0), 3 * draw(1)
    loss = Loss.of(OutputKind.ACTIONS, head, teacher)
    actions = [head.act(outputs.numpy()) for outputs in (teacher, student)]
    share = (actions[0] - actions[1]) / ((BOUNDS[1] - BOUNDS[0]) / 2)
    assert float(loss(student, teacher)) == pytest.approx(float((share**2).mean()), rel=1e-4)


def test_a_clip_passes_gradients():
    student = torch.tensor([[9.0, 9.0]], requires_grad=True)
    Loss.of(OutputKind.ACTIONS, CLIP, draw(0))(student, torch.zeros(1, 2)).backward()
    assert (student.grad > 0).all()


def test_kinds():
    assert name_outputs(CLIP, sampled=True) is OutputKind.ACTIONS
    assert name_outputs(ARGMAX, sampled=True) is OutputKind.LOGITS
    assert name_outputs(ARGMAX, sampled=False) is OutputKind.VALUES
