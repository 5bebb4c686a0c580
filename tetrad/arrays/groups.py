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
from tetrad.core.dtypes import DType, as_dtype, f32, f64, u4, u8
from tetrad.core.errors import DtypeError, SettingError, ShapeError, TetradError, UnsupportedError
from tetrad.core.record import fields, record
from tetrad.core.sizes import product
from tetrad.core.types import ArrayType
from tetrad.ops.groups.op import dequantize_groups, quantize_groups
from tetrad.ops.matmul.op import INT8_BLOCK, are_rows_of_groups
from tetrad.ops.matmul.op import matmul as product_op
from tetrad.ops.quantized.op import SCALE_OF_TOP, SMALLEST
from tetrad.quant import groups as meaning
from tetrad.quant.groups import Numbers
from tetrad.tracing.array import Array, TracedArray, fail, located, noun_of
from tetrad.tracing.operands import check_shape, common_dtype, convert, run, traced

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

    def __init__(
        self, codes: Any, scale: Any, zero_point: Any, scheme: str, group: int, dtype: Any
    ) -> None:
        """Settings are checked; parts may be whatever trees hold."""
        check_scheme("GroupQuantized", scheme)
        size = guarded_call(meaning.check_settings, scheme, group, 0)
        values = (codes, scale, zero_point, scheme, size, as_dtype(dtype))
        for name, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, name, value)

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
        """The numbers, in the dtype of the array that was quantised or another. They are computed
        when somebody asks for elements; a product with them never has them in memory.

        >>> import tetrad as td
        >>> td.quant.quantize(td.asarray([0.5, -1.0, 2.0]), "int4", group=3).dequantize()
        Array([ 0.4, -1. ,  2. ], float32)
        """
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        parts = tuple(map(traced, self.parts))  # while tracing it is a node: products read through
        settings = {"scheme": self.scheme, "group": self.group, "dtype": wanted}
        result: Array = dequantize_groups(*parts, **settings)
        return result

    def to_bytes(self) -> bytes:
        """The codes, two in a byte, then the scales, then the zero points: what
        `td.quant.from_bytes` takes."""
        lead = self.scale.ndim - 1
        if prod(self.shape[:lead]) > 1 and prod(self.shape[lead:]) % self.group:
            places = list(self.shape[:lead])
            message = f"to_bytes: {self!r} begins its groups anew at each of {places}"
            fail(ShapeError, message, "take the bytes of each, or keep codes, scale, zero_point")
        return b"".join(part.to_bytes() for part in self.parts)

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        return f"GroupQuantized({self.scheme}[{sizes}], group={self.group}, {self.dtype.name})"


tree.register(
    GroupQuantized,
    lambda q: ((q.codes, q.scale, q.zero_point), (q.scheme, q.group, q.dtype)),
    lambda data, children: GroupQuantized(*children, *data),
)


def check_scheme(name: str, scheme: Any) -> None:
    if scheme not in GROUPED:
        fail(UnsupportedError, f"{name}: unknown scheme {scheme!r}", "known: int4, nf4")


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
    scheme = scheme_of("quantize", name, symmetric, zero_point)
    size: Any = GROUP if group is None else group
    count = values.size
    if not isinstance(count, int):
        fail(
            ShapeError, f"quantize: {values.type} has no size yet", "quantise arrays of known size"
        )
    size = guarded_call(meaning.check_settings, scheme, size, count)
    has_zeros = meaning.has_zeros(scheme)
    run = encoded if is_traced(values) else compiled(encoded)
    made = guarded_call(run, values, scheme, size, has_zeros)
    return GroupQuantized(
        made[0], made[1], made[2] if has_zeros else None, name, size, values.dtype
    )


def scheme_of(by: str, name: str, symmetric: bool | None, zero_point: str | None) -> str:
    """What the settings mean; those that exclude each other are refused."""
    if not isinstance(symmetric, bool | np.bool_ | None):
        raise SettingError(f"{by}: symmetric", "True or False", symmetric)
    if name == "nf4":
        if zero_point is not None:
            fail(UnsupportedError, f"{by}: nf4 has no zero points", "leave zero_point out")
        return "nf4"
    if symmetric:
        if zero_point is not None:
            hint = "leave zero_point out, or symmetric=False"
            fail(UnsupportedError, f"{by}: a symmetric int4 has no zero points", hint)
        return "int4_symmetric"
    kind = "integer" if zero_point is None else zero_point
    if not isinstance(kind, str) or kind not in ZERO_POINTS:
        hint = f"known: {', '.join(ZERO_POINTS)}"
        fail(UnsupportedError, f"{by}: zero_point {zero_point!r} is unknown", hint)
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

    codes       integers from 0 to 15 in the shape of the numbers; or bytes (uint8) with two codes
                each, as many as the `shape` of the numbers takes
    scale       a number for each group, flat; what is too much is left out. Or [..., groups], with
                leading axes of the codes, below which groups begin anew
    zero_point  the same, or None: zero is the code 8
    dtype       of the numbers: that of the scales

    >>> import tetrad as td
    >>> td.quant.from_parts(b"\\x4f\\x8a", [2.0], group=4, shape=(2, 2)).dequantize()
    Array([[14., -8.],
           [ 4.,  0.]], float32)
    """
    check_scheme("from_parts", scheme)
    kind = scheme if scheme == "nf4" or zero_point is not None else "int4_symmetric"
    if scheme == "nf4" and zero_point is not None:
        fail(UnsupportedError, "from_parts: nf4 has no zero points", "leave zero_point out")
    sizes = None if shape is None else known_shape("from_parts", shape)
    elements = prod(sizes) if sizes is not None else getattr(codes, "size", 0)
    size = guarded_call(meaning.check_settings, kind, group, elements)
    packed = codes_of(codes, sizes, kind)
    factors = factor_array(scale, kind, "scales", packed, size)
    zeros = None
    if zero_point is not None:
        zeros = convert(factor_array(zero_point, kind, "zeros", packed, size), factors.dtype)
        if zeros.shape != factors.shape:
            hint = "both flat, or both with the same leading axes of the codes"
            fail(ShapeError, f"from_parts: zeros {zeros.type} beside scales {factors.type}", hint)
    wanted = factors.dtype if dtype is None else as_dtype(dtype)
    return GroupQuantized(packed, factors, zeros, scheme, size, wanted)


def known_shape(name: str, shape: Any) -> tuple[int, ...]:
    sizes = check_shape(name, shape)
    for n in sizes:
        if not isinstance(n, int):
            fail(ShapeError, f"{name}: the shape must be known, got the size {n}")
    return sizes  # type: ignore[return-value]


def codes_of(codes: Any, shape: tuple[int, ...] | None, kind: str) -> Array:
    """An array of uint4 from integers, or from bytes."""
    given = raw_bytes("from_parts", codes) if has_no_shape(codes) else asarray(codes)
    if isinstance(given, np.ndarray) or is_packed(given, shape):
        return unpacked(np.asarray(given), shape, kind)
    if shape is not None and given.shape != shape:
        fail(ShapeError, f"from_parts: codes {given.type} are not of shape {list(shape)}")
    if given.dtype is u4:
        return given
    if not given.dtype.is_integer or is_traced(given):
        hint = "integers from 0 to 15, or two in a byte; .astype(td.uint4)"
        fail(DtypeError, f"from_parts: codes are uint4 or bytes, got {given.type}", hint)
    check_codes(np.asarray(given))
    return convert(given, u4)


def has_no_shape(codes: Any) -> bool:
    """Is it memory, not an array?"""
    is_array = isinstance(codes, Array | list | tuple) or hasattr(codes, "__array__")
    return isinstance(codes, bytes | bytearray | memoryview) or not is_array


def check_codes(codes: Numbers) -> None:
    wrong = codes[(codes < 0) | (codes > meaning.LEVELS)]
    if wrong.size:
        hint = "add 8 to codes from -8 to 7; two codes in a byte come flat, with a shape"
        fail(DtypeError, f"from_parts: codes are from 0 to 15, got {wrong[0]}", hint)


def is_packed(codes: Array, shape: tuple[int, ...] | None) -> bool:
    """Is each element two codes? Bytes in the shape of the codes are one each."""
    if codes.dtype is not u8 or is_traced(codes):
        return False
    if shape is None:
        return True
    needed = meaning.packed_bytes(prod(shape))
    is_long = codes.ndim == 1 and codes.shape != shape
    return is_long or codes.size == needed


def raw_bytes(name: str, buffer: Any) -> Numbers:
    """The bytes of a buffer; other elements are refused, for they are not two codes each."""
    given: Any = buffer.memory if isinstance(buffer, Array) else buffer
    try:
        held = memoryview(given)
    except TypeError:
        fail(DtypeError, f"{name}: expected bytes, got {noun_of(buffer)}")
    if held.itemsize != 1 or held.format not in ("B", "b", "c"):
        fail(DtypeError, f"{name}: expected bytes, got elements of format {held.format!r}")
    return np.frombuffer(held.tobytes(), np.uint8)


def unpacked(raw: Numbers, shape: tuple[int, ...] | None, kind: str) -> Array:
    if shape is None:
        fail(ShapeError, "from_parts: bytes do not say how many codes they hold", "give the shape")
    needed = meaning.packed_bytes(prod(shape))
    guarded_call(meaning.check_length, kind, "packed input", needed, raw.size)
    return Array.from_bytes(np.array(raw.reshape(-1)[:needed]), ArrayType(u4, shape))


def factor_array(given: Any, kind: str, part: str, codes: Array, group: int) -> Array:
    """Factors of the groups of the flat array, or of those below leading axes."""
    values = asarray(given)
    if not values.dtype.is_float and not values.dtype.is_integer:
        fail(DtypeError, f"from_parts: {part} are real numbers, got {values.type}")
    if values.dtype is not f64:
        values = convert(values, f32)
    count = meaning.group_count(prod(codes.shape), group)
    if values.ndim > 1:
        return checked_lead(values, part, codes, group, count)
    flat = values.reshape(-1)
    guarded_call(meaning.check_length, kind, part, count, flat.size)
    return flat if flat.size == count else flat[:count]


def checked_lead(values: Array, part: str, codes: Array, group: int, count: int) -> Array:
    lead = min(values.ndim - 1, codes.ndim)
    below = meaning.group_count(prod(codes.shape[lead:]), group)
    wanted = (*codes.shape[:lead], below)
    if values.shape != wanted:
        fail(
            ShapeError,
            f"from_parts: {part} {values.type} do not belong to codes {codes.type} in groups of "
            f"{group}",
            f"flat, [{count}], or below leading axes of the codes, {list(wanted)}",
        )
    return values


def from_packed(
    buffer: Any,
    name: str,
    shape: tuple[int, ...],
    *,
    group: Any = None,
    symmetric: bool | None = None,
    zero_point: str | None = None,
    dtype: Any = None,
) -> GroupQuantized:
    """What `GroupQuantized.to_bytes` gave."""
    wanted = f32 if dtype is None else as_dtype(dtype)
    kind = scheme_of("from_bytes", name, symmetric, zero_point)
    group = GROUP if group is None else group
    group = guarded_call(meaning.check_settings, kind, group, prod(shape))
    raw = raw_bytes("from_bytes", buffer)
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
    >>> td.round(td.quant.matmul(td.arange(32.0), q, activations="int8")[1:4])
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
    blocks = padded.reshape(rows, (columns + missing) // INT8_BLOCK, INT8_BLOCK)
    top = functions.max(abs(blocks), axis=-1, keepdims=True)
    inverse = functions.where(top < SMALLEST, 0.0, 127.0 / top)
    codes = functions.clip(functions.round(blocks * inverse), -127.0, 127.0)
    rounded = (codes * (top * SCALE_OF_TOP)).reshape(rows, columns + missing)[:, :columns]
    return run("stop_gradient", rounded) + (x - run("stop_gradient", x))  # type: ignore[no-any-return]
