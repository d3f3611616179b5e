"""How a design is laid out on a part: foldings, their cost, and the fastest that fits."""
