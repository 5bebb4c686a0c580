"""Kernels of the user, called from inside a program."""
