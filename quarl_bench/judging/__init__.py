"""How a sentence is held against measurements: intervals, the rules of claims, verdicts. Knows no paper."""
