"""Atari as stable-baselines3 presents it: one emulator driven directly, its screens, and the bands that changed."""
