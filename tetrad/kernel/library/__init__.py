"""Kernel language, library: small registered kernels, one file per domain; the registry imports
each."""
