"""One module per command of `quarl`."""
