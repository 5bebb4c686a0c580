"""Rows times a weight of unsigned nibbles, which stays packed."""
