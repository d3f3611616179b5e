"""C99 without a library: the policy as arrays, compiled where it runs."""
