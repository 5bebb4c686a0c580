"""Slices whose place is data."""
