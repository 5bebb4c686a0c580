"""Arrays, NumPy's names: orders by several keys, and bits packed in bytes.

Receives arrays and axes, returns arrays: compositions of `arrays.sorting`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.arrays.functions import take_along_axis
from tetrad.arrays.indexing import getitem
from tetrad.arrays.manipulation import expand_dims, moveaxis, pad, reshape
from tetrad.arrays.sorting import argsort, sort
from tetrad.arrays.statistics import sum as total
from tetrad.core.dtypes import bool_, c64, i32, u8
from tetrad.core.errors import BoundsError, DtypeError, SettingError, ShapeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axis_of, convert


def lexsort(keys: Any, axis: int = -1) -> Array:
    """The indices that put elements in order by several keys, of which the last counts most.

    >>> import tetrad as td
    >>> td.lexsort((td.asarray([2, 1, 3]), td.asarray([1, 1, 0])))
    Array([2, 1, 0], int32)
    """
    given = [as_array(key) for key in (keys if isinstance(keys, tuple | list) else asarray(keys))]
    if not given:
        fail(ShapeError, "lexsort: needs at least one key")
    if any(key.shape != given[0].shape for key in given):
        fail(ShapeError, f"lexsort: keys differ in shape: {', '.join(str(k.type) for k in given)}")
    if given[0].ndim == 0:
        return convert(0, argsort(asarray([0])).dtype)
    at = axis_of("lexsort", axis, given[0].ndim)
    order = argsort(given[0], axis=at)
    for key in given[1:]:
        again = argsort(take_along_axis(key, order, axis=at), axis=at)
        order = take_along_axis(order, again, axis=at)
    return order


def partition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect") -> Array:
    """Elements along an axis so that the k-th is where it is in order, smaller ones before it. They
    are in order altogether.

    >>> import tetrad as td
    >>> td.partition(td.asarray([3, 1, 2]), 1)
    Array([1, 2, 3], int32)
    """
    x, at = _checked("partition", a, kth, axis)
    return sort(x, axis=at)


def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect") -> Array:
    """The indices that `partition` would put elements in place by."""
    x, at = _checked("argpartition", a, kth, axis)
    return argsort(x, axis=at)


def _checked(name: str, a: Any, kth: Any, axis: int | None) -> tuple[Array, int]:
    x = asarray(a)
    x, axis = (reshape(x, (-1,)), 0) if axis is None else (x, axis)
    at = axis_of(name, axis, x.ndim)
    for k in np.atleast_1d(np.asarray(kth)).tolist():
        if not isinstance(k, int):
            fail(DtypeError, f"{name}: kth is an int, got {k!r}")
        if not -x.shape[at] <= k < x.shape[at]:
            fail(BoundsError, f"{name}: kth {k} is out of range for axis {at} of {x.type}")
    return x, at


def sort_complex(a: Any) -> Array:
    """Complex numbers in order of their real parts, then of their imaginary ones.

    >>> import tetrad as td
    >>> td.sort_complex(td.asarray([2 + 1j, 1 + 5j, 2 - 1j]))
    Array([1.+5.j, 2.-1.j, 2.+1.j], complex64)
    """
    x = asarray(a)
    z = x if x.dtype.is_complex else convert(x, x.dtype.complex if x.dtype.is_float else c64)
    order = lexsort((z.imag, z.real))
    return take_along_axis(z, order, axis=-1)


# -- bits ------------------------------------------------------------------------------------------


def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight truth values in a byte, zeros at the end.

    >>> import tetrad as td
    >>> td.packbits(td.asarray([1, 0, 1]))
    Array([160], uint8)
    """
    x = asarray(a)
    if not (x.dtype.is_integer or x.dtype is bool_):
        fail(DtypeError, f"packbits: takes integers or bools, got {x.type}")
    x, axis = (reshape(x, (-1,)), 0) if axis is None else (x, axis)
    at = axis_of("packbits", axis, x.ndim)
    line = convert(moveaxis(convert(x, bool_), at, -1), i32)
    short = -line.shape[-1] % 8
    line = pad(line, [*((0, 0) for _ in range(line.ndim - 1)), (0, short)])
    bytes_ = reshape(line, (*line.shape[:-1], line.shape[-1] // 8, 8))
    whole = total(apply("multiply", bytes_, _weights("packbits", bitorder)), axis=-1)
    return moveaxis(convert(whole, u8), -1, at)


def _weights(name: str, bitorder: str) -> Array:
    if bitorder not in ("big", "little"):
        raise SettingError(f"{name}: bitorder", "'big' or 'little'", bitorder)
    shifts = range(7, -1, -1) if bitorder == "big" else range(8)
    return as_array(np.array([1 << s for s in shifts], np.int32))


def unpackbits(
    a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """The bits of bytes, as numbers 0 and 1; `count`: so many of them.

    >>> import tetrad as td
    >>> td.unpackbits(td.asarray([160], dtype=td.uint8), count=3)
    Array([1, 0, 1], uint8)
    """
    x = asarray(a)
    if x.dtype is not u8:
        fail(DtypeError, f"unpackbits: takes uint8, got {x.type}")
    x, axis = (reshape(x, (-1,)), 0) if axis is None else (x, axis)
    at = axis_of("unpackbits", axis, x.ndim)
    line = expand_dims(convert(moveaxis(x, at, -1), i32), axis=x.ndim)
    bits = apply("bitwise_and", line, _weights("unpackbits", bitorder))
    flat = reshape(convert(apply("not_equal", bits, 0), u8), (*line.shape[:-2], -1))
    if count is not None:
        have = flat.shape[-1]
        stop = count if count >= 0 else have + count
        flat = getitem(flat, (Ellipsis, slice(0, stop)))
        flat = pad(flat, [*((0, 0) for _ in range(flat.ndim - 1)), (0, max(stop - have, 0))])
    return moveaxis(flat, -1, at)
