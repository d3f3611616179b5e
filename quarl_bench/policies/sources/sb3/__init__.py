"""Models and zips of stable-baselines3, with what its zoo puts beside them."""
