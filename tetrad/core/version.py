"""Station 0, shared words: the version, in one place; building the package reads it here without
importing anything."""

__version__ = "0.1.0"
