"""Complex numbers as users meet them: vectors of the specification, errors, parts, derivatives;
eager and compiled."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, evaluate_lowered
from tetrad.core.dtypes import c64, c128, f32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.graph.evaluate import evaluate
from tetrad.ops.cases import joined, random_array
from tetrad.ops.complex import complex_, function_part, join, part
from tetrad.ops.running.op import cumprod_parts, product_parts

Function = Callable[..., Any]
BOTH = pytest.mark.parametrize("how", [lambda f: f, td.jit], ids=["eager", "jit"])
DTYPES = pytest.mark.parametrize("dtype", [c64, c128], ids=str)


# -- the vectors of the specification --------------------------------------------------------------

VECTORS: list[tuple[Function, tuple[complex, ...], complex]] = [
    (lambda x, y: x * y, (1 + 2j, 3 + 4j), -5 + 10j),
    (lambda x, y: x / y, (1 + 2j, 3 + 4j), 0.44 + 0.08j),
    (lambda x, y: x * y, (1, 1j), 1j),
    (lambda x: x / x, (3 - 7j,), 1),
    (td.exp, (1j * math.pi,), -1),
    (td.exp, (1,), math.e),
    (td.log, (1,), 0),
    (td.log, (1j,), 0.5j * math.pi),
    (td.log, (-1,), 1j * math.pi),
    (td.sqrt, (4,), 2),
    (td.sqrt, (3 + 4j,), 2 + 1j),
    (lambda x, y: x + y, (1 + 2j, 4 - 1j), 5 + 1j),
    (lambda x, y: x + y, (3 - 1j, 0.5 + 0.5j), 3.5 - 0.5j),
    (lambda x, y: x - y, (5 + 1j, 2 + 3j), 3 - 2j),
    (lambda x: td.square(td.abs(x)), (3 + 4j,), 25),
    (lambda x: td.real(x * td.conj(x)), (3 + 4j,), 25),
]


@BOTH
@DTYPES
@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_vectors(number: int, dtype: Any, how: Function) -> None:
    function, args, want = VECTORS[number]
    got = complex(how(function)(*(td.asarray(complex(a), dtype=dtype) for a in args)))
    assert abs(got - want) <= (1e-6 if dtype is c64 else 1e-14) * max(1, abs(want))


@BOTH
def test_the_sign_of_zero_chooses_the_root(how: Function) -> None:
    above, below = (how(td.sqrt)(td.asarray(complex(-4.0, im))).item() for im in (0.0, -0.0))
    assert (above, below) == (2j, -2j)


@BOTH
@DTYPES
def test_functions_are_those_of_python(dtype: Any, how: Function) -> None:
    names = [
        "exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "asinh", "acosh",
        "atanh", "log10",
    ]  # fmt: skip
    numbers = [0.3 - 0.7j, -1.5 + 0.2j, 2.5 + 3j, -0.1 - 4j]
    for name in names:
        got = np.asarray(how(getattr(td, name))(td.asarray(numbers, dtype=dtype)))
        want = [getattr(cmath, name)(complex(dtype.np.type(z))) for z in numbers]
        assert np.allclose(got, want, rtol=1e-6 if dtype is c64 else 1e-14), name


# -- types -----------------------------------------------------------------------------------------


def test_promotion_with_python_numbers() -> None:
    x, d, n = td.asarray([1.0, 2.0]), td.asarray([1.0], dtype="float64"), td.asarray([3])
    assert [(a * 1j).dtype for a in (x, d, n, td.asarray([True]))] == [c64, c128, c64, c64]
    assert ((x + 1j) * 2.5).dtype is c64 and (d * (x[0] + 1j)).dtype is c128
    assert (
        td.asarray([1, 2.5, 1j]).dtype is c64 and td.asarray(1j, dtype="complex128").dtype is c128
    )


def test_parts_of_arrays() -> None:
    z = td.asarray([1 + 2j, 3 - 4j])
    assert (
        z.real.tolist() == [1, 3]
        and z.imag.tolist() == [2, -4]
        and z.conj().tolist() == [1 - 2j, 3 + 4j]
    )
    assert td.complex(z.real, 1).tolist() == [1 + 1j, 3 + 1j]
    assert td.complex(td.asarray([1, 2]), td.asarray([0.5], dtype="float16")).dtype is c64
    assert (complex(z[0]), z[0].item(), td.isdtype(z.dtype, "complex floating")) == (
        1 + 2j,
        1 + 2j,
        True,
    )


@pytest.mark.parametrize(
    ("what", "function"),
    [
        ("less: takes f32.*got c64", lambda z: z < z),
        ("max: takes f32.*got c64", td.max),
        ("maximum: takes f32.*got c64", lambda z: td.clip(z, 0, 1)),
        ("floor: takes f32.*got c64", td.floor),
        ("argmax: takes f32.*got c64", td.argmax),
    ],
)
def test_what_needs_an_order_is_refused(what: str, function: Function) -> None:
    for how in (lambda f: f, td.jit):
        with pytest.raises(
            DtypeError, match=f"^{what}\n(.|\n)*hint: complex numbers have no order"
        ):
            how(function)(td.asarray([1 + 2j]))


def test_a_complex_number_is_no_real_one() -> None:
    with pytest.raises(
        DtypeError, match=r"cast: a complex number is no f32(.|\n)*hint: take td.real"
    ):
        td.asarray([1j]).astype("float32")
    with pytest.raises(DtypeError, match=r"the number 1j does not fit f32"):
        td.full((2,), 1j, dtype="float32")
    with pytest.raises(DtypeError, match=r"^complex: takes f32, f64, got c64"):
        td.complex(td.asarray([1.0]), 2j)


# -- statistics, linear algebra --------------------------------------------------------------------


@BOTH
@DTYPES
def test_reductions_and_products_are_those_of_numpy(dtype: Any, how: Function) -> None:
    rng = np.random.default_rng(0)
    a, b = (random_array(rng, dtype, shape, special=0) for shape in ((4, 17), (17, 5)))
    cases: list[tuple[Function, Any]] = [
        (lambda a, b: td.mean(a, axis=1), a.mean(1)),
        (lambda a, b: td.var(a, axis=1), a.var(1)),
        (lambda a, b: td.std(a), a.std()),
        (lambda a, b: td.sum(a), a.sum()),
        (lambda a, b: td.prod(a / 4, axis=0), (a / 4).prod(0)),
        (lambda a, b: td.matmul(a, b), a @ b),
        (lambda a, b: td.vecdot(a, td.conj(a)), (a.conj() * a.conj()).sum(1)),
        (lambda a, b: td.einsum("ij,jk->ki", a, b), (a @ b).T),
        (lambda a, b: td.tensordot(a, b, axes=1), a @ b),
        (lambda a, b: td.cumulative_sum(a, axis=1), a.cumsum(1)),
        (lambda a, b: td.any(a, axis=1), a.any(1)),
    ]
    for function, want in cases:
        got = np.asarray(how(function)(a, b))
        assert got.dtype == want.dtype and np.allclose(
            got, want, rtol=2e-4 if dtype is c64 else 1e-12, atol=1e-4
        )


# -- derivatives -----------------------------------------------------------------------------------


@BOTH
def test_gradients_follow_jax(how: Function) -> None:
    z = td.asarray(3 + 4j)
    for function in (lambda z: td.square(td.abs(z)), lambda z: td.real(z * td.conj(z))):
        assert abs(how(td.grad(function))(z).item() - (6 - 8j)) < 1e-5
    assert abs(how(td.grad(td.angle))(z).item() - (-4 / 25 - 3j / 25)) < 1e-6
    assert abs(how(td.grad(lambda z: td.imag(z) + 2 * td.real(z)))(z).item() - (2 - 1j)) < 1e-6
    assert (
        abs(how(td.grad(lambda z: z * z * z, holomorphic=True))(z).item() - 3 * (3 + 4j) ** 2)
        < 1e-4
    )


def test_derivatives_of_parts_are_finite_differences() -> None:
    rng = np.random.default_rng(1)
    z, t = (rng.standard_normal(7) + 1j * rng.standard_normal(7) for _ in range(2))
    for function in (
        td.abs,
        td.angle,
        td.real,
        td.imag,
        td.conj,
        lambda z: td.complex(td.imag(z), td.real(z) ** 2),
    ):
        _, change = td.jvp(function, (td.asarray(z),), (td.asarray(t),))
        step = 1e-6
        ends = [np.asarray(function(td.asarray(z + s * step * t))) for s in (1, -1)]
        assert np.allclose(
            np.asarray(change), (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6
        )


def test_batches_of_parts() -> None:
    z = td.asarray(random_array(np.random.default_rng(2), c64, (3, 5), special=0))
    for function in (
        td.abs,
        td.angle,
        td.conj,
        lambda z: td.complex(td.real(z), td.imag(z)),
        td.prod,
    ):
        want = np.stack([np.asarray(function(row)) for row in z])
        assert np.allclose(np.asarray(td.vmap(function)(z)), want, rtol=1e-5)


# -- ops of compiled programs ----------------------------------------------------------------------


@DTYPES
def test_part_and_join_are_memory(dtype: Any) -> None:
    """part, join: every element, bits and all, whatever the size."""
    rng = np.random.default_rng(3)
    for shape in ((), (1,), (15,), (16,), (17,), (3, 65), (2, 0)):
        z = random_array(rng, dtype, shape, special=0.5)
        x = make_parameter(ArrayType(dtype, shape), 0)
        graph = make_graph(
            "parts",
            [x],
            [part(x, which=0), part(x, which=1), join(part(x, which=1), part(x, which=0))],
        )
        got = evaluate_lowered(graph, [z])
        for found, want in zip(
            got, (z.real, z.imag, joined(z.imag.copy(), z.real.copy())), strict=True
        ):
            assert difference(found, np.ascontiguousarray(want).reshape(shape)) is None
        assert [difference(a, b) for a, b in zip(got, evaluate(graph, [z]), strict=True)] == [
            None
        ] * 3


def test_part_is_of_a_complex_number() -> None:
    x = make_parameter(ArrayType(c64, (2,)), 0)
    with pytest.raises(ShapeError, match=r"part: which is 0 \(real\) or 1"):
        part(x, which=2)
    with pytest.raises(DtypeError, match="part: takes c64, c128, got f32"):
        part(part(x, which=0), which=0)
    with pytest.raises(ShapeError, match="complex: operands have different shapes"):
        complex_(make_parameter(ArrayType(f32, (2,)), 0), make_parameter(ArrayType(f32, (3,)), 1))


def test_cumprod_parts_are_products_in_order() -> None:
    z = np.array([[1 + 2j, 3 - 1j], [0.5j, 2], [-1 - 1j, 4]])
    re, im = cumprod_parts(z.real, z.imag)
    np.testing.assert_allclose(re + 1j * im, np.cumprod(z, 0), rtol=1e-15)


def test_product_parts_is_a_product_in_order() -> None:
    z = random_array(np.random.default_rng(4), c128, (6, 3), special=0)
    re, im = product_parts(z.real, z.imag)
    assert np.allclose(joined(re, im), z.prod(0))


def test_function_part_is_a_part_of_the_function() -> None:
    z = random_array(np.random.default_rng(5), c128, (9,), special=0)
    for which, want in ((0, np.tanh(z).real), (1, np.tanh(z).imag)):
        assert np.array_equal(function_part(z.real, z.imag, function="tanh", which=which), want)
    parts = [make_parameter(ArrayType(f32, (2,)), i) for i in range(2)]
    with pytest.raises(DtypeError, match="unknown function 'gamma'"):
        function_part(*parts, function="gamma", which=0)


@BOTH
def test_beside_a_pole(how: Function) -> None:
    """Where the square of the distance vanishes: log(2 / y) / 2, from the least number on."""
    y = np.array([2.0**-1074, 1e-310, 1e-250, 1e-180, 1e-160, 1e-121, 1e-119, 1e-60, 1e-9])
    want = (np.log(2) - np.log(y)) / 2
    for sign in (1, -1):
        got = np.asarray(how(td.atanh)(td.asarray(sign + 1j * y)))
        np.testing.assert_allclose(got.real, sign * want, rtol=1e-14)
        turned = np.asarray(how(td.atan)(td.asarray(y + 1j * sign)))
        np.testing.assert_allclose(turned.imag, sign * want, rtol=1e-14)


@BOTH
def test_what_is_not_a_number_has_no_angle(how: Function) -> None:
    got = np.asarray(
        how(td.atanh)(
            td.asarray([complex(np.nan, 1e300), complex(np.nan, np.inf)], dtype="complex128")
        )
    )
    assert np.isnan(got[0].imag) and got[1].imag == np.pi / 2


@BOTH
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_expm1_of_infinities_and_zeros(dtype: str, how: Function) -> None:
    inf, nan = np.inf, np.nan
    given = [
        (-inf, inf),
        (-inf, nan),
        (inf, inf),
        (inf, nan),
        (-0.0, 0.0),
        (0.0, 0.0),
        (0.0, -0.0),
        (1.0, inf),
    ]
    want = [
        (-1, 0),
        (-1, 0),
        (inf, nan),
        (inf, nan),
        (0.0, 0.0),
        (0.0, 0.0),
        (0.0, -0.0),
        (nan, nan),
    ]
    got = np.asarray(how(td.expm1)(td.asarray([complex(*z) for z in given], dtype=dtype)))
    np.testing.assert_array_equal(got.real, [re for re, _ in want])
    np.testing.assert_array_equal(got.imag, [im for _, im in want])
    assert not np.signbit(got.real[4:7]).any() and np.signbit(got.imag[4:7]).tolist() == [
        False,
        False,
        True,
    ]


@BOTH
def test_expm1_is_finite_where_the_exponential_is(how: Function) -> None:
    z = np.array([709.9 + 1j, 709.9 - 0.9j, 709.75 + 3j, 300 + 1j])
    with np.errstate(over="ignore"):  # NumPy says so on its way to a finite result
        want = np.exp(z)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(np.asarray(how(td.expm1)(td.asarray(z))), want, rtol=1e-12)


@BOTH
def test_rounding_goes_part_by_part(how: Function) -> None:
    z = np.array([1.5 - 2.5j, 0.4 + 0.6j, complex(np.inf, -0.5)])
    for dtype in ("complex64", "complex128"):
        np.testing.assert_array_equal(
            np.asarray(how(td.round)(td.asarray(z, dtype=dtype))), [2 - 2j, 1j, np.inf - 0j]
        )
