"""Our own sentences on what `quarl repair` brings back (docs/repair.md)."""
