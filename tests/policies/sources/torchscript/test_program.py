"""TorchScript: what is read equals what torch runs, and nothing of a file is run to read it."""

import io
from pathlib import Path
from typing import Any

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
from quarl_bench.policies.sources.torchscript.file import is_script, read_script
from quarl_bench.policies.sources.torchscript.program import follow_script
from quarl_bench.quantization.activations import Activation, make_module
from quarl_bench.quantization.recurrent.cells import CellKind
from tests.support.archives import exchange_member
from tests.support.places import ROOT
from tests.support.sizes import choose

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's own: its script is deprecated
G1 = ROOT.parent / "shared" / "robots" / "g1" / "motion.pt"
BOX = spaces.Box(-np.inf, np.inf, (5,))


def make(activation: Activation) -> nn.Module:
    """Torch's module; the script's own hardtanh takes no whole numbers."""
    return nn.Hardtanh(-1.0, 1.0) if activation is Activation.HARDTANH else make_module(activation)


class Chain(nn.Module):
    """Statistics, layers, and of the outputs the first half, squashed."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(5, 8), make(activation), nn.Linear(8, 4))
        self.register_buffer("mean", torch.arange(5.0))
        self.register_buffer("sd", torch.arange(5.0) + 1)
        self.epsilon = 0.01

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers((x - self.mean) / (self.sd + self.epsilon))
        return torch.tanh(y[:, :2])


class Recurrent(nn.Module):
    """An actor with a memory in buffers, as trainers of robots export it."""

    def __init__(self, kind: type[nn.Module], layers: int = 1, *, keep: bool = True) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.memory = kind(5, 6, layers)
        self.actor = nn.Sequential(nn.Linear(6, 4), nn.ELU(), nn.Linear(4, 2))
        self.keep, self.lstm = keep, kind is nn.LSTM
        self.register_buffer("hidden_state", torch.zeros(layers, 1, 6))
        self.register_buffer("cell_state", torch.zeros(layers, 1, 6))


class WithLstm(Recurrent):
    def __init__(self, layers: int = 1, *, keep: bool = True) -> None:
        super().__init__(nn.LSTM, layers, keep=keep)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, (h, c) = self.memory(x.unsqueeze(0), (self.hidden_state, self.cell_state))
        if self.keep:
            self.hidden_state[:] = h
            self.cell_state[:] = c
        return self.actor(out.squeeze(0))


class WithGru(Recurrent):
    def __init__(self, layers: int = 1) -> None:
        super().__init__(nn.GRU, layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, h = self.memory(x.unsqueeze(0), self.hidden_state)
        self.hidden_state[:] = h
        return self.actor(out.squeeze(0))


class Loops(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.relu(x)
        return x


class Forks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 2)
        self.second = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) + self.second(x)


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x
        return -x


class Overwrites(WithGru):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden_state[:] = x.sum()
        return self.actor(self.memory(x.unsqueeze(0), self.hidden_state)[0].squeeze(0))


class SquashesInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y.tanh_()
        return y


class Fades(SquashesInPlace):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.mul_(0.5)
        return self.layer(x) + self.seen


def save(module: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module.eval()), file)
    return file.getvalue()


def read(data: bytes, observations: spaces.Box = BOX, actions: int = 2, low: float = -1) -> PolicyNet:
    chain = read_chain(follow_script(read_script(data, "policy.pt"), observations.shape))
    return adopt_chain(chain, observations, spaces.Box(low, -low, (actions,)), None, "policy.pt")


@pytest.mark.parametrize("activation", [one for one in Activation if one is not Activation.NONE])
def test_chains_are_what_torch_computes(activation: Activation) -> None:
    module = Chain(activation)
    policy = read(save(module))
    x = torch.randn(1000, 5) * 3
    assert policy.head.kind is HeadKind.TANH
    assert policy.transform.normalization is not None
    with torch.no_grad():
        assert np.abs(policy.act(x.numpy()) - module(x).numpy()).max() < 1e-5


@pytest.mark.parametrize("kind, make", [(CellKind.LSTM, WithLstm), (CellKind.GRU, WithGru)])
@pytest.mark.parametrize("layers", [1, 2])
def test_states_are_carried_from_step_to_step(kind: CellKind, make: Any, layers: int) -> None:
    module = make(layers)
    policy = read(save(module), low=-100)
    assert [cell.kind for cell in policy.net.cells] == [kind] * layers
    state = policy.initial_state(1)
    for row in torch.randn(200, 1, 5) * 2:
        with torch.no_grad():
            expected = module(row).numpy()
        found, state = policy.act(row.numpy(), state)
        assert np.abs(found - expected).max() < 1e-5


@pytest.mark.parametrize(
    "module, message",
    [
        (Loops(), "has a For statement|calls range"),
        (Forks(), "several branches"),
        (Decides(), "torch.sum"),
        (WithLstm(keep=False), "new state is not kept"),
        (Overwrites(), "torch.sum"),
        (SquashesInPlace(), "reads y again, which an operator has overwritten in place"),
        (Fades(), "overwrites something else than a recurrent module's state"),
        (nn.Sequential(nn.Linear(5, 2), nn.Softplus(threshold=1)), "softplus with arguments"),
        (nn.Sequential(nn.Linear(5, 2), nn.Hardtanh(0.0, 50.0), nn.Linear(2, 2)), "begins no function"),
        (nn.Sequential(nn.Linear(5, 2), nn.Softmax(dim=1)), "softmax"),
        (nn.Sequential(nn.Linear(4, 2)), "weights for 4 inputs behind 5"),
        (nn.Sequential(nn.Linear(5, 2), nn.ELU(0.5), nn.Linear(2, 2)), "begins no function"),
    ],
)
def test_what_is_no_chain_is_refused_in_a_line_that_names_it(module: nn.Module, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        read(save(module))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "ending, change, message",
    [
        (
            ".py",
            lambda code: code.replace(b"torch.linear", b"__import__('os').system"),
            "has no portable form|not known",
        ),
        (".py", lambda code: b"(" * 5000 + code, "nested more deeply"),
        (".py", lambda code: b"\xff\xfe" + code, "no code of TorchScript"),
        (".py", lambda code: code.replace(b"def forward", b"def backward"), "no code of"),
        (
            "data.pkl",
            lambda data: data.replace(b"torch._utils\n_rebuild_tensor_v2", b"os\nsystem"),
            "would load 'os.system'",
        ),
        ("data.pkl", lambda data: data[:-20], "damaged"),
        ("byteorder", lambda _: b"big", "other byte order"),
        ("data/0", lambda data: data[:4], "damaged"),
    ],
)
def test_files_of_strangers_run_nothing_and_raise_one_line(ending: str, change: Any, message: str) -> None:
    data = exchange_member(save(Chain(Activation.ELU)), ending, change)
    with pytest.raises(PolicyError, match=message) as caught:
        read(data)
    assert "\n" not in str(caught.value)


def test_other_files_are_not_taken_for_programs(tmp_path: Path) -> None:
    torch.save(Chain(Activation.ELU).state_dict(), tmp_path / "weights.pt")
    assert not is_script((tmp_path / "weights.pt").read_bytes())
    assert not is_script(b"PK\x03\x04 nothing")
    assert is_script(save(Chain(Activation.ELU)))
    with pytest.raises(PolicyError, match="no TorchScript"):
        read_script((tmp_path / "weights.pt").read_bytes(), "weights.pt")


MADE: dict[str, Any] = {"lstm": WithLstm, "chain": lambda: Chain(Activation.SILU)}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("ending", ["data.pkl", ".py"])
def test_mutated_files_are_read_or_refused_in_one_line(name: str, ending: str) -> None:
    """Of the members alone: what is changed in the zip around them is refused by its checksums."""
    rng, data = np.random.default_rng(0), save(MADE[name]())

    def mutate(content: bytes) -> bytes:
        mutated = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            place, kind = int(rng.integers(len(mutated))), rng.integers(3)
            if kind == 0:
                mutated[place] = int(rng.integers(256))
            elif kind == 1:
                del mutated[place : place + int(rng.integers(1, 20))]
            else:
                other = int(rng.integers(len(mutated)))
                mutated[place:place] = mutated[other : other + int(rng.integers(1, 40))]
        return bytes(mutated)

    for _ in range(choose(50, 5_000)):
        try:
            read(exchange_member(data, ending, mutate))
        except PolicyError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_recursion_ends() -> None:
    def loop(code: bytes) -> bytes:
        return code.replace(b"    mean = self.mean\n", b"    mean = (self).forward(x, )\n")

    with pytest.raises(PolicyError, match="calls within calls"):
        read(exchange_member(save(Chain(Activation.ELU)), ".py", loop))


@pytest.mark.skipif(not G1.exists(), reason="../shared/robots is not there")
def test_a_walking_robots_file_is_what_torch_runs() -> None:
    """Outputs of random observations reach 14, where float32 itself is no closer: 1e-5 of the largest."""
    policy = read(G1.read_bytes(), spaces.Box(-np.inf, np.inf, (47,)), 12, -1000)
    assert [layer.weight.shape for layer in policy.net.layers] == [(256, 47), (256, 64), (32, 64), (12, 32)]
    module = torch.jit.load(str(G1)).eval()  # a file that is known
    state, rng, gap, size = policy.initial_state(1), np.random.default_rng(0), 0.0, 1.0
    for _ in range(1000):
        x = rng.standard_normal((1, 47)).astype(np.float32)
        with torch.no_grad():
            expected = module(torch.from_numpy(x)).numpy()
        found, state = policy.act(x, state)
        gap, size = max(gap, float(np.abs(found - expected).max())), max(size, float(np.abs(expected).max()))
    assert gap < 1e-5 * size
