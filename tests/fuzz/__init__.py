"""Random programs over the op registry, compiled and compared: `python -m tests.fuzz --programs
N`."""
