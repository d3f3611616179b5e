"""Checkpoints of other libraries, in their layouts: the same outputs as the modules that the libraries build."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.policies.policy import PolicyNet

OBSERVATIONS = torch.randn(10_000, 3, generator=torch.Generator().manual_seed(0)) * 3


class Task(gymnasium.Env[Any, Any]):
    """Three numbers in, two out."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gymnasium.spaces.Box(-100, 100, (2,))
    max_episode_steps = 5


def make_actor() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 16), nn.ELU(), nn.Linear(16, 8), nn.ELU(), nn.Linear(8, 2))


def name(prefix: str, module: nn.Module) -> dict[str, torch.Tensor]:
    return {f"{prefix}.{key}": value for key, value in module.state_dict().items()}


MEAN, SD = torch.tensor([[0.3, -1.0, 2.0]]), torch.tensor([[0.5, 2.0, 1.0]])
EMPIRICAL = {"_mean": MEAN, "_var": SD**2, "_std": SD, "count": torch.tensor(9)}
OPTIMIZER = torch.optim.Adam(make_actor().parameters()).state_dict()


def rsl_rl_2() -> dict[str, Any]:
    model = name("actor", make_actor()) | name("critic", make_actor()) | {"std": torch.ones(2)}
    return {"model_state_dict": model, "optimizer_state_dict": OPTIMIZER, "iter": 7, "infos": None}


def rsl_rl_2_normalized() -> dict[str, Any]:
    return rsl_rl_2() | {"obs_norm_state_dict": EMPIRICAL, "privileged_obs_norm_state_dict": EMPIRICAL}


def rsl_rl_5() -> dict[str, Any]:
    actor = name("mlp", make_actor()) | {f"obs_normalizer.{key}": value for key, value in EMPIRICAL.items()}
    actor["distribution.std_param"] = torch.ones(2)
    return {"actor_state_dict": actor, "critic_state_dict": name("mlp", make_actor()), "iter": 7}


def rl_games() -> dict[str, Any]:
    actor = make_actor()
    model = {f"a2c_network.actor_mlp.{key}": value for key, value in actor[:4].state_dict().items()}
    model |= {f"a2c_network.mu.{key}": value for key, value in actor[4].state_dict().items()}
    model |= {"a2c_network.sigma": torch.zeros(2), "value_mean_std.running_mean": torch.zeros(1).double()}
    model |= {"running_mean_std.running_mean": MEAN[0].double(), "running_mean_std.running_var": (SD[0] ** 2).double()}
    return {"model": model, "epoch": 3, "optimizer": OPTIMIZER}


def skrl() -> dict[str, Any]:
    actor = make_actor()
    policy = {f"net_container.{key}": value for key, value in actor[:4].state_dict().items()}
    policy |= {f"policy_layer.{key}": value for key, value in actor[4].state_dict().items()}
    policy["log_std_parameter"] = torch.zeros(2)
    scaler = {
        "running_mean": MEAN[0].double(),
        "running_variance": (SD[0] ** 2).double(),
        "current_count": torch.tensor(1.0),
    }
    return {"policy": policy, "value": policy, "state_preprocessor": scaler, "optimizer": OPTIMIZER}


X = OBSERVATIONS
WRITTEN_OUT = {  # what each library computes in front of its network
    rsl_rl_2: lambda x: x,
    rsl_rl_2_normalized: lambda x: (x - MEAN) / (SD + 1e-2),
    rsl_rl_5: lambda x: (x - MEAN) / (SD + 1e-2),
    rl_games: lambda x: ((x - MEAN) / torch.sqrt(SD**2 + 1e-5)).clamp(-5, 5),
    skrl: lambda x: ((x - MEAN) / (SD + 1e-8)).clamp(-5, 5),
}


def read(state: dict[str, Any], folder: Path, arch: str = "elu", **options: Any) -> PolicyNet:
    torch.save(state, folder / "model.pt")
    return open_task(PolicySource(folder / "model.pt", Task, arch=arch, **options))[0].policy


@pytest.mark.parametrize("make", WRITTEN_OUT)
def test_outputs_are_the_library_s(make: Any, tmp_path: Path) -> None:
    policy = read(make(), tmp_path)
    with torch.inference_mode():
        expected = make_actor()(WRITTEN_OUT[make](X)).numpy()
    np.testing.assert_allclose(policy.act(X.numpy()), expected, atol=1e-5)


def test_nothing_of_a_checkpoint_is_executed(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "touched",))

    with pytest.raises(
        PolicyError, match="which is no data of a policy; it is refused, and nothing of it was executed"
    ):
        read(rsl_rl_2() | {"infos": Evil()}, tmp_path)
    assert not (tmp_path / "touched").exists()


@pytest.mark.filterwarnings("ignore:.torch.jit.* is (deprecated|not supported)")
def test_a_program_is_not_run(tmp_path: Path) -> None:
    torch.jit.trace(make_actor(), torch.zeros(1, 3)).save(str(tmp_path / "model.pt"))
    with pytest.raises(PolicyError, match=r"which is a program and is not run; save it by torch.export"):
        open_task(PolicySource(tmp_path / "model.pt", Task, arch="elu"))


def test_what_is_no_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"no checkpoint of rsl_rl, rl_games or skrl; .* as --arch fc1,elu,fc2"):
        read(dict(make_actor().state_dict()), tmp_path)
    without = rl_games()
    without["model"] = {key: value for key, value in without["model"].items() if ".mu." not in key}
    with pytest.raises(PolicyError, match=r"no layer 'a2c_network.mu'"):
        read(without, tmp_path)


def test_statistics_are_the_file_s_own(tmp_path: Path) -> None:
    policy = read(rsl_rl_5(), tmp_path, normalization="none")
    assert policy.transform.normalization is None
    torch.save(rsl_rl_5(), tmp_path / "model.pt")
    other = policy.transform.normalization or read(rsl_rl_2_normalized(), tmp_path).transform.normalization
    with pytest.raises(SpecError, match="holds statistics of its own"):
        read(rsl_rl_5(), tmp_path, normalization=other)


def test_the_activation_is_asked_for(tmp_path: Path) -> None:
    torch.save(rsl_rl_2(), tmp_path / "model.pt")
    with pytest.raises(PolicyError, match="rsl_rl, rl_games or skrl its activation, as --arch elu"):
        open_task(PolicySource(tmp_path / "model.pt", Task))


def make_memory(kind: str, inputs: int, units: int, layers: int = 1) -> Any:
    torch.manual_seed(5)
    return {"lstm": nn.LSTM, "gru": nn.GRU}[kind](inputs, units, layers)


def make_layers(*widths: int) -> nn.Sequential:
    torch.manual_seed(7)
    parts = [part for pair in itertools.pairwise(widths) for part in (nn.Linear(*pair), nn.ELU())]
    return nn.Sequential(*parts[:-1])


def recurrent_rsl_rl_2(kind: str, layers: int) -> tuple[dict[str, Any], list[nn.Module]]:
    modules = [make_memory(kind, 3, 6, layers), make_layers(6, 16, 8, 2)]
    model = name("memory_a.rnn", modules[0]) | name("memory_c.rnn", make_memory(kind, 3, 6)) | name("actor", modules[1])
    return {
        "model_state_dict": model | name("critic", make_layers(6, 16, 1)),
        "obs_norm_state_dict": EMPIRICAL,
    }, modules


def recurrent_rsl_rl_5(kind: str, layers: int) -> tuple[dict[str, Any], list[nn.Module]]:
    modules = [make_memory(kind, 3, 6, layers), make_layers(6, 16, 8, 2)]
    actor = {f"obs_normalizer.{key}": value for key, value in EMPIRICAL.items()} | name("mlp", modules[1])
    return {"actor_state_dict": actor | name("rnn.rnn", modules[0])}, modules


def recurrent_rl_games(
    front: bool, separate: bool, kind: str, layers: int, units: int = 6
) -> tuple[dict[str, Any], list[nn.Module]]:
    sequence = make_layers(units if front else 3, 16, 8, 8)
    memory, mean = make_memory(kind, 3 if front else 8, units, layers), make_layers(8 if front else units, 2)
    called = "a2c_network.a_rnn.rnn" if separate else "a2c_network.rnn.rnn"
    model = name("a2c_network.actor_mlp", sequence) | name(called, memory) | name("a2c_network.mu", mean[0])
    model |= name("a2c_network.c_rnn.rnn", make_memory(kind, 8, 5)) if separate else {}
    model |= {"running_mean_std.running_mean": MEAN[0].double(), "running_mean_std.running_var": (SD[0] ** 2).double()}
    parts = [memory, sequence, nn.ELU(), mean] if front else [sequence, nn.ELU(), memory, mean]
    return {"model": model}, parts


LAYOUTS = {
    "rsl_rl 2": (recurrent_rsl_rl_2, lambda x: (x - MEAN) / (SD + 1e-2)),
    "rsl_rl 5": (recurrent_rsl_rl_5, lambda x: (x - MEAN) / (SD + 1e-2)),
    **{
        f"rl_games {front} {separate}": (
            partial(recurrent_rl_games, front, separate),
            lambda x: ((x - MEAN) / torch.sqrt(SD**2 + 1e-5)).clamp(-5, 5),
        )
        for front in (True, False)
        for separate in (True, False)
    },
}


def check_equal(policy: PolicyNet, modules: list[nn.Module], normalize: Any) -> None:
    """Twenty episodes side by side, of which some begin anew at every step."""
    x, ends = OBSERVATIONS[:2000].reshape(100, 20, 3), np.random.default_rng(1).random((100, 20)) < 0.1
    state, kept = policy.initial_state(20), None
    for seen, ended in zip(x, ends, strict=True):
        actions, state = policy.act(seen.numpy(), state)
        expected = normalize(seen)
        with torch.no_grad():
            for module in modules:
                if isinstance(module, nn.LSTM | nn.GRU):
                    expected, kept = module(expected[None], kept)
                    expected = expected[0]
                else:
                    expected = module(expected)
        np.testing.assert_allclose(actions, expected.numpy(), rtol=0, atol=1e-5)
        for part in state:
            part[ended] = 0
        for part in kept if isinstance(kept, tuple) else (kept,):
            part[:, torch.from_numpy(ended)] = 0


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_memory_is_torch_s(layout: str, kind: str, layers: int, tmp_path: Path) -> None:
    make, normalize = LAYOUTS[layout]
    state, modules = make(kind, layers)
    policy = read(state, tmp_path)
    assert len(policy.net.cells) == layers
    check_equal(policy, modules, normalize)


def change_model(state: dict[str, Any], drop: str = "", **added: torch.Tensor) -> dict[str, Any]:
    key = next(iter(state))
    kept = {name: value for name, value in state[key].items() if name != drop}
    return state | {key: kept | {name.replace("__", "."): value for name, value in added.items()}}


LSTM_2 = recurrent_rsl_rl_2("lstm", 1)[0]
RL_GAMES = recurrent_rl_games(True, False, "gru", 1)[0]
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "both ways": (
        change_model(LSTM_2, memory_a__rnn__weight_ih_l0_reverse=torch.ones(24, 3)), "no LSTM or GRU of one direction"
    ),
    "projected": (change_model(LSTM_2, memory_a__rnn__weight_hr_l0=torch.ones(4, 6)), "has weight_hr_l0"),
    "half": (change_model(LSTM_2, "memory_a.rnn.weight_hh_l0"), "memory_a.rnn lacks weights of an LSTM or GRU"),
    "gap": (change_model(LSTM_2, memory_a__rnn__weight_ih_l2=torch.ones(24, 6)), "lacks weights"),
    "scalar": (change_model(LSTM_2, memory_a__rnn__weight_ih_l0=torch.tensor(1.0)), "other than two axes"),
    "plain": (change_model(LSTM_2, memory_a__rnn__weight_ih_l0=torch.ones(6, 3)), "neither those of an LSTM nor"),
    "strange": (
        change_model(LSTM_2, lstm__weight_hh_l0=torch.ones(24, 6)), "lstm is recurrent, and rsl_rl 2 is not known"
    ),
    "twice": (
        change_model(RL_GAMES, **{f"a2c_network__a_rnn__rnn__weight_{p}_l0": torch.ones(18, 6) for p in ("ih", "hh")}),
        "two recurrent modules",
    ),
    "norm": (
        change_model(RL_GAMES, a2c_network__layer_norm__weight=torch.ones(6)), "a LayerNorm behind its LSTM or GRU"
    ),
    "concatenated": (change_model(RL_GAMES, a2c_network__mu__weight=torch.ones(2, 9)), "fits neither in front"),
    "a bias alone": (
        change_model(rsl_rl_2(), memory_a__rnn__bias_ih_l0=torch.ones(24)), "memory_a.rnn lacks weights"
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", WRONG)
def test_other_memories_are_refused_in_one_line(reason: str, tmp_path: Path) -> None:
    state, said = WRONG[reason]
    with pytest.raises(PolicyError, match=said) as caught:
        read(state, tmp_path)
    assert "\n" not in str(caught.value)


def test_sizes_that_fit_two_places_are_not_guessed(tmp_path: Path) -> None:
    memory, square = make_memory("lstm", 3, 3), nn.Linear(3, 3)
    model = name("a2c_network.actor_mlp.0", square) | name("a2c_network.rnn.rnn", memory)
    model |= name("a2c_network.mu", nn.Linear(3, 2))
    with pytest.raises(PolicyError, match="fits in front of its layers and behind them alike; export the policy"):
        read({"model": model}, tmp_path)
