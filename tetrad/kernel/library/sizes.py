"""Kernel language, library, sizes: what builders refuse before anything is allocated.

Receives sizes by name; returns nothing or a product, or raises a `ShapeError` that begins with
`Fix:` and says which size of which program is to change.
"""

from __future__ import annotations

from math import prod

from tetrad.core.errors import ShapeError

U32 = 1 << 32  # counts are below: they fit the words of every back end


def refuse_empty(op: str, **sizes: int) -> None:
    """Every size must be positive."""
    if all(size > 0 for size in sizes.values()):
        return
    names = ", ".join(sizes)
    given = ", ".join(f"{name}={size}" for name, size in sizes.items())
    raise ShapeError(f"Fix: {op}: {names} must be positive, got {given}")


def checked_product(op: str, what: str, *factors: int) -> int:
    """The number of elements of a buffer."""
    total = prod(factors)
    if total >= U32:
        written = " * ".join(map(str, factors))
        raise ShapeError(f"Fix: {op}: {what} = {written} overflows u32; split the operands")
    return total
