"""What every room stands on: files that appear whole or not at all, programs, extras, the processor. No RL, no nets."""
