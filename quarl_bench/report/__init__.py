"""Rows of built-in types -> terminal, JSON. Knows rows, never pytest items."""
