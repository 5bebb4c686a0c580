"""JAX's names: how the shell is made: tables, settings, devices, keys, installation."""
