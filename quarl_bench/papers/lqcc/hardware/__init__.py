"""Table 3: architectures, what they take by FINN's formulas and in our designs, and the verdicts."""
