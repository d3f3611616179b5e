"""Products of inputs and weights: exact sums of integers, and large weights that are packed once."""
