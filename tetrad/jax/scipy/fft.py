"""JAX's names: `jax.scipy.fft`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables

TABLE = tables.within("fft", "dct dctn idct idctn")


def __getattr__(name: str) -> Any:
    return tables.reexported(globals(), TABLE, name)


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE)
