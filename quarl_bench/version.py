"""The version of this package, which pyproject.toml and everything that prints it read here."""

__version__ = "0.1.0"
