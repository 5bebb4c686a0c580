"""Low-bit weights laid out for the kernels that read them."""
