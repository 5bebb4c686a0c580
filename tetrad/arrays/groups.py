"""Arrays quantised in groups: four bits a number, a scale for each group of neighbours.

Receives arrays of floats, or the parts of a quantised one; returns `GroupQuantized`, a tree of
arrays that every transform takes as it takes tuples. Quantising and dequantising run compiled;
products with the numbers read codes and factors where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from tetrad.arrays import functions
from tetrad.arrays.creation import asarray
from tetrad.core import lazy, tree
from tetrad.core.dtypes import DType, as_dtype, f32, f64, u4
from tetrad.core.errors import DtypeError, ShapeError, TetradError, UnsupportedError
from tetrad.core.record import record
from tetrad.core.sizes import product
from tetrad.core.types import ArrayType
from tetrad.ops.groups.op import dequantize_groups, quantize_groups
from tetrad.ops.matmul.op import INT8_BLOCK, are_rows_of_groups
from tetrad.ops.matmul.op import matmul as product_op
from tetrad.ops.quantized.op import SCALE_OF_TOP, SMALLEST
from tetrad.quant import groups as meaning
from tetrad.tracing.array import Array, TracedArray, fail, located
from tetrad.tracing.operands import common_dtype, convert, run, traced

GROUPED = ("int4", "nf4")
GROUP = 64
ZERO_POINTS = {"integer": "int4", "float": "int4_float"}


@record(eq=False)
class GroupQuantized:
    """An array in four bits a number. In the order of the flat array, `group` neighbours share
    factors: number = (code - zero_point) * scale; without zero points (code - 8) * scale;
    of "nf4" table[code] * scale.

    >>> import tetrad as td
    >>> q = td.quant.quantize(td.asarray([[0.5, -1.0, 2.0], [0.0, 1.0, 3.0]]), "int4", group=3)
    >>> q
    GroupQuantized(int4[2,3], group=3, float32)
    >>> q.codes
    Array([[ 7,  0, 15],
           [ 0,  5, 15]], uint4)
    >>> q.scale, q.zero_point
    (Array([0.2, 0.2], float32), Array([5., 0.], float32))
    """

    codes: Array  # uint4, in the shape of the numbers
    scale: Array  # of each group: float32, or float64
    zero_point: Array | None  # the same, or None
    scheme: str  # "int4" or "nf4"
    group: int
    dtype: DType  # of the numbers

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.codes.shape

    @property
    def ndim(self) -> int:
        return self.codes.ndim

    @property
    def size(self) -> Any:
        return self.codes.size

    @property
    def nbytes(self) -> Any:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def symmetric(self) -> bool:
        """Is zero the code 8 in every group? (Of "nf4" it is the code 7.)"""
        return self.zero_point is None

    @property
    def parts(self) -> tuple[Array, ...]:
        """Codes, scales, and zero points if there are any."""
        factors = (self.codes, self.scale)
        return factors if self.zero_point is None else (*factors, self.zero_point)

    def dequantize(self, dtype: Any = None) -> Array:
        """The numbers, in the dtype of the array that was quantised or another. Compiled; a product
        with them, inside a compiled function, never has them in memory.

        >>> import tetrad as td
        >>> td.quant.quantize(td.asarray([0.5, -1.0, 2.0]), "int4", group=3).dequantize()
        Array([ 0.4, -1. ,  2. ], float32)
        """
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        parts = tuple(map(traced, self.parts))  # while tracing it is a node: products read through
        run = decoded if is_traced(*parts) else compiled(decoded)
        result: Array = guarded_call(run, parts, self.scheme, self.group, wanted)
        return result

    def to_bytes(self) -> bytes:
        """The codes, two in a byte, then the scales, then the zero points: what
        `td.quant.from_bytes` takes."""
        return b"".join(part.to_bytes() for part in self.parts)

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        return f"GroupQuantized({self.scheme}[{sizes}], group={self.group}, {self.dtype.long_name})"


tree.register(
    GroupQuantized,
    lambda q: ((q.codes, q.scale, q.zero_point), (q.scheme, q.group, q.dtype)),
    lambda data, children: GroupQuantized(*children, *data),
)


def is_traced(*parts: Any) -> bool:
    return any(isinstance(part, TracedArray) for part in parts)


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as compiled code; what follows the arrays are settings."""
    made: Callable[..., Any] = lazy.provided("compiled functions").jit(
        function, static_argnums=(1, 2, 3)
    )
    return made


def guarded_call(run: Callable[..., Any], *args: Any) -> Any:
    """Errors name the user's line."""
    try:
        return run(*args)
    except TetradError as error:
        raise located(error) from None


def decoded(parts: tuple[Array, ...], scheme: str, group: int, dtype: DType) -> Any:
    return dequantize_groups(*parts, scheme=scheme, group=group, dtype=dtype)


def encoded(x: Array, scheme: str, group: int, has_zeros: bool) -> Any:
    return quantize_groups(x, scheme=scheme, group=group)[: 3 if has_zeros else 2]


# -- making them -----------------------------------------------------------------------------------


def quantize_in_groups(
    x: Any, name: str, group: int | None, symmetric: bool | None, zero_point: str | None
) -> GroupQuantized:
    values = asarray(x)
    if values.dtype.is_integer:
        values = convert(values, f32)
    if not values.dtype.is_float:
        fail(DtypeError, f"quantize: {name} takes floats, got {values.type}", "convert with astype")
    scheme, size = scheme_of(name, symmetric, zero_point), GROUP if group is None else group
    count = values.size
    if not isinstance(count, int):
        fail(
            ShapeError, f"quantize: {values.type} has no size yet", "quantise arrays of known size"
        )
    check(meaning.check_settings, scheme, size, count)
    has_zeros = meaning.has_zeros(scheme)
    run = encoded if is_traced(values) else compiled(encoded)
    made = guarded_call(run, values, scheme, int(size), has_zeros)
    return GroupQuantized(
        made[0], made[1], made[2] if has_zeros else None, name, int(size), values.dtype
    )


def check(rule: Callable[..., None], *args: Any) -> None:
    guarded_call(rule, *args)


def scheme_of(name: str, symmetric: bool | None, zero_point: str | None) -> str:
    """What the settings mean; those that exclude each other are refused."""
    if name == "nf4":
        if zero_point is not None:
            fail(UnsupportedError, "quantize: nf4 has no zero points", "leave zero_point out")
        return "nf4"
    if symmetric:
        if zero_point is not None:
            fail(
                UnsupportedError,
                "quantize: a symmetric int4 has no zero points",
                "leave zero_point out, or symmetric=False",
            )
        return "int4_symmetric"
    kind = "integer" if zero_point is None else zero_point
    if kind not in ZERO_POINTS:
        fail(
            UnsupportedError,
            f"quantize: zero_point {zero_point!r} is unknown",
            f"known: {', '.join(ZERO_POINTS)}",
        )
    return ZERO_POINTS[kind]


def from_parts(
    codes: Any,
    scale: Any,
    zero_point: Any = None,
    *,
    scheme: str = "int4",
    group: int,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
) -> GroupQuantized:
    """A quantised array from its parts, which are checked.

    codes       an array of uint4, or bytes with two codes each, and the `shape` of the numbers
    scale       a number for each group, flat; what is too much is left out
    zero_point  the same, or None: zero is the code 8
    dtype       of the numbers: that of the scales

    >>> import tetrad as td
    >>> td.quant.from_parts(b"\\x4f\\x8a", [2.0], group=4, shape=(2, 2)).dequantize()
    Array([[14., -8.],
           [ 4.,  0.]], float32)
    """
    if scheme not in GROUPED:
        fail(UnsupportedError, f"from_parts: unknown scheme {scheme!r}", "known: int4, nf4")
    kind = scheme if scheme == "nf4" or zero_point is not None else "int4_symmetric"
    if scheme == "nf4" and zero_point is not None:
        fail(UnsupportedError, "from_parts: nf4 has no zero points", "leave zero_point out")
    elements = prod(shape) if shape is not None else getattr(codes, "size", 0)
    check(meaning.check_settings, kind, group, elements)
    packed = packed_codes(codes, shape, kind)
    count = meaning.group_count(prod(packed.shape), group)
    factors = [factor_array(scale, kind, "scales", count)]
    if zero_point is not None:
        factors.append(convert(factor_array(zero_point, kind, "zeros", count), factors[0].dtype))
    wanted = factors[0].dtype if dtype is None else as_dtype(dtype)
    return GroupQuantized(
        packed, factors[0], factors[1] if len(factors) > 1 else None, scheme, int(group), wanted
    )


def packed_codes(codes: Any, shape: Sequence[int] | None, kind: str) -> Array:
    """An array of uint4 from one, or from bytes."""
    if isinstance(codes, Array) and codes.dtype is u4:
        if shape is not None and tuple(shape) != codes.shape:
            fail(ShapeError, f"from_parts: codes {codes.type} are not of shape {list(shape)}")
        return codes
    raw = np.frombuffer(codes, np.uint8) if not isinstance(codes, Array) else codes.view
    if raw.dtype != np.uint8:
        fail(DtypeError, f"from_parts: codes are uint4 or bytes, got {raw.dtype}")
    if shape is None:
        fail(ShapeError, "from_parts: bytes do not say how many codes they hold", "give the shape")
    needed = meaning.packed_bytes(prod(shape))
    check(meaning.check_length, kind, "packed input", needed, raw.size)
    return Array.from_bytes(
        np.array(raw.reshape(-1)[:needed]), ArrayType(u4, tuple(int(n) for n in shape))
    )


def factor_array(given: Any, kind: str, part: str, count: int) -> Array:
    values = asarray(given)
    if values.dtype is not f64:
        values = convert(values, f32)
    flat = values.reshape(-1)
    check(meaning.check_length, kind, part, count, flat.size)
    return flat if flat.size == count else flat[:count]


def from_packed(
    buffer: Any,
    name: str,
    shape: tuple[int, ...],
    group: int = GROUP,
    symmetric: bool = False,
    dtype: Any = None,
) -> GroupQuantized:
    """What `GroupQuantized.to_bytes` gave."""
    wanted = f32 if dtype is None else as_dtype(dtype)
    kind = "nf4" if name == "nf4" else "int4_symmetric" if symmetric else "int4"
    check(meaning.check_settings, kind, group, prod(shape))
    raw = np.frombuffer(buffer, np.uint8)
    each = meaning.group_count(prod(shape), group) * wanted.computing.nbytes
    codes = meaning.packed_bytes(prod(shape))
    expected = codes + each * (2 if meaning.has_zeros(kind) else 1)
    if raw.size != expected:
        fail(
            ShapeError,
            f"from_bytes: {name} of shape {list(shape)} in groups of {group} takes {expected} "
            f"bytes, got {raw.size}",
            "are shape, group and symmetric those it was made with?",
        )
    ends = [raw[start : start + each] for start in range(codes, expected, each)] if each else []
    floats = [Array.from_numpy(np.array(part).view(wanted.computing.np)) for part in ends]
    empty = Array.from_numpy(np.zeros(0, wanted.computing.np))
    scale = floats[0] if floats else empty
    zero = None if not meaning.has_zeros(kind) else floats[1] if floats else empty
    return from_parts(
        raw[:codes].tobytes(), scale, zero, scheme=name, group=group, shape=shape, dtype=wanted
    )


# -- products --------------------------------------------------------------------------------------


def matmul(x: Any, q: GroupQuantized, *, activations: str | None = None) -> Array:
    """x @ q.dequantize().T of a matrix q [outputs, inputs], for x [..., inputs]; both in their
    common dtype.

    activations  None: x as it is. "int8": rows of x are rounded to 8 bits, a scale for every 128
                 columns, and multiplied as integers: quicker, and off by at most 1/254 of the
                 largest of 128 numbers each. Derivatives are those without rounding.

    >>> import tetrad as td
    >>> q = td.quant.quantize(td.eye(32), "int4", group=32)
    >>> td.quant.matmul(td.arange(32.0), q, activations="int8")[1:4]
    Array([1., 2., 3.], float32)
    """
    if activations not in (None, "int8"):
        fail(UnsupportedError, f"matmul: activations {activations!r}", "None, or 'int8'")
    values = asarray(x)
    common = common_dtype((values, q.dtype))
    values = convert(values, common)
    if q.ndim != 2 or not values.ndim or values.shape[-1] != q.shape[1]:
        fail(
            ShapeError,
            f"matmul: x {values.type} does not fit {q!r}",
            "x [..., inputs] and a matrix [outputs, inputs]",
        )
    if common is f64 and activations:
        fail(UnsupportedError, "matmul: float64 is not rounded to 8 bits", "x and q in float32")
    product_of = plain_product if activations is None else rounded_product
    parts = (values, *q.parts)
    call = product_of if is_traced(*parts) else compiled(product_of)
    result: Array = guarded_call(call, parts, q.scheme, q.group, common)
    return result


def plain_product(parts: tuple[Array, ...], scheme: str, group: int, dtype: DType) -> Array:
    x, *weight = parts
    numbers = dequantize_groups(*weight, scheme=scheme, group=group, dtype=dtype)
    return x @ numbers.T  # type: ignore[no-any-return]


def rounded_product(parts: tuple[Array, ...], scheme: str, group: int, dtype: DType) -> Array:
    """Of f16 and bf16, whose products are computed in f32, too."""
    x, codes, *factors = parts
    rows = convert(x.reshape(product(x.shape[:-1]), x.shape[-1]), f32)
    kinds = [part.type for part in (rows, codes, *factors)]
    if are_rows_of_groups(*kinds, scheme=scheme, group=group):
        flat = product_op(
            rows, codes, *factors, transposed=True, scheme=scheme, group=group, activations="int8"
        )
    else:
        numbers = dequantize_groups(codes, *factors, scheme=scheme, group=group, dtype=f32)
        flat = round_to_int8(rows) @ numbers.T
    return convert(flat, dtype).reshape(*x.shape[:-1], codes.shape[0])


def round_to_int8(x: Array) -> Array:
    """Rows as they are after rounding to 8 bits, a scale for every 128 columns; its derivative is
    that of x."""
    rows, columns = x.shape
    missing = -columns % INT8_BLOCK
    padded = functions.pad(x, ((0, 0), (0, missing))) if missing else x
    blocks = padded.reshape(rows, -1, INT8_BLOCK)
    top = functions.max(abs(blocks), axis=-1, keepdims=True)
    inverse = functions.where(top < SMALLEST, 0.0, 127.0 / top)
    codes = functions.clip(functions.round(blocks * inverse), -127.0, 127.0)
    rounded = (codes * (top * SCALE_OF_TOP)).reshape(rows, -1)[:, :columns]
    return run("stop_gradient", rounded) + (x - run("stop_gradient", x))  # type: ignore[no-any-return]
