"""JAX's names: `jax.lax`. Loops and collectives are those of `td`; elementwise functions promote
nothing (`lax.elementwise`); the rest has JAX's settings by name and place."""

from __future__ import annotations

import enum
from typing import Any

from tetrad.core import lazy
from tetrad.jax._shell import tables
from tetrad.jax.lax import elementwise, indexing, products, reductions, structure

TABLE = tables.same("""
    all_gather all_to_all associative_scan axis_index axis_size cond custom_linear_solve
    custom_root dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim
    dynamic_update_index_in_dim dynamic_update_slice dynamic_update_slice_in_dim fori_loop map
    pmax pmean pmin ppermute pshuffle psum psum_scatter scan stop_gradient switch unstack
    while_loop
""")
FILES = (elementwise, structure, reductions, products, indexing)
OWN = {name: getattr(file, name) for file in FILES for name in file.OWN}


class Precision(enum.Enum):
    """How exact products are: here always as exact as their dtype."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


class RoundingMethod(enum.IntEnum):
    """Where halves are rounded to."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


PrecisionLike = Any
ConvGeneralDilatedDimensionNumbers = Any
DotDimensionNumbers = Any


def pswapaxes(x: Any, axis_name: Any, axis: int, **_: Any) -> Any:
    """The axis of this name and an axis of the array change places."""
    return tables.td.all_to_all(x, axis_name, split_axis=axis, concat_axis=axis, tiled=False)


def pvary(x: Any, axis_name: Any) -> Any:
    """The array itself."""
    return x


pcast = pbroadcast = pvary


def rng_uniform(a: Any, b: Any, shape: Any) -> Any:
    """Random numbers without a key: there are none here."""
    raise tables.td.errors.UnsupportedError(
        "lax.rng_uniform: random numbers come from keys", hint="jax.random.uniform(key, shape)"
    )


def __getattr__(name: str) -> Any:
    if name == "linalg":
        return lazy.module("tetrad.jax.lax.linalg")
    if name in OWN:
        value = OWN[name]
    elif name in elementwise.TABLE:
        value = elementwise.strict(name)
    elif name in indexing.SCATTERS:
        value = indexing.scatter_with(indexing.SCATTERS[name])
    else:
        return tables.reexported(globals(), TABLE, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return tables.listed(globals(), TABLE, OWN, elementwise.TABLE, indexing.SCATTERS, ("linalg",))
