"""Small trainings on images."""

from typing import Any

from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

SETTINGS: dict[str, dict[str, Any]] = {
    "a2c": {"n_steps": 4},
    "ppo": {"n_steps": 8, "batch_size": 8, "n_epochs": 1},
    "dqn": {"buffer_size": 64, "learning_starts": 8, "batch_size": 8, "train_freq": 4, "target_update_interval": 16},
}


def make_images() -> VecEnv:
    sizes = {"screen_height": 84, "screen_width": 84, "n_channels": 4}
    return DummyVecEnv([lambda: FakeImageEnv(**sizes, discrete=True, channel_first=True)])
