"""Quantized reinforcement learning as pytest cases: train or load a policy, quantize it, deploy it, judge it."""

__version__ = "0.1.0"
