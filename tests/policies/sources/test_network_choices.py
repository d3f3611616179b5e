"""Networks alone in environments of several choices and of bits: torch modules, files of ONNX and of torch."""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from quarl_bench.backends.onnx.qdq import write_float_model
from quarl_bench.cli import main
from quarl_bench.errors import PolicyError
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.policy import PolicyNet
from tests.support.choices import ACTIONS, ByInfo, ByMethod, Chooser, count_entries

STATES = np.random.default_rng(0).uniform(-2, 2, (500, 4)).astype(np.float32)


def make_module(outputs: int, *last: nn.Module) -> nn.Sequential:
    torch.manual_seed(outputs)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs), *last)


def save_export(module: nn.Module, path: Path) -> None:
    rows = {0: torch.export.Dim("n")}
    torch.export.save(torch.export.export(module.eval(), (torch.zeros(2, 4),), dynamic_shapes=(rows,)), path)


def read(module: nn.Module, form: str, folder: Path, task: Any) -> PolicyNet:
    """By the way of a file of this form, or in hand."""
    path, arch = folder / f"policy{form}", None
    if form == "":
        return open_task(PolicySource(Path("module"), task, live=module))[0].policy
    if form == ".onnx":
        plain = open_task(PolicySource(Path("module"), task, live=module))[0].policy
        path.write_bytes(write_float_model(plain.net))
    elif form == ".pt2":
        save_export(module, path)
    elif form == ".pt":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.script(module), path)
    else:
        torch.save(module.state_dict(), path)
        arch = "0,tanh,2"
    return open_task(PolicySource(path, task, arch=arch))[0].policy


@pytest.mark.parametrize("form", ["", pytest.param(".onnx", marks=pytest.mark.needs("onnx")), ".pt2", ".pt", ".pth"])
@pytest.mark.parametrize("name", ["indices", "bits"])
def test_actions_are_the_choices_of_its_outputs(name: str, form: str, tmp_path: Path) -> None:
    sizes = count_entries(ACTIONS[name])
    module = make_module(len(sizes) if name == "bits" else sum(sizes))
    policy = read(module, form, tmp_path, lambda: Chooser(ACTIONS[name]))
    with torch.inference_mode():
        outputs = module(torch.from_numpy(STATES))
    if name == "bits":
        expected = (outputs > 0).long().numpy()
    else:
        expected = np.stack([part.argmax(dim=1).numpy() for part in outputs.split(sizes, dim=1)], axis=1)
    assert (policy.act(STATES) == expected).mean() > 0.999  # sums of another order
    assert not policy.head.masked


@pytest.mark.parametrize("form", ["", ".pt2"])
def test_bits_may_have_two_logits_each_or_come_as_probabilities(form: str, tmp_path: Path) -> None:
    task = lambda: Chooser(ACTIONS["bits"])  # noqa: E731
    pairs = read(make_module(6), form, tmp_path, task)
    assert (pairs.head.kind, pairs.head.sizes) == (HeadKind.PARTS, (2, 2, 2))
    module = make_module(3, nn.Sigmoid())
    policy = read(module, form, tmp_path, task)
    with torch.inference_mode():
        expected = (module(torch.from_numpy(STATES)) > 0.5).long().numpy()
    np.testing.assert_array_equal(policy.act(STATES), expected)


def test_a_network_is_masked_where_its_environment_has_the_method() -> None:
    for made, masked in ((ByMethod, True), (ByInfo, False), (Chooser, False)):
        policy = read(make_module(5), "", Path(), lambda made=made: made(ACTIONS["index"]))
        assert policy.head.masked is masked


@pytest.mark.parametrize(
    "module, actions, message",
    [
        (make_module(8), ACTIONS["indices"], "8 outputs for the actions MultiDiscrete"),
        (make_module(4), ACTIONS["bits"], r"4 outputs for the actions MultiBinary\(3\)"),
        (make_module(9, nn.Tanh()), ACTIONS["indices"], "behind a tanh are no logits"),
        (make_module(9, nn.Sigmoid()), ACTIONS["indices"], "behind a sigmoid are no logits"),
        (make_module(9), spaces.Tuple((spaces.Discrete(4), spaces.Discrete(5))), "use Discrete, MultiDiscrete, Multi"),
        (make_module(9), spaces.Text(9), "use Discrete, MultiDiscrete, MultiBinary or Box"),
    ],
    ids=range(6),
)
def test_other_outputs_and_actions_are_refused(module: nn.Module, actions: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        read(module, "", Path(), lambda: Chooser(actions))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("last", [nn.Softmax(dim=1)])
def test_one_choice_among_all_outputs_is_not_several(last: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="one choice among all outputs, and actions are several"):
        read(make_module(9, last), ".pt2", tmp_path, lambda: Chooser(ACTIONS["indices"]))


CODE = """
import numpy as np, torch
from gymnasium import spaces
from tests.support.choices import ACTIONS, Chooser

class Wrong(Chooser):
    def __init__(self):
        super().__init__(ACTIONS["index"])

class Short(Wrong):
    def action_masks(self):
        return np.ones(4)

class Closed(Wrong):
    def action_masks(self):
        return np.zeros(5)

class Pair(Chooser):
    def __init__(self):
        super().__init__(spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))))

def network():
    return torch.nn.Linear(4, 5)
"""


@pytest.mark.parametrize(
    "name, said",
    [
        ("Short", "a mask has 4 entries, and there are 5 actions"),
        ("Closed", "a mask forbids every action"),
        ("Pair", "actions Tuple(Discrete(2), Discrete(3)) have no portable form"),
    ],
)
def test_the_command_says_it_in_one_line(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "masked_own.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "masked_own", raising=False)
    arguments = ["masked_own:network", "--environment", f"masked_own:{name}", "--episodes", "2"]
    assert main(["evaluate", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
