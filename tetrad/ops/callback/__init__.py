"""Functions of Python's, called from inside a program."""
