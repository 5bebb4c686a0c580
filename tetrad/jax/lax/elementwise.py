"""JAX's names, `jax.lax`: elementwise functions, which want operands of one dtype and promote
nothing.

Receives arrays and numbers (a Python number counts as float32, int32, ...); an error where dtypes
differ, or where arrays with axes have a different number of them. What is computed is what the
function of `td` computes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, named
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.jax._shell.tables import found, td
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, common_dtype, convert, kind_of

FLOATS = {  # of floats and complex numbers only
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
    "atan2": "atan2", "atanh": "atanh", "bessel_i0e": "special.i0e", "bessel_i1e": "special.i1e",
    "cbrt": "cbrt", "ceil": "ceil", "cos": "cos", "cosh": "cosh", "digamma": "special.digamma",
    "erf": "erf", "erf_inv": "special.erfinv", "erfc": "erfc", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "floor": "floor", "igamma": "special.gammainc",
    "igammac": "special.gammaincc", "is_finite": "isfinite", "lgamma": "special.gammaln",
    "log": "log", "log1p": "log1p", "logistic": "sigmoid", "nextafter": "nextafter",
    "polygamma": "special.polygamma", "reciprocal": "reciprocal", "rsqrt": "rsqrt", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "zeta": "special.zeta",
}  # fmt: skip
NUMBERS = {
    "abs": "abs", "add": "add", "eq": "equal", "ge": "greater_equal", "gt": "greater",
    "le": "less_equal", "lt": "less", "max": "maximum", "min": "minimum", "mul": "multiply",
    "ne": "not_equal", "neg": "negative", "sign": "sign", "square": "square", "sub": "subtract",
}  # fmt: skip
BITS = {
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "shift_left": "bitwise_left_shift", "shift_right_arithmetic": "bitwise_right_shift",
}  # fmt: skip
TABLE = FLOATS | NUMBERS | BITS


def strict(name: str) -> Callable[..., Array]:
    """The elementwise function of this name, for operands of one dtype."""
    function = found(TABLE[name])

    @functools.wraps(function)
    def checked(*operands: Any, **settings: Any) -> Array:
        for key in ("accuracy", "precision"):
            settings.pop(key, None)
        arrays = of_one_dtype(name, operands)
        kind = arrays[0].dtype.kind
        if name in FLOATS and kind not in "fc":
            fail(
                DtypeError,
                f"lax.{name}: takes floats or complex numbers, got {arrays[0].type}",
                f"jnp.{name} converts; or astype(jnp.float32)",
            )
        if name in BITS and kind not in "iub":
            fail(DtypeError, f"lax.{name}: takes integers or bools, got {arrays[0].type}")
        result: Array = function(*arrays, **settings)
        return result

    checked.__name__ = checked.__qualname__ = name
    return checked


def of_one_dtype(name: str, operands: tuple[Any, ...]) -> list[Array]:
    """The operands as arrays, if they have one dtype and one rank (numbers have any)."""
    dtypes = [dtype_of_operand(x) for x in operands]
    if any(d is not dtypes[0] for d in dtypes):
        shown = ", ".join(d.name for d in dtypes)
        fail(
            DtypeError,
            f"lax.{name} requires arguments to have the same dtypes, got {shown}",
            "jnp functions promote; or convert with astype",
        )
    arrays = [convert(x, d) for x, d in zip(operands, dtypes, strict=True)]
    ranks = {x.ndim for x in arrays if x.ndim}
    if len(ranks) > 1:
        fail(
            DtypeError,
            f"lax.{name}: arrays must have the same number of dimensions, got "
            f"{', '.join(str(x.type) for x in arrays)}",
            "jnp functions broadcast; or lax.broadcast_in_dim",
        )
    return arrays


def dtype_of_operand(x: Any) -> DType:
    kind = kind_of(x)
    return kind if isinstance(kind, DType) else common_dtype([x])


def div(x: Any, y: Any) -> Any:
    """x / y; integers are divided towards zero, by zero give -1."""
    a, b = of_one_dtype("div", (x, y))
    if a.dtype.is_float or a.dtype.is_complex:
        return td.divide(a, b)
    by = td.where(b == 0, 1, b)
    down = td.floor_divide(a, by)
    exact = td.where((down < 0) & (down * by != a), down + 1, down)
    return td.where(b == 0, -1 if a.dtype.is_signed else np.iinfo(a.dtype.np).max, exact)


def rem(x: Any, y: Any) -> Any:
    """What division towards zero leaves; it has the sign of x."""
    a, b = of_one_dtype("rem", (x, y))
    if a.dtype.is_float:
        return td.fmod(a, b)
    left = td.where(b == 0, a, a - div(a, b) * td.where(b == 0, 1, b))
    return convert(left, a.dtype)


def pow(x: Any, y: Any) -> Any:
    """x to the power y; y may be an integer where x is none."""
    if isinstance(y, int) and not isinstance(y, bool):
        return integer_pow(x, y)
    return td.pow(as_array(x), as_array(y))


def integer_pow(x: Any, y: int) -> Any:
    """x to the power of a known integer: products of squares."""
    base = as_array(x)
    if y < 0:
        return td.reciprocal(integer_pow(base, -y))
    made: Array | None = None
    while y:
        if y & 1:
            made = base if made is None else made * base
        y >>= 1
        base = base * base if y else base
    return td.ones_like(base) if made is None else made


def round(x: Any, rounding_method: Any = 0) -> Any:
    """Whole numbers; halves go away from zero, or to even numbers."""
    given = as_array(x)
    if int(rounding_method):
        return td.round(given)
    near = td.trunc(given)
    away = near + td.copysign(td.ones_like(given), given)
    return td.where(td.abs(given - near) >= 0.5, away, near)


def bitwise_not(x: Any) -> Any:
    given = as_array(x)
    name = "logical_not" if given.dtype.kind == "b" else "bitwise_invert"
    return getattr(td, name)(given)


def shift_right_logical(x: Any, y: Any) -> Any:
    """Bits move down; zeros come in from above."""
    a, b = of_one_dtype("shift_right_logical", (x, y))
    if not a.dtype.is_signed:
        return td.bitwise_right_shift(a, b)
    unsigned = f"uint{a.dtype.bits}"
    moved = td.bitwise_right_shift(a.astype(unsigned), b.astype(unsigned))
    return moved.astype(a.dtype)


def population_count(x: Any) -> Array:
    """How many bits are set, of a negative number too (NumPy counts those of its magnitude)."""
    (given,) = of_one_dtype("population_count", (x,))
    if given.dtype.kind not in "iu":
        fail(DtypeError, f"lax.population_count: takes integers, got {given.type}")
    return convert(td.bitwise_count(convert(given, named(f"u{given.dtype.bits}"))), given.dtype)


def clz(x: Any) -> Array:
    """How many bits above the highest set one are zero."""
    given = as_array(x)
    left = given
    for step in (1, 2, 4, 8, 16, 32):
        if step < given.dtype.bits:
            left = left | shift_right_logical(left, convert(step, given.dtype))
    return convert(given.dtype.bits - population_count(left), given.dtype)


def mulhi(x: Any, y: Any) -> Any:
    """The upper half of products of integers."""
    a, b = of_one_dtype("mulhi", (x, y))
    if a.dtype.bits > 32:
        fail(DtypeError, f"lax.mulhi: integers of at most 32 bits, got {a.type}")
    wide = ("int" if a.dtype.is_signed else "uint") + "64"
    with td.config.context(wide_types=True):
        return (a.astype(wide) * b.astype(wide) >> a.dtype.bits).astype(a.dtype)


def complex(x: Any, y: Any) -> Any:
    return td.complex(*of_one_dtype("complex", (x, y)))


def real(x: Any) -> Array:
    return complex_only("real", x).real


def imag(x: Any) -> Array:
    return complex_only("imag", x).imag


def conj(x: Any) -> Any:
    """The conjugate; of real numbers complex ones."""
    given = as_array(x)
    return td.conj(given if given.dtype.is_complex else given.astype(given.dtype.complex))


def complex_only(name: str, x: Any) -> Array:
    given = as_array(x)
    if not given.dtype.is_complex:
        fail(DtypeError, f"lax.{name}: takes complex numbers, got {given.type}", f"jnp.{name}")
    return given


def betainc(a: Any, b: Any, x: Any) -> Any:
    return td.special.betainc(a, b, x)


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """`on_true` where pred holds, else `on_false`: of one shape and dtype."""
    return select_n(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Any:
    """Each element from the case that `which` names: a bool, or an integer from 0."""
    chosen, arrays = as_array(which), of_one_dtype("select", cases)
    shapes = {x.shape for x in arrays}
    if len(shapes) > 1 or (chosen.ndim and chosen.shape not in shapes):
        fail(
            ShapeError,
            f"lax.select: cases must have one shape, got which {chosen.type} and "
            f"{', '.join(str(x.type) for x in arrays)}",
            "jnp.where broadcasts",
        )
    if chosen.dtype.kind == "b":
        return td.where(chosen, arrays[-1], arrays[0])
    made = arrays[0]
    for i, case in enumerate(arrays[1:], 1):
        made = td.where(chosen >= i, case, made)
    return made


def clamp(min: Any, x: Any, max: Any) -> Any:
    """x held between two bounds; a bound is one number, or has the shape of x."""
    low, given, high = of_one_dtype("clamp", (min, x, max))
    for bound in (low, high):
        if bound.ndim and bound.shape != given.shape:
            fail(ShapeError, f"lax.clamp: bounds are numbers or {given.type}, got {bound.type}")
    return td.minimum(td.maximum(given, low), high)


OWN = """
    betainc bitwise_not clamp clz complex conj div imag integer_pow mulhi population_count pow real
    rem round select select_n shift_right_logical
""".split()  # noqa: SIM905
