"""Tracing, operands: from what users pass (arrays, NumPy arrays, Python numbers, sizes) to what an
op takes.

Receives an op's name and loose operands; converts, promotes and broadcasts them; returns the op
applied. Every public function goes through here, so the rules of promotion and broadcasting hold
everywhere alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import (
    FLOAT8_NAMES,
    PYTHON_NUMBERS,
    DType,
    as_dtype,
    bool_,
    canonical,
    default_int,
    f32,
    f64,
    i4,
    i8,
    keeps_wide,
    python_dtypes,
    u4,
    u8,
)
from tetrad.core.errors import (
    AxisError,
    DtypeError,
    ShapeError,
    TetradError,
    TraceError,
    UnsupportedError,
    an,
)
from tetrad.core.floats import are_plain, guarded
from tetrad.core.op import REGISTRY, Op
from tetrad.core.owners import is_lasting
from tetrad.core.promotion import Kind, as_float, operand_dtypes, result_dtype
from tetrad.core.sizes import Atom, Shape, Size, SizeExpr, is_static, product
from tetrad.core.source import called_name
from tetrad.core.types import ArrayType
from tetrad.ops.rules import broadcast_shapes
from tetrad.tracing.array import Array, Borrowed, TracedArray, alias, fail, kept, located, node_of
from tetrad.tracing.context import current_trace

NIBBLE_RANGE = {i4: (-8, 7), u4: (0, 15)}
NIBBLE_NAMES, BYTES = {"int4": i4, "uint4": u4}, {i4: i8, u4: u8}
# scalars of NumPy: the Python number of each kind; dtypes that NumPy itself chooses
NUMBER_KINDS: dict[str, type] = {
    "b": bool,
    "i": int,
    "u": int,
    "f": float,
    "c": complex,
}
FLOATS_OF_ML_DTYPES = frozenset({"bfloat16", *FLOAT8_NAMES})
UNASKED = frozenset({"bool", "int64", "float64", "complex128"})
Operand = Array | np.ndarray | np.generic | bool | int | float | complex | SizeExpr


def run(name: str, *args: Array, **params: Any) -> Array:
    """Apply an op of the registry."""
    result: Array = REGISTRY[name](*args, **params)
    return result


def is_operand(x: object) -> bool:
    return isinstance(x, Operand) or hasattr(x, "__array__")


def as_array(x: Any) -> Array:
    """An array from an operand; Python numbers take the default dtype of their kind. What somebody
    may write to is copied: the result may be the array itself, or a view of it."""
    return alias(x) if type(x) is Array else kept(borrowed(x))


def borrowed(x: Any) -> Array:
    """The same over the memory of a NumPy array, for functions that only read it."""
    if isinstance(x, Array):
        return x
    if type(x) in PYTHON_NUMBERS:
        return scalar(x, python_dtypes()[type(x)])
    if isinstance(x, SizeExpr):
        return size_array(x, default_int())
    if isinstance(x, np.generic):
        return from_numpy_scalar(x)
    if is_operand(x):
        return lent(np.asarray(x))
    name = called_name()
    fail(
        DtypeError,
        (f"{name}: " if name else "")
        + f"expected an array or a number, got {an(type(x).__name__)}",
        "convert with td.asarray; td.stack joins a list of arrays",
    )


def owned(x: Any) -> Any:
    """An operand whose values nobody changes; numbers stay numbers."""
    return x if type(x) in PYTHON_NUMBERS or isinstance(x, np.generic) else as_array(x)


def number_of(x: np.generic) -> Any:
    """A scalar of NumPy as the Python number it is where it meets arrays; what is none stays.

    >>> number_of(np.float32(0.5)), number_of(np.int64(3)), number_of(np.True_)
    (0.5, 3, True)
    """
    kind = NUMBER_KINDS.get(x.dtype.kind)
    if kind is None and x.dtype.name in FLOATS_OF_ML_DTYPES:
        kind = float
    return x if kind is None else kind(x)


def from_numpy_scalar(x: np.generic) -> Array:
    """Scalars that NumPy makes when nobody asks for a dtype are numbers, and take the default of
    their kind; others were named, and keep theirs."""
    if x.dtype.name not in UNASKED:
        return lent(np.asarray(x))
    dtype = python_dtypes()[NUMBER_KINDS[x.dtype.kind]]
    if dtype.is_integer and not dtype_holds(dtype, number_of(x)):
        return lent(np.asarray(x))
    return scalar(number_of(x), dtype)


def wrap(values: np.ndarray, over: Callable[[np.ndarray], Array] = Array.from_numpy) -> Array:
    """A NumPy array as it is, if there is a dtype for it; bytes in the other order are turned."""
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.itemsize >= 8 and values.dtype.kind in "fiuc":
        values = narrowed(values)
    if values.dtype.name in FLOAT8_NAMES:
        codes = np.array(values, order="C").view(np.uint8)
        return Array.from_bytes(codes, ArrayType(as_dtype(values.dtype), values.shape))
    if values.dtype.name in NIBBLE_NAMES:  # of ml_dtypes, a byte each
        dtype = NIBBLE_NAMES[values.dtype.name]
        return convert_nibbles(Array.from_numpy(values.astype(BYTES[dtype].np)), dtype)
    try:
        return over(values)
    except TetradError as error:
        raise located(error) from None


def narrowed(values: np.ndarray) -> np.ndarray:
    """The values in a dtype of 32 bits, where those of 64 bits are not kept."""
    if keeps_wide():
        return values
    kind = as_dtype(values.dtype)
    with np.errstate(all="ignore"):
        return values.astype(canonical(kind).np)


def lent(values: np.ndarray) -> Array:
    """The same, to be read only now if somebody may write to it."""
    return wrap(values) if is_lasting(values) else wrap(values, Borrowed.over)


def scalar(value: bool | int | float | complex, dtype: DType) -> Array:
    """A Python number as an array without axes."""
    if dtype.is_float8:
        return convert_narrow(scalar(value, f64), dtype)
    if dtype.is_nibble:
        low, high = NIBBLE_RANGE[dtype]
        if isinstance(value, complex) or not low <= value <= high:
            fail(DtypeError, f"the number {value} does not fit {dtype}", f"from {low} to {high}")
        return convert_nibbles(scalar(value, i8), dtype)
    if isinstance(value, complex):
        if not dtype.is_complex:
            fail(
                DtypeError,
                f"the number {value} does not fit {dtype}",
                "take a part: value.real or value.imag",
            )
    elif dtype.is_integer and not dtype_holds(dtype, value):
        fail(
            DtypeError,
            f"the number {value} does not fit {dtype}",
            "convert the array with astype first",
        )
    with np.errstate(all="ignore"):
        return Array.from_numpy(
            np.asarray(value, dtype.np) if are_plain() else under_own_floats(value, dtype)
        )


@guarded
def under_own_floats(value: complex, dtype: DType) -> np.ndarray:
    return np.asarray(value, dtype.np)


def dtype_holds(dtype: DType, value: float) -> bool:
    info = np.iinfo(dtype.np)
    return math.isfinite(value) and info.min <= value <= info.max


def kind_of(x: Any) -> Kind:
    """The dtype of an array; the type of a Python number, which takes the dtype of what it
    meets."""
    if isinstance(x, Array):
        return x.weak if isinstance(x, TracedArray) and x.weak else x.type.dtype
    if type(x) in PYTHON_NUMBERS:
        return type(x)
    if type(x) is np.ndarray and x.dtype.isnative:
        return dtype_of(x.dtype)
    if isinstance(x, np.generic) and type(number := number_of(x)) in PYTHON_NUMBERS:
        return type(number)
    return int if isinstance(x, SizeExpr) else borrowed(x).type.dtype


def convert(x: Any, dtype: DType) -> Array:
    """An operand as an array of this dtype."""
    if isinstance(x, TracedArray) and x.wide is not None and x.type.dtype is not dtype:
        return convert(TracedArray.of(x.wide, x.home_trace), dtype)
    if isinstance(x, Array):
        if x.type.dtype.is_narrow or dtype.is_narrow:
            return x if x.type.dtype is dtype else convert_narrow(x, dtype)
        return x if x.type.dtype is dtype else run("cast", x, dtype=dtype)
    if isinstance(x, np.generic):
        x = number_of(x)
    if type(x) in PYTHON_NUMBERS:
        return scalar(x, dtype)
    return size_array(x, dtype) if isinstance(x, SizeExpr) else convert(borrowed(x), dtype)


def as_positions(found: Array, size: Size) -> Array:
    """Positions along an axis of this size, in the default integer if that reaches the end."""
    most = size if isinstance(size, int) else size.max
    return convert(found, default_int()) if most < 1 << 31 else found


def convert_narrow(x: Array, dtype: DType) -> Array:
    """To or from elements of four or eight bits."""
    if x.type.dtype.is_float8:
        codes = run("unpack_float8", x)
        return convert(run("decode_float8", codes, dtype=x.type.dtype), dtype)
    if dtype.is_float8:
        wide = x if x.type.dtype in (f32, f64) else convert(x, f32)
        return run("pack_float8", run("encode_float8", wide, dtype=dtype), dtype=dtype)
    return convert_nibbles(x, dtype)


def convert_nibbles(x: Array, dtype: DType) -> Array:
    """To or from integers of four bits, through bytes. Floats saturate, integers wrap."""
    if x.type.dtype.is_nibble:
        return convert(run("unpack_nibbles", x), dtype)
    if x.type.dtype.is_float:
        low, high = NIBBLE_RANGE[dtype]
        x = apply("maximum", x, float(low))
        x = apply("minimum", x, float(high))
    return run("pack_nibbles", convert(x, BYTES[dtype]))


def as_floats(x: Any) -> Array:
    """An operand as floats (or complex numbers)."""
    given = as_array(x)
    return convert(given, as_float(given.dtype))


def dtype_of(like: Any) -> DType:
    """The dtype a user named, or the one that takes its place."""
    try:
        return canonical(as_dtype(like))
    except TetradError as error:
        raise located(error) from None


def common(args: Sequence[Any], style: str = "numeric") -> list[Array]:
    """The operands as arrays, promoted."""
    try:
        dtypes = operand_dtypes(style, [kind_of(x) for x in args])
    except TetradError as error:
        raise located(error) from None
    return [convert(x, dtype) for x, dtype in zip(args, dtypes, strict=True)]


def common_dtype(args: Sequence[Any]) -> DType:
    try:
        return result_dtype(_kind_or_dtype(x) for x in args)
    except TetradError as error:
        raise located(error) from None


def _kind_or_dtype(x: Any) -> Kind:
    """Like kind_of, and dtypes count as themselves, Python's types as its numbers."""
    if isinstance(x, type) and x in PYTHON_NUMBERS:
        return x
    if isinstance(x, DType | str | np.dtype | type):
        return dtype_of(x)
    return kind_of(x)


def broadcast(name: str, arrays: Sequence[Array]) -> list[Array]:
    """All arrays with one shape."""
    if all(a.type.shape == arrays[0].type.shape for a in arrays):
        return list(arrays)
    try:
        shape = broadcast_shapes(name, *(a.type for a in arrays))
    except TetradError as error:
        raise located(error) from None
    if any(isinstance(a, TracedArray) for a in arrays):
        # repeated by the program, not stored as a large constant
        arrays = [traced(a) for a in arrays]
    return [expand(a, shape) for a in arrays]


def expand(x: Array, shape: Shape) -> Array:
    if x.type.shape == shape:
        return x
    return run("expand", x if is_static(shape) else traced(x), shape=shape)


def elementwise(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Array:
    """An elementwise op on loose operands."""
    arrays = broadcast(op.name, common(args, op.promote))
    if op.truth is not None and arrays[0].type.dtype is bool_:
        return run(op.truth, *arrays) if op.truth else arrays[0]
    result: Array = op(*arrays, **params)
    return result


def apply(name: str, *args: Any) -> Array:
    """The elementwise op of this name on loose operands, without settings."""
    return elementwise(REGISTRY[name], args, {})


def traced(x: Array) -> Array:
    """The array as a node of the current trace, if there is one: what follows is recorded, not
    evaluated."""
    trace = current_trace()
    return (
        x
        if trace is None or isinstance(x, TracedArray)
        else TracedArray.of(node_of(x, trace), trace)
    )


def filled(value: Array, shape: Shape) -> Array:
    """An array of one repeated value. While tracing it is recorded, so it takes no memory until the
    program runs."""
    return run("expand", traced(value), shape=shape)


def size_array(size: Size, dtype: DType) -> Array:
    """A size as a number the program computes with: known now, or counted when the program runs."""
    if isinstance(size, int):
        return scalar(size, dtype)
    if current_trace() is None:
        fail(TraceError, f"the size {size} is only known inside a compiled function")
    total = scalar(0, dtype)
    for monomial, factor in size.terms:
        term = scalar(factor, dtype)
        for atom in monomial:
            term = run("multiply", term, _count(atom, dtype))
        total = run("add", total, term)
    return total


def _count(atom: Atom, dtype: DType) -> Array:
    """How many elements an axis of this size has: ones, added up."""
    ones = filled(scalar(1, dtype), (SizeExpr((((atom,), 1),)),))
    return run("reduce_sum", ones, axes=(0,))


def axis_of(name: str, axis: int, rank: int) -> int:
    """A checked axis, counted from the front."""
    if not isinstance(axis, int | np.integer):
        hint = "list it in static_argnums or static_argnames" if isinstance(axis, Array) else None
        fail(ShapeError, f"{name}: the axis must be an int, got {axis!r}", hint)
    if not -rank <= axis < rank:
        hint = f"axes go from {-rank} to {rank - 1}" if rank else "axis=None, or leave it out"
        fail(AxisError, f"{name}: axis {axis} is out of range for an array with {rank} axes", hint)
    return int(axis) % rank


def axes_of(name: str, axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Checked axes, in order; None means all."""
    if axis is None:
        return tuple(range(rank))
    axes = tuple(
        axis_of(name, a, rank) for a in (axis if isinstance(axis, tuple | list) else (axis,))
    )
    if len(set(axes)) != len(axes):
        fail(ShapeError, f"{name}: axis {axis} names an axis twice")
    return tuple(sorted(axes))


def told_of(*values: Any) -> str:
    """From which argument the first traced one of these values came, for an error."""
    x = next((v for v in values if isinstance(v, TracedArray)), None)
    return "" if x is None else str(lazy.module("tetrad.tracing.origins").told(x))


def shape_of(name: str, shape: Any) -> Shape:
    """A shape given as a size or a sequence of sizes."""
    sizes = (
        tuple(shape)
        if isinstance(shape, Iterable) and not isinstance(shape, SizeExpr | Array)
        else (shape,)
    )
    if not all(
        isinstance(n, int | np.integer | SizeExpr) and not isinstance(n, bool | np.bool_)
        for n in sizes
    ):
        hint = (
            "a traced value cannot be a size: list the argument in static_argnums, or mark an "
            "axis with a td.Dim"
        )
        told = hint if any(isinstance(n, Array) for n in sizes) else "convert sizes with int()"
        from_ = told_of(*sizes)
        fail(ShapeError, f"{name}: a shape holds ints and Dims, got {sizes!r}{from_}", told)
    return tuple(n if isinstance(n, SizeExpr) else int(n) for n in sizes)


def check_device(name: str, device: Any) -> None:
    if device not in (None, "cpu"):
        fail(UnsupportedError, f"{name}: there is no device {device!r}", "devices: cpu")


def check_shape(name: str, shape: Any) -> Shape:
    """A shape to allocate: no negative sizes, and no more elements than there can be."""
    sizes = shape_of(name, shape)
    if any(isinstance(n, int) and n < 0 for n in sizes):
        fail(ShapeError, f"{name}: negative size in {list(sizes)}")
    try:
        product(sizes)
    except TetradError as error:
        fail(ShapeError, f"{name}: {error.message}", error.hint)
    return sizes


def divide_size(total: Size, by: Size) -> Size | None:
    """total / by when it is exact, else None. Sizes with Dims divide term by term by an int or a
    single product."""
    if isinstance(total, int) and isinstance(by, int):
        return total // by if by and total % by == 0 else None
    factors, number = _product_form(by)
    if factors is None or number == 0:
        return None
    quotient: Size = 0
    for monomial, factor in [] if isinstance(total, int) else total.terms:
        left = list(monomial)
        for atom in factors:
            if atom not in left:
                return None
            left.remove(atom)
        if factor % number:
            return None
        term: Size = factor // number
        for atom in left:
            term = term * SizeExpr((((atom,), 1),))
        quotient = quotient + term
    return None if isinstance(total, int) and total else quotient


def _product_form(size: Size) -> tuple[tuple[Atom, ...] | None, int]:
    if isinstance(size, int):
        return (), size
    return size.terms[0] if len(size.terms) == 1 else (None, 0)
