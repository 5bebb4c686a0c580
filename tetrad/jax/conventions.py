"""JAX's names, conventions: where JAX differs from `td` everywhere, not in one function.

64-bit types give way to those of 32 bits unless `jax_enable_x64` asks for them, an index out of
range takes the nearest element, or none where it writes, and a matrix without an answer has NaN for
one. `use` sets these for the process, which importing `tetrad.jax` does; `leave` gives `td` its own
conventions back.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

from tetrad.core.config import config
from tetrad.core.dtypes import keeps_wide

OURS: dict[str, Any] = {
    "wide_types": True, "out_of_range": "error", "linalg_failure": "raise",
    "default_float": "float32", "default_int": "int32",
}  # fmt: skip
OF_JAX = OURS | {"wide_types": False, "out_of_range": "nearest", "linalg_failure": "nan"}
WIDE = {"wide_types": True, "default_float": "float64", "default_int": "int64"}
NOT_WIDE = {"wide_types": False, "default_float": "float32", "default_int": "int32"}


def update(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        config.update(name, value)


def use() -> None:
    """JAX's conventions, for the whole process.

    >>> import tetrad as td
    >>> use()
    >>> td.arange(3)[5]
    Array(2, int32)
    >>> leave()
    """
    update(OF_JAX)
    if os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "t", "yes"):
        update(WIDE)


def leave() -> None:
    """The conventions of `td` again."""
    update(OURS)


def enable_x64(wide: bool) -> None:
    update(WIDE if wide else NOT_WIDE)


def x64_context(wide: bool) -> AbstractContextManager[None]:
    """64-bit types, or none, until a block ends."""
    return config.context(**(WIDE if wide else NOT_WIDE))


def has_x64() -> bool:
    return keeps_wide()
