"""Watching policies: the same start under several schemes, side by side."""
