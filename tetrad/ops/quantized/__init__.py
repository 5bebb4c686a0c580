"""Quantised arrays: rows in 8 bits, low-bit weights as floats."""
