"""What calibration measures: ranges of activations, and how they are watched."""
