"""Many seeds in one process: SAC and DDPG with a quantized actor."""
