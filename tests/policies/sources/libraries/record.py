"""Files that other libraries saved, with their own deterministic outputs beside them: data of test_libraries.py.

Run it once in an environment of each library, as `python record.py LIBRARY`; it does not need this package. It trains
for a moment on a made-up task of 3 inputs, saves with the library's own function, and plays what it saved on 10,000
observations that a seed gives; a policy with a memory sees them as 100 steps of 100 worlds, in each of which an episode
ends every 25 steps. Nothing that a library saves is left out. Each environment has Python 3.11, torch 2.13.0, gymnasium
1.4.0, NumPy 1.26.4 (SBX: 2.4.6) and:

    rsl_rl_5    rsl-rl-lib==5.5.1, tensorboard; rsl_rl_5_lstm: with onnx==1.22.0, onnxscript==0.7.2
    rsl_rl_2    (and rsl_rl_2_gru) rsl-rl-lib==2.3.3, tensorboard; torchvision is imported by name alone, and may be an
                empty module
    rl_games    (and rl_games_lstm, rl_games_gru) rl-games==1.6.5, tensorboardX
    skrl        skrl==2.1.1, tensorboard
    cleanrl     cleanrl==0.4.8, installed with --no-deps: its file is parsed, and its class Agent alone runs
    sbx         sbx-rl==0.28.0, jax==0.10.2, flax==0.12.8, optax==0.2.8; with JAX_PLATFORMS=cpu

SBX's pickles name the folder of its environment; in the stored zips that stands as a made-up one of the same length.
"""

import ast
import importlib.util
import lzma
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import torch

DATA = Path(__file__).parent / "data"
WIDTHS = [16, 8]
COUNT, WORLDS = 10_000, 16
STEPS, LENGTH = 100, 25  # of a policy with a memory: steps that are played, and those of an episode


def draw_observations():
    """(10,000, 3) float32, of which some lie far outside of what normalizers have seen."""
    return (np.random.default_rng(0).standard_normal((COUNT, 3)) * 3).astype(np.float32)


def play(observations, act, forget):
    """Actions (10,000, ...), of a policy with a memory step after step; `forget` is told which worlds begin anew."""
    actions = []
    for step, seen in enumerate(observations.reshape(STEPS, COUNT // STEPS, 3)):
        actions.append(act(torch.from_numpy(seen)).numpy().copy())
        forget(torch.from_numpy((step + np.arange(len(seen))) % LENGTH == LENGTH - 1))
    return np.concatenate(actions)


class Task(gymnasium.Env):
    """A point that random pushes move, seen in 3 numbers of other sizes each; the reward wants the actions 0.3."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, *, discrete=False):
        actions = gymnasium.spaces.Box(-2.0, 3.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2) if discrete else actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        reward = -float(np.mean((np.asarray(action) - 0.3) ** 2))
        return self.observe(), reward, False, self.time >= 20, {}

    def observe(self):
        noise = self.np_random.standard_normal(3)
        return (noise * [0.5, 2.0, 1.0] + [0.3, -1.0, 2.0]).astype(np.float32)


class Worlds:
    """Sixteen such tasks as tensors, as rsl_rl and rl_games step them."""

    num_envs, num_actions, num_obs, num_privileged_obs = WORLDS, 2, 3, None
    max_episode_length, device, cfg = 20, "cpu", {}

    def __init__(self, pack=lambda observations: observations):
        self.pack, self.generator = pack, torch.Generator().manual_seed(1)
        self.episode_length_buf = torch.zeros(WORLDS, dtype=torch.long)
        self.unwrapped = SimpleNamespace(step_dt=0.02)

    def observe(self):
        noise = torch.randn(WORLDS, 3, generator=self.generator)
        return noise * torch.tensor([0.5, 2.0, 1.0]) + torch.tensor([0.3, -1.0, 2.0])

    def reset(self):
        return self.get_observations()

    def get_observations(self):
        return self.pack(self.observe())

    def move(self, actions):
        """Rewards and ends (16,)."""
        self.episode_length_buf += 1
        dones = self.episode_length_buf >= self.max_episode_length
        self.episode_length_buf[dones] = 0
        return -((actions - 0.3) ** 2).mean(1), dones


def record_rsl_rl_5(folder, **memory):
    import onnx
    from rsl_rl.runners import OnPolicyRunner
    from tensordict import TensorDict

    class World(Worlds):
        def step(self, actions):
            rewards, dones = self.move(actions)
            return self.get_observations(), rewards, dones.long(), {"time_outs": dones}

    def pack(observations):
        return TensorDict({"policy": observations}, batch_size=[len(observations)])

    shape = {"hidden_dims": WIDTHS, "activation": "elu", "obs_normalization": True}
    model = {"class_name": "RNNModel" if memory else "MLPModel", **shape, **memory}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    settings = {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**model, "distribution_cfg": gaussian},
        "critic": dict(model),
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 2, "num_mini_batches": 2, "learning_rate": 1e-2},
    }
    runner = OnPolicyRunner(World(pack), settings, log_dir=None, device="cpu")
    runner.learn(8)
    runner.save(str(folder / "model.pt"))
    policy = runner.get_inference_policy("cpu")
    if not memory:
        yield "model.pt", lambda observations: policy(pack(torch.from_numpy(observations))).numpy()
        return

    def act(observations):
        policy.reset()
        return play(observations, lambda seen: policy(pack(seen)), policy.reset)

    yield "model.pt", act
    runner.export_policy_to_onnx(str(folder), "policy.onnx")
    onnx.save(onnx.load(folder / "policy.onnx"), folder / "policy.onnx")  # one file instead of two
    yield "policy.onnx", act


def record_rsl_rl_5_lstm(folder):
    yield from record_rsl_rl_5(folder, rnn_type="lstm", rnn_hidden_dim=8, rnn_num_layers=1)


def record_rsl_rl_2(folder, **memory):
    sys.modules.setdefault("torchvision", SimpleNamespace(__version__="0", transforms=None))
    from rsl_rl.runners import OnPolicyRunner

    class World(Worlds):
        def step(self, actions):
            rewards, dones = self.move(actions)
            observations, extras = self.get_observations()
            return observations, rewards, dones.long(), extras | {"time_outs": dones}

    settings = {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "empirical_normalization": True,
        "policy": {
            "class_name": "ActorCriticRecurrent" if memory else "ActorCritic",
            "actor_hidden_dims": WIDTHS,
            "critic_hidden_dims": WIDTHS,
            "activation": "elu",
            "init_noise_std": 1.0,
            **memory,
        },
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 2, "num_mini_batches": 2, "learning_rate": 1e-2},
    }
    world = World(lambda observations: (observations, {"observations": {}}))
    runner = OnPolicyRunner(world, settings, log_dir=str(folder), device="cpu")
    runner.learn(8)
    runner.save(str(folder / "model.pt"))
    policy, network = runner.get_inference_policy("cpu"), runner.alg.policy
    if not memory:
        yield "model.pt", lambda observations: policy(torch.from_numpy(observations)).numpy()
        return

    def act(observations):
        network.reset()
        return play(observations, policy, network.reset)

    yield "model.pt", act


def record_rsl_rl_2_gru(folder):
    yield from record_rsl_rl_2(folder, rnn_type="gru", rnn_hidden_dim=12, rnn_num_layers=2)


def record_rl_games(folder, **memory):
    from rl_games.common import env_configurations, vecenv
    from rl_games.torch_runner import Runner

    spaces = {"observation_space": Task.observation_space, "action_space": gymnasium.spaces.Box(-1.0, 1.0, (2,))}

    class World(Worlds, vecenv.IVecEnv):
        def step(self, actions):
            rewards, dones = self.move(actions)
            return self.observe(), rewards, dones.long(), {"time_outs": dones}

        def get_env_info(self):
            return spaces

    def make(*_names, **_options):
        return World()

    vecenv.register("WORLD", make)
    env_configurations.register("world", {"vecenv_type": "WORLD", "env_creator": make})
    network = {
        "name": "actor_critic",
        "separate": memory.pop("separate", False),
        "space": {
            "continuous": {
                "mu_activation": "None",
                "sigma_activation": "None",
                "mu_init": {"name": "default"},
                "sigma_init": {"name": "const_initializer", "val": 0},
                "fixed_sigma": True,
            }
        },
        "mlp": {"units": WIDTHS, "activation": "elu", "initializer": {"name": "default"}},
    } | memory
    settings = {
        "name": "world", "env_name": "world", "env_config": {}, "num_actors": WORLDS, "device": "cpu",
        "device_name": "cpu",
        "train_dir": str(folder / "runs"), "ppo": True, "normalize_input": True, "normalize_value": True,
        "normalize_advantage": True, "reward_shaper": {"scale_value": 1.0}, "gamma": 0.99, "tau": 0.95,
        "learning_rate": 1e-2, "lr_schedule": None, "score_to_win": 1e9, "max_epochs": 8, "save_best_after": 1,
        "save_frequency": 4, "grad_norm": 1.0, "entropy_coef": 0.0, "truncate_grads": True, "e_clip": 0.2,
        "clip_value": True, "horizon_length": 8, "minibatch_size": 64, "mini_epochs": 2, "critic_coef": 2,
        "bounds_loss_coef": 0.0, "clip_actions": False, "seq_length": 4,
        "player": {"use_vecenv": True, "deterministic": True},
    }  # fmt: skip
    algorithm, model = {"name": "a2c_continuous"}, {"name": "continuous_a2c_logstd"}
    params = {"seed": 1, "algo": algorithm, "model": model, "network": network, "config": settings}
    runner = Runner()
    runner.load({"params": params})
    agent = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
    agent.train()
    agent.save(str(folder / "model"))
    player = runner.create_player()
    player.restore(str(folder / "model.pth"))
    player.has_batch_dimension = True
    if not memory:
        yield "model.pth", lambda observations: player.get_action(torch.from_numpy(observations), True).numpy()
        return

    def forget(ended):
        for part in player.states:
            part[:, ended] = 0.0

    def act(observations):
        player.batch_size = COUNT // STEPS
        player.init_rnn()
        return play(observations, lambda seen: player.get_action(seen, True), forget)

    yield "model.pth", act


def record_rl_games_lstm(folder):
    memory = {"name": "lstm", "units": 10, "layers": 1, "before_mlp": True}
    yield from record_rl_games(folder, rnn=memory)


def record_rl_games_gru(folder):
    yield from record_rl_games(folder, separate=True, rnn={"name": "gru", "units": 10, "layers": 1})


def record_skrl(folder):
    from skrl.agents.torch.ppo import PPO
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.resources.preprocessors.torch import RunningStandardScaler
    from skrl.trainers.torch import SequentialTrainer
    from skrl.utils import set_seed
    from skrl.utils.model_instantiators.torch import deterministic_model, gaussian_model

    set_seed(1)
    world = wrap_env(Task(), wrapper="gymnasium")
    network = [{"name": "net", "input": "OBSERVATIONS", "layers": WIDTHS, "activations": "elu"}]
    ends = {"observation_space": world.observation_space, "action_space": world.action_space, "device": world.device}
    models = {
        "policy": gaussian_model(**ends, network=network, output="ACTIONS"),
        "value": deterministic_model(**ends, network=network, output="ONE"),
    }
    scaler = {"size": world.observation_space, "device": world.device}
    settings = {
        "rollouts": 32,
        "learning_epochs": 2,
        "learning_rate": 1e-2,
        "observation_preprocessor": RunningStandardScaler,
        "observation_preprocessor_kwargs": scaler,
        "value_preprocessor": RunningStandardScaler,
        "value_preprocessor_kwargs": {"size": 1, "device": world.device},
        "experiment": {"directory": str(folder / "runs"), "write_interval": 0, "checkpoint_interval": 0},
    }
    memory = RandomMemory(memory_size=32, num_envs=1, device=world.device)
    agent = PPO(models=models, memory=memory, cfg=settings, **ends)
    SequentialTrainer(cfg={"timesteps": 320, "headless": True}, env=world, agents=agent).train()
    agent.save(str(folder / "agent.pt"))

    def act(observations):
        with torch.inference_mode():
            _, outputs = agent.act(torch.from_numpy(observations), None, timestep=0, timesteps=0)
        return outputs["mean_actions"].numpy()

    yield "agent.pt", act


def record_cleanrl(folder):
    package = importlib.util.find_spec("cleanrl").submodule_search_locations[0]
    program = ast.parse((Path(package) / "ppo_continuous_action.py").read_text())
    wanted = [part for part in program.body if getattr(part, "name", None) in ("Agent", "layer_init")]
    scope = {"torch": torch, "nn": torch.nn, "np": np, "Normal": torch.distributions.Normal}
    exec(compile(ast.Module(wanted, []), "ppo_continuous_action.py", "exec"), scope)
    task = Task()
    agent = scope["Agent"](task)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    observations = torch.from_numpy(draw_observations())
    for _ in range(20):
        _, chances, _ = agent.get_action(observations[:256], torch.full((256, 2), 0.3))
        optimizer.zero_grad()
        (-chances.mean()).backward()
        optimizer.step()
    torch.save(agent.state_dict(), folder / "agent.pth")
    yield "agent.pth", lambda observations: agent.actor_mean(torch.from_numpy(observations)).detach().numpy()


def record_sbx(folder):
    import flax.linen
    import sbx

    off = {"learning_starts": 20, "buffer_size": 200, "batch_size": 32}
    on = {"n_steps": 32, "batch_size": 32}
    for name, discrete, options, kwargs in (
        ("PPO", False, on, {}),
        ("PPO", True, on, {"activation_fn": flax.linen.elu}),
        ("SAC", False, off, {}),
        ("TD3", False, off, {"activation_fn": flax.linen.tanh}),
        ("DDPG", False, off, {}),
        ("TQC", False, off, {}),
        ("CrossQ", False, off, {}),
        ("DQN", True, off, {"activation_fn": flax.linen.silu}),
    ):
        shape = {"net_arch": WIDTHS, **kwargs}
        task = Task(discrete=discrete)
        model = getattr(sbx, name)("MlpPolicy", task, policy_kwargs=shape, learning_rate=3e-3, seed=1, **options)
        model.learn(96)
        file = f"{name.lower()}{'_discrete' if discrete and name == 'PPO' else ''}.zip"
        model.save(folder / file)

        def act(observations, model=model):
            return model.predict(observations, deterministic=True)[0]

        yield file, act


def main(library):
    """Record what this library saves; a .zip of SBX is packed, as it holds the text of functions many times."""
    torch.manual_seed(1)
    target = DATA / library
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for name, act in globals()[f"record_{library}"](Path(place)):
            content = (Path(place) / name).read_bytes()
            with torch.no_grad():
                actions = np.asarray(act(draw_observations()))
            packed = name.endswith(".zip")
            saved = target / (f"{name}.xz" if packed else name)
            saved.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME) if packed else content)
            outputs = actions.astype(np.uint8 if actions.dtype.kind == "i" else np.float32)
            np.save(target / f"{Path(name).stem}.npy", outputs)


if __name__ == "__main__":
    main(sys.argv[1])
