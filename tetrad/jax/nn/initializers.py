"""JAX's names: `jax.nn.initializers`: those of `td`, which take typed keys as well."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tetrad.jax._shell import tables
from tetrad.jax._shell.keys import KeyArray
from tetrad.jax._shell.tables import td
from tetrad.jax.random import seeded

Initializer = Callable[..., Any]
MADE = """
    constant glorot_normal glorot_uniform he_normal he_uniform lecun_normal
    lecun_uniform normal orthogonal truncated_normal uniform variance_scaling
""".split()  # noqa: SIM905
ALIASES = {
    "kaiming_normal": "he_normal", "kaiming_uniform": "he_uniform",
    "xavier_normal": "glorot_normal", "xavier_uniform": "glorot_uniform",
}  # fmt: skip


def with_typed_keys(initializer: Initializer) -> Initializer:
    @functools.wraps(initializer)
    def drawn(key: Any, shape: Any, dtype: Any = float, out_sharding: Any = None) -> Any:
        if isinstance(key, KeyArray):
            with seeded(key.generator):
                return initializer(key.data, shape, dtype)
        return initializer(key, shape, dtype)

    return drawn


def making(name: str) -> Callable[..., Initializer]:
    """The function of settings that gives an initializer."""
    function = getattr(td.nn.initializers, name)

    @functools.wraps(function)
    def made(*args: Any, **settings: Any) -> Initializer:
        dtype = settings.get("dtype", float)
        drawn = with_typed_keys(function(*args, **settings))
        return functools.partial(drawn, dtype=dtype) if dtype is not float else drawn

    return made


def zeros(key: Any, shape: Any, dtype: Any = float, out_sharding: Any = None) -> Any:
    return td.zeros(shape, dtype=dtype)


def ones(key: Any, shape: Any, dtype: Any = float, out_sharding: Any = None) -> Any:
    return td.ones(shape, dtype=dtype)


def __getattr__(name: str) -> Any:
    ours = ALIASES.get(name, name)
    if ours not in MADE:
        raise tables.absent(__name__, name)
    globals()[name] = value = making(ours)
    return value


def __dir__() -> list[str]:
    return tables.listed(globals(), MADE, ALIASES)
