"""LQCC's controllers: SAC and DDPG with a quantized actor, all seeds of a configuration in one process."""
