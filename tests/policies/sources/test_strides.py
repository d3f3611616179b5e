"""Tensors whose numbers lie in another order: read as torch and NumPy read them, or refused."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import PolicyError
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.policies.sources.sb3.state_dict import read_weights
from quarl_bench.policies.sources.strides import is_held, view
from quarl_bench.policies.sources.torch_export import read_program
from quarl_bench.policies.sources.torchscript.file import Numbers, read_script
from tests.policies.sources.test_checkpoints import OBSERVATIONS, Task, make_actor, rsl_rl_5
from tests.support.sizes import draw_examples

SIZES = st.lists(st.integers(0, 5), max_size=4)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]


@st.composite
def draw_tensors(draw: st.DrawFn) -> torch.Tensor:
    """A part of a larger tensor, with its axes in any order."""
    whole = draw(SIZES)
    numbers = torch.arange(math.prod(whole)).reshape(whole).to(draw(st.sampled_from(DTYPES)))
    steps = [slice(draw(st.integers(0, 2)), None, draw(st.integers(1, 3))) for _ in whole]
    part = numbers[tuple(steps)] if steps else numbers
    return part.permute(draw(st.permutations(range(part.ndim))))


def save(state: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


@given(st.lists(draw_tensors(), min_size=1, max_size=3))
@draw_examples(400)
def test_any_view_is_read_as_torch_reads_it(tensors: list[torch.Tensor]) -> None:
    found = read_weights(save({f"t{i}": tensor for i, tensor in enumerate(tensors)}), "weights.pth")
    for tensor, array in zip(tensors, found.values(), strict=True):
        assert array.dtype == np.float32
        assert array.size == tensor.numel()
        assert array.flags.c_contiguous
        if array.size:  # an empty tensor has no shape worth keeping
            np.testing.assert_array_equal(array, tensor.float().numpy())


INTEGERS = st.integers(-1, 9) | st.sampled_from([2**31, 2**62, 2**63, 2**64, 10**30])


@given(INTEGERS, st.lists(INTEGERS, max_size=5), st.lists(INTEGERS, max_size=5), st.integers(0, 40))
@draw_examples(2000)
def test_what_is_held_lies_in_its_storage_and_nothing_of_it_twice(
    start: int, shape: list[int], strides: list[int], count: int
) -> None:
    raw = np.arange(count)
    if not is_held(start, shape, strides, count):
        with pytest.raises(ValueError, match="does not hold"):
            view(raw, start, shape, strides)
        return
    if 0 in shape:
        return
    array = view(raw, start, shape, strides)
    assert array.flags.c_contiguous
    assert len(np.unique(array)) == array.size <= count
    places = start + sum(np.indices(shape)[i] * min(strides[i], 2**31) for i in range(len(shape)))
    np.testing.assert_array_equal(array, places)


def change_tensor(state: dict[str, Any], **changed: Any) -> bytes:
    """A file whose tensors claim another place, shape or strides, as no saving does."""
    real = torch.Tensor.__reduce_ex__

    def reduce(tensor: torch.Tensor, protocol: int) -> Any:
        function, (storage, start, shape, strides, *rest) = real(tensor, protocol)
        claims = {"start": start, "shape": shape, "strides": strides} | changed
        return function, (storage, claims["start"], claims["shape"], claims["strides"], *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "__reduce_ex__", reduce)
        return save(state)


HOSTILE: dict[str, dict[str, Any]] = {
    "beyond": {"strides": (3, 2)},
    "far": {"strides": (2**27, 1)},
    "farther": {"strides": (2**62, 1)},
    "huge": {"strides": (10**40, 1)},
    "mountain": {"shape": (2**27, 2**27), "strides": (0, 0)},
    "shared": {"strides": (1, 1)},
    "offset": {"start": 1},
    "far offset": {"start": 2**62},
    "negative": {"strides": (-2, 1)},
    "too few": {"strides": (1,)},
    "no number": {"strides": (2, "1")},
    "truth": {"strides": (2, True)},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_strides_are_one_line(name: str) -> None:
    with pytest.raises(PolicyError, match=r"that its file does not hold|is not a tensor of real numbers") as caught:
        read_weights(change_tensor({"weight": torch.ones(3, 2)}, **HOSTILE[name]), "weights.pth")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_checkpoint_of_transposed_weights_acts_alike(tmp_path: Path) -> None:
    state = rsl_rl_5()
    for name, tensor in state["actor_state_dict"].items():
        if tensor.ndim == 2:
            state["actor_state_dict"][name] = tensor.t().contiguous().t()
    policies = []
    for number, content in enumerate((rsl_rl_5(), state)):
        torch.save(content, tmp_path / f"{number}.pt")
        policies.append(open_task(PolicySource(tmp_path / f"{number}.pt", Task, arch="elu"))[0].policy)
    x = OBSERVATIONS.numpy()
    np.testing.assert_array_equal(policies[0].act(x), policies[1].act(x))


def transpose_weights() -> torch.nn.Sequential:
    network = make_actor()
    for module in network:
        if isinstance(module, torch.nn.Linear):
            module.weight = torch.nn.Parameter(module.weight.detach().t().contiguous().t())
    return network


@pytest.mark.filterwarnings("ignore:.torch.jit.* is (deprecated|not supported)")
@pytest.mark.filterwarnings("ignore:No complete tensor found in the group:UserWarning")
def test_programs_have_transposed_weights_too() -> None:
    network, stream = transpose_weights(), io.BytesIO()
    torch.jit.save(torch.jit.trace(network, torch.zeros(1, 3)), stream)
    first = read_script(stream.getvalue(), "program.pt").module.attributes["0"].attributes["weight"]
    assert isinstance(first, Numbers)
    np.testing.assert_array_equal(first.values, network[0].weight.detach().numpy())
    stream = io.BytesIO()
    torch.export.save(torch.export.export(network, (torch.zeros(1, 3),)), stream)
    constants = read_program(stream.getvalue(), "program.pt2").constants
    np.testing.assert_array_equal(constants["p_0_weight"], network[0].weight.detach().numpy())
