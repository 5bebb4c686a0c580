"""JAX's names: `jax.numpy.fft`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = tables.within(
    "fft",
    "fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn "
    "rfft rfft2 rfftfreq rfftn",
)
__getattr__, __dir__ = tables.offers(globals(), TABLE)
