"""Environments, training, evaluation. Recipes and environments are TOML data beside the modules that read them."""
