"""JAX's names: `jax.experimental.ode`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = {"odeint": "odeint"}
__getattr__, __dir__ = tables.offers(globals(), TABLE)
