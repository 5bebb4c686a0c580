"""Scattered sums."""
