"""Attention over a key-value cache, and the cache."""
