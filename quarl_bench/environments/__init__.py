"""Where policies play: the list of environments (environments.toml), Atari, classic control in batches, wrappers."""
