"""Training with stable-baselines3: models, the run with its checkpoints, vectorised environments, mixed precision."""
