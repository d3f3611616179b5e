"""Checkpoints of other libraries, in their layouts: the same outputs as the modules that the libraries build."""

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


@pytest.mark.filterwarnings("ignore:.torch.jit.* is deprecated:DeprecationWarning")
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
    recurrent = rsl_rl_2()
    recurrent["model_state_dict"]["memory_a.rnn.weight_ih_l0"] = torch.ones(4, 3)
    with pytest.raises(PolicyError, match="a recurrent policy"):
        read(recurrent, tmp_path)


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
