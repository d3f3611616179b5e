"""Everybody's files and models, read into a PolicyNet: stable-baselines3, its zoo, the hub, torch modules."""
