"""Quantization of nets: schemes, affine maps, observers, post-training quantization, integer inference. No RL."""
