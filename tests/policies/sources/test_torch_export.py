"""Programs of torch.export: what is read equals what the module computes, and nothing of a file is run."""

import io
import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.onnx.ends import adopt_chain
from quarl_bench.policies.sources.onnx.graph import read_chain
from quarl_bench.policies.sources.torch_export import read_program
from quarl_bench.quantization.activations import Activation, make_module
from tests.support.archives import exchange_member

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's own
X = torch.randn(10_000, 3, generator=torch.Generator().manual_seed(0)) * 3
BOX = spaces.Box(-np.inf, np.inf, (3,))


class Actor(nn.Module):
    """Normalization, two hidden layers, means and SDs, of which the means are squashed."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(
            nn.Linear(3, 16), make_module(activation), nn.Linear(16, 8), make_module(activation), nn.Linear(8, 4)
        )
        self.register_buffer("mean", torch.tensor([0.5, -1.0, 2.0]))
        self.register_buffer("sd", torch.tensor([0.5, 2.0, 1.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(((x - self.mean) / self.sd).clamp(-5, 5))
        return torch.tanh(torch.chunk(y, 2, dim=-1)[0])


def save(module: nn.Module) -> bytes:
    file = io.BytesIO()
    rows = {0: torch.export.Dim("n")}
    torch.export.save(torch.export.export(module.eval(), (X[:2],), dynamic_shapes=(rows,)), file)
    return file.getvalue()


def read(data: bytes) -> PolicyNet:
    chain = read_chain(read_program(data, "policy.pt2"))
    return adopt_chain(chain, BOX, spaces.Box(-1, 1, (2,)), None, "policy.pt2")


SOME = (
    Activation.ELU,
    Activation.SILU,
    Activation.GELU_TANH,
    Activation.RELU6,
    Activation.SOFTPLUS,
    Activation.HARDTANH,
)


@pytest.mark.parametrize("activation", SOME)
def test_actions_are_the_module_s(activation: Activation) -> None:
    module = Actor(activation)
    policy = read(save(module))
    assert policy.head.kind is HeadKind.TANH
    assert policy.transform.normalization is not None
    assert [layer.activation for layer in policy.net.layers] == [activation, activation, Activation.NONE]
    with torch.inference_mode():
        np.testing.assert_allclose(policy.act(X.numpy()), module(X).numpy(), atol=1e-5)


class Residual(nn.Module):
    """Sums with a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sub(self.layer(x), 1.0, alpha=2)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Sequential(nn.Linear(3, 2), nn.Softplus(threshold=1.0)), "threshold=1"),
        (nn.Sequential(nn.Linear(3, 2), nn.Softplus(beta=2.0)), "beta=2"),
        (Residual(), "alpha=2"),
    ],
    ids=["threshold", "beta", "factor"],
)
def test_arguments_without_a_form_are_named(module: nn.Module, said: str) -> None:
    with pytest.raises(PolicyError, match=f"has {said}.*; export to ONNX"):
        read_program(save(module), "policy.pt2")


class Writes(nn.Module):
    """What `how` names is done in place to the outputs, to a part of them, or to a buffer."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(3, 3), how
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if self.how == "part":
            y[:, 0:1].relu_()
        elif self.how == "view":
            y.unsqueeze(0).tanh_()
        elif self.how == "buffer":
            y = y + self.seen
            self.seen.copy_(self.seen * 0.5)
        else:
            y = y.relu_()
        return y


@pytest.mark.parametrize("how", ["part", "view", "buffer"])
def test_what_is_written_in_place_is_refused(how: str) -> None:
    with pytest.raises(PolicyError, match=r"writes over what it reads|keeps a state") as caught:
        read_program(save(Writes(how)), "policy.pt2")
    assert "\n" not in str(caught.value)


def test_what_nobody_else_reads_may_be_written_over() -> None:
    for module in (Writes("all"), nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.ReLU(inplace=True))):
        assert read_chain(read_program(save(module), "policy.pt2")).layers[-1].activation is Activation.RELU


def unknown(content: bytes) -> bytes:
    program = json.loads(content)
    program["graph_module"]["graph"]["nodes"][4]["target"] = "os.system"
    return json.dumps(program).encode()


CHANGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "operator": ("model.json", unknown, r"\(os.system\)"),
    "no JSON": ("model.json", lambda content: content[:-5], "damaged, or not of torch.export"),
    "deep": ("model.json", lambda _: b"[" * 100_000, "damaged, or not of torch.export"),
    "short": ("weight_0", lambda content: content[:-4], "damaged, or not of torch.export"),
    "empty": ("model.json", lambda _: b"{}", "damaged, or not of torch.export"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_refused_in_one_line(name: str) -> None:
    member, edit, said = CHANGES[name]
    data = exchange_member(save(Actor(Activation.ELU)), member, edit)
    with pytest.raises(PolicyError, match=said) as caught:
        read(data)
    assert "\n" not in str(caught.value)


def test_no_archive() -> None:
    with pytest.raises(PolicyError, match="not a zip, or cut short"):
        read(b"nothing")
