"""The kernel language, library: small registered kernels, one file per domain. Each is imported by
the registry."""
