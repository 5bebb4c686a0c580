"""Ops: complex numbers and their parts, element by element.

`complex`, `real`, `imag`, `conj` and `angle` are what users call. `part` and `join` are how
compiled programs reach the interleaved memory of complex arrays, and `function_part` is one part of
a function of `kernel.math.complex`: `passes.split` puts them in. Reals are complex numbers whose
imaginary part is 0. Transposes do not conjugate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType, bool_, f32, f64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import REGISTRY, op
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import zeros_like
from tetrad.ops.cases import joined, same_shaped, unary
from tetrad.ops.movement import Reader
from tetrad.ops.rules import (
    ANY_FLOATS,
    ANY_NUMBERS,
    COMPLEX,
    EVERY,
    Array,
    check_dtype,
    check_same,
    complex_ulps,
    ieee,
    real_type,
    same_type,
    transcendental_ulps,
)

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val
    from tetrad.kernel.math import complex as kc
    from tetrad.kernel.math import exponential as km
else:
    kc = lazy.later("tetrad.kernel.math.complex")
    km = lazy.later("tetrad.kernel.math.exponential")

PARTS: tuple[DType, ...] = (f32, f64)


# -- from parts and to parts -----------------------------------------------------------------------


def complex_type(name: str) -> Any:
    def rule(re: ArrayType, im: ArrayType) -> ArrayType:
        check_same(name, (re, im))
        check_dtype(name, re.dtype, PARTS)
        return re.with_dtype(re.dtype.complex)

    return rule


@op(type=complex_type("complex"), cases=same_shaped(2, PARTS), dtypes=PARTS, promote="parts")
def complex_(re: Array, im: Array) -> Array:
    """The complex number with this real part and this imaginary part.

    >>> complex_(np.array([1.0, 0.0]), np.array([2.0, -0.0]))
    array([1.+2.j, 0.-0.j])
    """
    return joined(*np.broadcast_arrays(re, im))


@op(
    type=real_type("real", ANY_NUMBERS),
    truth="",
    cases=unary(ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
)
def real(x: Array) -> Array:
    """The real part.

    >>> real(np.array([1 + 2j, 3 - 4j]))
    array([1., 3.])
    """
    return np.asarray(np.real(x))


@real.lower
def real_lower(k: KernelBuilder, x: Val) -> Val:
    return x


@real.transpose
def real_transpose(ct: Node, x: Node) -> Node:
    result: Node = complex_(ct, zeros_like(ct)) if x.type.dtype.is_complex else ct
    return result


@op(
    type=real_type("imag", EVERY),
    cases=unary(EVERY),
    dtypes=EVERY,
    promote="numeric",
)
def imag(x: Array) -> Array:
    """The imaginary part; of a real number it is 0.

    >>> imag(np.array([1 + 2j, 3 - 4j]))
    array([ 2., -4.])
    """
    return np.asarray(np.imag(x))


@imag.lower
def imag_lower(k: KernelBuilder, x: Val) -> Val:
    return k.const(False if x.dtype is bool_ else 0, x.dtype)


@imag.transpose
def imag_transpose(ct: Node, x: Node) -> Node:
    result: Node = complex_(zeros_like(ct), -ct) if x.type.dtype.is_complex else zeros_like(ct)
    return result


complex_.transpose(lambda ct, re, im: real(ct), lambda ct, re, im: imag(-ct))
# Linear in both parts together, not in each for itself: the other part does not stay when one
# changes.
complex_.jvp(
    lambda t, z, re, im: complex_(t, zeros_like(t)), lambda t, z, re, im: complex_(zeros_like(t), t)
)


@op(
    type=same_type("conj", ANY_NUMBERS),
    truth="",
    cases=unary(ANY_NUMBERS),
    dtypes=ANY_NUMBERS,
    promote="numeric",
)
def conj(x: Array) -> Array:
    """The complex conjugate: the sign of the imaginary part is changed.

    >>> conj(np.array([1 + 2j, 3 - 4j]))
    array([1.-2.j, 3.+4.j])
    """
    return np.asarray(np.conj(x))


@conj.lower
def conj_lower(k: KernelBuilder, x: Val) -> Val:
    return x


conj.transpose(lambda ct, x: conj(ct))


@op(
    type=real_type("angle", ANY_FLOATS),
    cases=unary(ANY_FLOATS),
    dtypes=ANY_FLOATS,
    promote="float",
    ulps={**transcendental_ulps("atan2"), **complex_ulps("angle")},
    cost=20,
)
@ieee
def angle(x: Array) -> Array:
    """The angle of a complex number, between -pi and pi: atan2(imag, real).

    >>> angle(np.array([1 + 0j, 1j, -1 + 0j]))
    array([0.        , 1.57079633, 3.14159265])
    """
    wide = np.arctan2(np.imag(x).astype(np.float64), np.real(x).astype(np.float64))
    return wide.astype(np.real(x).dtype)


@angle.lower
def angle_lower(k: KernelBuilder, x: Val) -> Val:
    return km.atan2(k, k.const(0, x.dtype), x)


@angle.jvp
def angle_jvp(t: Node, y: Node, x: Node) -> Node:
    """The part of the change that goes around 0, over the distance from it."""
    result: Node = imag(t / x) if x.type.dtype.is_complex else zeros_like(t)
    return result


# -- memory ----------------------------------------------------------------------------------------


def part_type(x: ArrayType, *, which: int) -> ArrayType:
    check_dtype("part", x.dtype, COMPLEX)
    if which not in (0, 1):
        raise ShapeError(f"part: which is 0 (real) or 1 (imaginary), got {which}")
    return x.with_dtype(x.dtype.real)


@op(type=part_type, public=False)
def part(x: Array, *, which: int) -> Array:
    """One part of a complex array, read from the memory where the two lie side by side.

    >>> part(np.array([1 + 2j, 3 - 4j]), which=1)
    array([ 2., -4.])
    """
    return np.asarray(np.imag(x) if which else np.real(x))


@op(type=complex_type("join"), public=False)
def join(re: Array, im: Array) -> Array:
    """A complex array, written to memory part beside part.

    >>> join(np.array([1.0, 3.0]), np.array([2.0, -4.0]))
    array([1.+2.j, 3.-4.j])
    """
    return joined(*np.broadcast_arrays(re, im))


@part.read
def part_read(k: KernelBuilder, at: tuple[Val, ...], x: Reader, *, which: int) -> Val:
    return x.part(at, which)


part.not_differentiable("compiling puts it in, after derivatives were taken")
join.not_differentiable("compiling puts it in, after derivatives were taken")


# -- functions -------------------------------------------------------------------------------------


def function_part_type(*parts: ArrayType, function: str, which: int) -> ArrayType:
    check_same(function, parts)
    check_dtype(function, parts[0].dtype, PARTS)
    if function not in kc.FUNCTIONS:
        raise DtypeError(
            f"function_part: unknown function {function!r}",
            hint=f"known: {', '.join(kc.FUNCTIONS)}",
        )
    return parts[0]


@op(type=function_part_type, ulps={f32: 1, f64: 1}, cost=60, public=False)
def function_part(*parts: Array, function: str, which: int) -> Array:
    """One part of a function of one or two complex numbers, which are given by their parts.

    >>> function_part(np.array([0.0]), np.array([np.pi]), function="exp", which=0)
    array([-1.])
    """
    pairs = zip(parts[::2], parts[1::2], strict=True)
    result = REGISTRY[function].reference(*(joined(*np.broadcast_arrays(*pair)) for pair in pairs))
    return np.asarray(np.imag(result) if which else np.real(result)).copy()


@function_part.lower
def function_part_lower(k: KernelBuilder, *parts: Val, function: str, which: int) -> Val:
    return kc.FUNCTIONS[function](k, *parts)[which]


function_part.not_differentiable("compiling puts it in, after derivatives were taken")
