"""Rows: the one builder, and what rows of cells, boards, checks and training steps show beside their verdict."""
