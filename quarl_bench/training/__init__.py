"""Training: one policy by its recipe with stable-baselines3, or many seeds of one in a process."""
