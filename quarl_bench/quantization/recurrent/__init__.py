"""LSTMs and GRUs: their formulas in floats, and on integers."""
