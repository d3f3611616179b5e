"""Returns by task and configuration, of the authors' runs and of our own."""
