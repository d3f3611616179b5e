"""Ray: the engine, and grids of trainings and measurements on it."""
