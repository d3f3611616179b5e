"""Commands that take a policy to another backend, a board, or a circuit."""
