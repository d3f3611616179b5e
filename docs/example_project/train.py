"""Train a policy for the rover, and see while it trains what 8 and 4 bits keep of its return."""

from stable_baselines3 import PPO

from quarl_bench import QuantizationCallback
from rover import Dock

model = PPO("MlpPolicy", Dock(), n_steps=512, device="cpu", seed=0)  # tensorboard_log="runs" draws it
watch = QuantizationCallback(["int8", "int4"], every=1024, episodes=5)
model.learn(2048, callback=watch)
for look in watch.history:
    print(f"{look['timesteps']:.0f} steps: int8 keeps {look['int8_keeps']:.0%}, int4 {look['int4_keeps']:.0%}")
