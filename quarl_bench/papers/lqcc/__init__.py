"""Learning Quantized Continuous Controllers for Integer Hardware (2025)."""
