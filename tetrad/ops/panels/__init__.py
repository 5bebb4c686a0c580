"""Products of rows with weights that were laid out in panels once."""
