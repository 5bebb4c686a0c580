"""Products with packed signed nibbles."""
