"""Commands that train policies."""
