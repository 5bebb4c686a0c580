"""Arrays in groups of four-bit codes: integers of four bits, quantise, dequantise."""
