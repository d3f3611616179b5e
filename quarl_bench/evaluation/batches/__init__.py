"""Batches of episodes: of environments, of Atari games, of walks; their masks, and games that meet."""
