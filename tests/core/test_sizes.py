"""core.sizes: symbolic sizes obey the laws of integer arithmetic, and binding them commutes with
it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetrad.core.errors import ShapeError, TraceError
from tetrad.core.sizes import (
    MAX_ELEMENTS,
    Dim,
    Size,
    SizeExpr,
    atoms_of,
    bind,
    ceil_div,
    dims_of,
    is_static,
    plain,
    product,
)

LIMITS = {"a": 7, "b": 100, "c": 1}
DIMS = [Dim(name, max=limit) for name, limit in LIMITS.items()]

numbers = st.integers(-5, 5)
sizes: st.SearchStrategy[Size] = st.recursive(
    numbers | st.sampled_from(DIMS),
    lambda inner: st.builds(
        lambda op, x, y: op(x, y), st.sampled_from([operator.add, operator.mul]), inner, inner
    ),
    max_leaves=6,
)
values = st.fixed_dictionaries({name: st.integers(1, limit) for name, limit in LIMITS.items()})


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul])
@given(x=sizes, y=sizes, dims=values)
def test_binding_commutes_with_arithmetic(
    op: Callable[[Size, Size], Size], x: Size, y: Size, dims: dict[str, int]
) -> None:
    assert bind(op(x, y), dims) == op(bind(x, dims), bind(y, dims))


@given(x=sizes, y=sizes, z=sizes)
def test_equal_polynomials_are_equal_values(x: Size, y: Size, z: Size) -> None:
    assert x + y == y + x
    assert x * y == y * x
    assert (x + y) + z == x + (y + z)
    assert (x * y) * z == x * (y * z)
    assert x * (y + z) == x * y + x * z
    assert hash(x * (y + z)) == hash(x * y + x * z)


@given(x=sizes)
def test_what_cancels_is_a_plain_integer(x: Size) -> None:
    assert x - x == 0
    assert isinstance(x - x, int)
    assert -x + x == 0


@given(x=sizes, dims=values)
def test_no_value_exceeds_the_maximum(x: Size, dims: dict[str, int]) -> None:
    limit = x if isinstance(x, int) else x.max
    assert bind(x, dims) <= limit


@given(x=sizes, divisor=st.integers(1, 9), dims=values)
def test_ceil_div_binds_to_the_ceiling(x: Size, divisor: int, dims: dict[str, int]) -> None:
    quotient = ceil_div(x, divisor)
    assert bind(quotient, dims) == -(-bind(x, dims) // divisor)
    assert dims_of(quotient) <= dims_of(x)


@given(x=sizes, divisor=st.integers(1, 9))
def test_an_exact_quotient_stays_a_polynomial(x: Size, divisor: int) -> None:
    assert ceil_div(x * divisor, divisor) == x


def test_a_rounded_quotient_is_one_atom() -> None:
    grid = ceil_div(Dim("n", max=100), 16)
    assert str(grid) == "ceil(n/16)"
    assert isinstance(grid, SizeExpr) and grid.max == 7
    assert len(atoms_of(grid)) == 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (DIMS[0], "a"),
        (3 * DIMS[0] + 1, "1+3*a"),
        (DIMS[1] * DIMS[0] - 2, "-2+a*b"),
        (DIMS[0] - DIMS[1], "a-1*b"),
        (DIMS[0] * DIMS[0], "a*a"),
    ],
)
def test_prints_as_a_sum_of_products(size: Size, text: str) -> None:
    assert str(size) == text


def test_sizes_name_their_dims() -> None:
    assert {dim.name for dim in dims_of(DIMS[0] * DIMS[1] + 1)} == {"a", "b"}
    assert dims_of(4) == set()


def test_static_means_integers_only() -> None:
    assert is_static((2, 3)) and is_static(())
    assert not is_static((2, DIMS[0]))


@pytest.mark.parametrize("op", [operator.floordiv, operator.truediv, operator.mod])
def test_division_of_a_symbolic_size_is_refused(op: Callable[[object, object], object]) -> None:
    with pytest.raises(ShapeError, match=r"cannot divide the symbolic size 1\+a"):
        op(DIMS[0] + 1, 2)


def test_product_counts_elements() -> None:
    assert product(()) == 1
    assert product((2, 3, 4)) == 24
    assert product((2, DIMS[0])) == 2 * DIMS[0]
    assert product((MAX_ELEMENTS, 1)) == MAX_ELEMENTS
    assert product((MAX_ELEMENTS, MAX_ELEMENTS, 0)) == 0


def test_product_refuses_what_fits_in_no_memory() -> None:
    with pytest.raises(ShapeError, match=r"elements exceed the limit of 2\*\*48"):
        product((MAX_ELEMENTS, 2))


@pytest.mark.parametrize("name", ["", "two words", "1st"])
def test_a_dim_needs_an_identifier(name: str) -> None:
    with pytest.raises(ShapeError, match="is not an identifier"):
        Dim(name)


def test_a_dim_needs_a_positive_maximum() -> None:
    with pytest.raises(ShapeError, match="Dim seq: max must be at least 1, got 0"):
        Dim("seq", max=0)


def test_python_cannot_ask_for_the_value_of_a_symbolic_size() -> None:
    n = Dim("n", max=9)
    for ask in (
        lambda: n > 3,
        lambda: n <= 3,
        lambda: range(n),
        lambda: int(n),
        lambda: math.sqrt(n),
        lambda: [1][n],
    ):
        with pytest.raises(TraceError, match=r"the size n is only known when the program runs"):
            ask()
    for ask in (
        lambda: n * 0.5,
        lambda: 0.5 + n,
        lambda: n - 1.5,
        lambda: 1.5 - n,
        lambda: 1 / n,
        lambda: n % 2.0,
    ):
        with pytest.raises(
            ShapeError, match=r"(?s)symbolic size n.*td.asarray\(x.shape\[0\]\) is a number"
        ):
            ask()


def test_a_size_without_dims_is_a_plain_number() -> None:
    assert plain(7) == 7
    with pytest.raises(TraceError, match=r"the size 2\*n is only known when the program runs"):
        plain(2 * Dim("n", max=9))
