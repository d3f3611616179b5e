"""Small trainings on images, and times of training steps as a test wants them."""

from typing import Any

from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from quarl_bench.training.sb3.step_times import StepTimes

NOISE = (0.99, 1.0, 1.01, 1.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "a2c": {"n_steps": 4},
    "ppo": {"n_steps": 8, "batch_size": 8, "n_epochs": 1},
    "dqn": {"buffer_size": 64, "learning_starts": 8, "batch_size": 8, "train_freq": 4, "target_update_interval": 16},
}


def make_images() -> VecEnv:
    sizes = {"screen_height": 84, "screen_width": 84, "n_channels": 4}
    return DummyVecEnv([lambda: FakeImageEnv(**sizes, discrete=True, channel_first=True)])


def make_step_times(gains, *, stock=2.0, others=0.0, scatter=NOISE):
    """Steps of bf16 take 10 ms; `gains` over the good fp32, which is `stock` times as fast as the stock one."""
    steps = {}
    for size, gain in zip("abc", gains, strict=True):
        steps[f"{size}-bf16"] = [0.01] * len(scatter)
        steps[f"{size}-lean"] = [0.01 * gain * factor for factor in scatter]
        steps[f"{size}-fp32"] = [0.01 * gain * stock * factor for factor in scatter]
    kernels = {
        f"{n}-{kernel}": [s]
        for n in (64, 256, 1024)
        for kernel, s in (("stock", 4e-3), ("onednn", 3e-3), ("bf16", 2e-3))
    }
    return StepTimes("cpu", "a machine", 2, {"torch": "2"}, 8, steps, {}, kernels, others)
