"""Linear layers whose weight stays packed in 4 bits and has a type, as
`td.nn.linear_4bit_affine_grouped_typed`.

Receives sizes and the type of a weight (`kernel.library`), and the operands of
`linear_4bit_affine_grouped`, which computes; here the type is checked before all else. `td.nn`
loads this module when it is first used.
"""

from __future__ import annotations

from typing import Any

from tetrad.core.errors import DtypeError
from tetrad.core.floats import guarded
from tetrad.kernel.library.linear_4bit import QuantizedLinear4BitSpec, group_size_of
from tetrad.nn._linear_4bit import (
    check_group_size,
    fix,
    linear_4bit_affine_grouped,
    sizes_of,
)
from tetrad.tracing.array import Array, fail, noun_of

NAME = "linear_4bit_affine_grouped_typed"


@guarded
def linear_4bit_affine_grouped_typed(
    spec: QuantizedLinear4BitSpec,
    x: Any,
    w: Any,
    scale: Any,
    zero_point: Any,
    b: Any = None,
    *,
    activations: str | None = None,
    strict: bool = False,
) -> Array:
    """`linear_4bit_affine_grouped` with the sizes that a spec tells, and the group size that its
    type of the weights tells. Nibbles are unsigned; the storage `i4` is another spelling of `u4`.

    >>> import tetrad as td
    >>> from tetrad.kernel.library.linear_4bit import affine_grouped
    >>> w = td.asarray([[0x87654321, 0]], dtype=td.uint32)
    >>> scale, zero_point = td.asarray([[0.5, 1], [2, 1]]), td.asarray([[1, 0], [4, 0]])
    >>> spec = affine_grouped(in_dim=8, out_dim=2, group_size=4)
    >>> linear_4bit_affine_grouped_typed(spec, td.arange(1.0, 9.0), w, scale, zero_point)
    Array([150.,   0.], float32)
    """
    if not isinstance(spec, QuantizedLinear4BitSpec):
        hint = "tetrad.kernel.library.linear_4bit.affine_grouped makes one"
        fail(DtypeError, f"{NAME}: expected a QuantizedLinear4BitSpec, got {noun_of(spec)}", hint)
    size = group_size_of(NAME, spec.weight_type)
    check_group_size(NAME, spec.in_dim, spec.out_dim, size)
    found = sizes_of(NAME, x, w, b, scale)
    if found != (spec.in_dim, spec.out_dim):
        wanted = f"in_dim={spec.in_dim} and out_dim={spec.out_dim}"
        fix(f"{NAME}: the spec tells {wanted}, the operands are of {found[0]} and {found[1]}")
    return linear_4bit_affine_grouped(
        x, w, scale, zero_point, b, group_size=size, activations=activations, strict=strict
    )
