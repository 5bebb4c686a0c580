"""JAX's names: `jax.interpreters`. Tetrad has graphs and rules of its own ops; what extends JAX's
interpreters has nothing to extend, and says so when it is used."""

from __future__ import annotations

import sys

from tetrad.jax._shell import tables
from tetrad.jax.interpreters.absent import module_of_absent

FOLDERS = ("ad", "batching", "mlir", "partial_eval", "pxla", "xla")

for _name in FOLDERS:
    sys.modules[f"{__name__}.{_name}"] = module_of_absent(f"{__name__}.{_name}")

__getattr__, __dir__ = tables.offers(globals(), {}, FOLDERS)
