"""JAX's names: `jax.numpy.fft`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables

TABLE = tables.within(
    "fft",
    "fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn "
    "rfft rfft2 rfftfreq rfftn",
)


def __getattr__(name: str) -> Any:
    return tables.reexported(globals(), TABLE, name)


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE)
