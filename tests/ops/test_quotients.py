"""ops.quotients: the ends of the range, zeros and signs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tetrad as td
from tests.ops.close import assert_close
from tests.ops.kernels import run_elementwise
from tetrad.backends.cpu.isa import current_target
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.dtypes import as_dtype
from tetrad.core.op import Case
from tetrad.kernel.verify import verify
from tetrad.lower.lower import Lowerer
from tetrad.ops.quotients import floor_divide, remainder
from tetrad.schedule.nodes import Launch

I32 = np.int32
MIN = np.iinfo(np.int32).min
WIDTHS = {32: np.float32, 64: np.float64}


@pytest.mark.parametrize("op", [floor_divide, remainder], ids=lambda op: op.name)
@pytest.mark.parametrize("width", WIDTHS)
@given(data=st.data())
@settings(max_examples=40)
def test_float_division_is_numpys_bit_for_bit(op, width, data) -> None:
    floats = st.floats(width=width)
    pairs = data.draw(st.lists(st.tuples(floats, floats), min_size=1, max_size=40))
    x, y = np.array(pairs, WIDTHS[width]).T
    assert_close(run_elementwise(op, Case((x, y))), op(x, y), what=pairs)


@pytest.mark.parametrize("width", WIDTHS)
def test_float_division_across_the_whole_range(width) -> None:
    info = np.finfo(WIDTHS[width])
    ends = [
        info.max,
        1.0,
        3.0,
        0.1,
        info.tiny,
        info.smallest_subnormal,
        info.smallest_subnormal * 3,
        info.max / 3,
    ]
    x, y = (
        g.reshape(-1)
        for g in np.meshgrid(np.array(ends + [-e for e in ends], WIDTHS[width]), np.array(ends))
    )
    y = y.astype(x.dtype)
    for op in (floor_divide, remainder):
        assert_close(run_elementwise(op, Case((x, y))), op(x, y))
    exact = [math.fmod(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    same_sign = x >= 0
    assert_close(remainder(x, y)[same_sign], np.array(exact, x.dtype)[same_sign])


INF, NAN = np.inf, np.nan
FLOOR_DIVIDE = [  # array API 2024.12, special cases of floor_divide
    (NAN, 1, NAN), (1, NAN, NAN), (INF, INF, NAN), (INF, -INF, NAN), (0.0, 0.0, NAN), (-0.0, 0.0,
    NAN), (0.0, 2, 0.0),
    (-0.0, 2, -0.0), (0.0, -2, -0.0), (-0.0, -2, 0.0), (3, 0.0, INF), (3, -0.0, -INF), (-3, 0.0,
    -INF), (-3, -0.0, INF),
    (INF, 2, INF), (INF, -2, -INF), (-INF, 2, -INF), (-INF, -2, INF), (INF, 0.0, INF), (2, INF,
    0.0), (2, -INF, -0.0),
    (-2, INF, -0.0), (-2, -INF, 0.0), (0.0, -INF, -0.0), (7, 2, 3), (-7, 2, -4), (7, -2, -4), (-7,
    -2, 3),
]  # fmt: skip
REMAINDER = [  # the same of remainder
    (NAN, 1, NAN), (1, NAN, NAN), (INF, INF, NAN), (0.0, 0.0, NAN), (0.0, 2, 0.0), (-0.0, 2, 0.0),
    (0.0, -2, -0.0),
    (-0.0, -2, -0.0), (3, 0.0, NAN), (3, -0.0, NAN), (-3, 0.0, NAN), (-3, -0.0, NAN), (INF, 2, NAN),
    (-INF, -2, NAN),
    (2, INF, 2), (2, -INF, -INF), (-2, INF, INF), (-2, -INF, -2), (7, 2, 1), (-7, 2, 1), (7, -2,
    -1), (-6, 2, 0.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "cases"), [(floor_divide, FLOOR_DIVIDE), (remainder, REMAINDER)], ids=["//", "%"]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_special_cases_are_those_of_the_array_api(op, cases, dtype) -> None:
    x, y, want = (np.array(column, as_dtype(dtype).np) for column in zip(*cases, strict=True))
    public = getattr(td, op.name)
    for got in (
        op(x, y),
        public(td.asarray(x), td.asarray(y)),
        td.jit(public)(x, y),
        td.vmap(public)(x, y),
    ):
        found = np.asarray(got)
        np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64))
        known = ~np.isnan(want.astype(np.float64))
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(want)[known])


def test_integer_division_corners() -> None:
    x, y = I32([MIN, MIN, 7, -7, 7, -7, 5]), I32([-1, 1, 3, 3, -3, -3, 0])
    with np.errstate(divide="ignore"):
        for op, want in (
            (floor_divide, [MIN, MIN, 2, -3, -3, 2, 0]),
            (remainder, [0, 0, 1, 2, -2, -1, 0]),
        ):
            assert_close(op(x, y), I32(want))
            assert_close(run_elementwise(op, Case((x, y))), I32(want))


@pytest.mark.parametrize("op", [floor_divide, remainder], ids=lambda op: op.name)
def test_integer_division_by_zero_warns(op) -> None:
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        op(I32([1]), I32([0]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_division_by_a_constant_zero_is_a_program_like_others(dtype: str) -> None:
    x = np.array([1, 2, 100], dtype)
    graph = td.trace(lambda x: (x // 0, x % 0))(x)
    for launch in lower_graph(graph, Lowerer(current_target().machine)).steps:
        assert isinstance(launch, Launch)
        verify(launch.program)
    assert [np.asarray(y).tolist() for y in td.jit(lambda x: (x // 0, x % 0))(x)] == [
        [0, 0, 0],
        [0, 0, 0],
    ]
