"""Packed signed INT4: the vectors, layouts and sweeps of spec quant 1 and kernel-ir 15, by bit
pattern."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tests.kernel.library.oracle import (
    P,
    Q,
    cycled,
    evaluated,
    f32,
    f32_of,
    floats,
    ints,
    launched,
    pack_i4,
    pack_rows,
    sequential,
    unpack_i4,
    words,
)
from tetrad.core.errors import ShapeError, TrapError
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.library import int4
from tetrad.kernel.library import int4_ops as ops
from tetrad.kernel.registry import Entry

# lanes -> words (spec quant 1.1)
PACKED = [
    ([1, 2, 3, 4, -1, -2, -3, -4], [0xCDEF4321]),
    ([4, 3, 2, 1, -4, -3, -2, -1], [0xFEDC1234]),
    ([-8, -7, -1, 0, 1, 2, 6, 7], [0x76210F98]),
    ([1, 2, 3, 4, -1, -2, -3, -4, 5], [0xCDEF4321, 5]),
    ([4, 3, 2, 1, -4, -3, -2, -1, -5], [0xFEDC1234, 0xB]),
    ([-8, -7, -6, -5, -4, -3, -2, -1, 0], [0xFEDCBA98, 0]),
    ([1, -1, 2, -2, 3, -3, 4, -4, 5], [0xC4D3E2F1, 5]),
    ([-5, 4, -4, 3, -3, 2, -2, 1, -1], [0x1E2D3C4B, 0xF]),
]
W, A = [row for row, _ in PACKED[3:6]], [row for row, _ in PACKED[6:8]]
S, BS = [0.5, 0.25, 0.125], [0.75, 0.375]
X = [1, -0.5, 0.25, 2, -1.5, 0.75, 1.25, -2, 0.5]
COLS = (1, 7, 8, 9, 16, 17, 31, 32, 33)
WRAPPERS: list[tuple[Entry, Entry, str, str, str]] = [
    (ops.int4_dot_i32, int4.i4x8_dot_i32, "quant.int4.dot", "binary", "i4x8_dot_i32"),
    (
        ops.int4_dot_f32_scaled, int4.i4x8_dot_f32_scaled, "quant.int4.dot.scaled", "binary",
        "i4x8_dot_f32_scaled",
    ),
    (
        ops.int4_matvec_f32_scaled, int4.i4x8_matvec_f32_scaled, "quant.int4.matvec.scaled",
        "ternary", "i4x8_matvec_f32_scaled",
    ),
    (
        ops.int4_batched_matvec_f32_scaled, int4.i4x8_batched_matvec_f32_scaled,
        "quant.int4.batched_matvec.scaled", "ternary", "i4x8_batched_matvec_f32_scaled",
    ),
    (
        ops.int4_batched_matmul_f32_scaled, int4.i4x8_batched_matmul_f32_scaled,
        "quant.int4.batched_matmul.scaled", "ternary", "i4x8_batched_matmul_f32_scaled",
    ),
    (
        ops.int4_batched_matmul_top1_f32_scaled, int4.i4x8_batched_matmul_top1_f32_scaled,
        "quant.int4.batched_matmul.top1.scaled", "ternary", "i4x8_batched_matmul_top1_f32_scaled",
    ),
]  # fmt: skip
MATMUL = ("weights", "activations", "row_scales", "batch_scales", "out")


# -- lanes -----------------------------------------------------------------------------------------


def test_words_of_lanes() -> None:
    sizes = (0, 1, 7, 8, 9, 15, 16, 17)
    assert [int4.words(size) for size in sizes] == [0, 1, 1, 1, 2, 2, 2, 3]
    assert [len(pack_i4([0] * size)) for size in sizes] == [0, 1, 1, 1, 2, 2, 2, 3]


def test_packing_saturates_and_missing_words_are_zero() -> None:
    assert pack_i4([-32, -9, -8, 7, 8, 31]) == [0x00777888]
    assert unpack_i4([0xF], 4) == [-1, 0, 0, 0]
    assert unpack_i4([], 3) == [0, 0, 0]


@pytest.mark.parametrize(("lanes", "packed"), PACKED)
def test_lanes_and_words(lanes: list[int], packed: list[int]) -> None:
    assert pack_i4(lanes) == packed and unpack_i4(packed, len(lanes)) == lanes
    program = int4.unpack_i4x8.build("packed", "out", len(lanes))
    (out,) = launched(program, words(packed))
    assert np.frombuffer(out, "<i4").tolist() == lanes


def test_every_length_comes_back_from_the_programs() -> None:
    for length in range(1, 257):
        lanes = cycled(P, length)
        (packed,) = evaluated(int4.pack_i4x8.build("x", "y", length), ints(lanes))
        assert packed == words(pack_i4(lanes))
        (out,) = evaluated(int4.unpack_i4x8.build("packed", "out", length), packed)
        assert out == ints(lanes) and unpack_i4(pack_i4(lanes), length) == lanes
    assert pack_i4([]) == [] and unpack_i4([], 0) == []


def test_the_program_saturates() -> None:
    program = int4.pack_i4x8.build("x", "y", 6)
    assert launched(program, ints([-32, -9, -8, 7, 8, 31])) == [words([0x00777888])]
    ends = [-(1 << 31), (1 << 31) - 1]
    assert launched(int4.pack_i4x8.build("x", "y", 2), ints(ends)) == [words([0x78])]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 255, 256, 257, 1000])
def test_unpacking_when_compiled(length: int) -> None:
    lanes = cycled(P, length)
    program = int4.unpack_i4x8.build("packed", "out", length)
    (out,) = launched(program, words(pack_i4(lanes)))
    assert np.frombuffer(out, "<i4").tolist() == lanes


def test_offset_binary_becomes_signed_by_flipping_the_top_bit() -> None:
    """Spec quant 14, item 1: two to a byte with q + 8 against eight to a word with two's
    complement."""
    for length in range(257):
        lanes = cycled(P, length)
        offset = [q + 8 for q in lanes] + [8] * (-length % 8)
        stream = bytes(a | b << 4 for a, b in zip(offset[::2], offset[1::2], strict=True))
        flipped = bytes(byte ^ 0x88 for byte in stream)
        assert flipped == words(pack_i4(lanes))


# -- programs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda w: w[0].id)
def test_a_wrapper_is_its_primitive(wrapper: tuple[Entry, Entry, str, str, str]) -> None:
    outer, inner, extension, kind, region = wrapper
    (top,) = outer.build().body
    assert isinstance(top, n.Region) and top.generator == f"tetrad::math::{region}" == inner.id
    assert outer.extension == (extension, kind) and outer.category == "nn"
    assert registry.extensions()[extension][2] is outer


def layout(program: n.Program) -> list[tuple[str, str, str, object]]:
    return [(b.name, str(b.dtype), b.access, b.count) for b in program.buffers]


def test_the_layouts_of_batch_4_rows_3_cols_65() -> None:
    dot = ops.int4_dot_i32.build("lhs", "rhs", "out", 65)
    assert layout(dot) == [
        ("lhs", "u32", "read", 9), ("rhs", "u32", "read", 9), ("out", "i32", "write", 1)
    ]  # fmt: skip
    assert dot.workgroup == (1, 1, 1)
    scaled = ops.int4_dot_f32_scaled.build("a", "b", "sa", "sb", "y", 65)
    assert layout(scaled) == [
        ("a", "u32", "read", 9), ("b", "u32", "read", 9), ("sa", "f32", "read", 1),
        ("sb", "f32", "read", 1), ("y", "f32", "write", 1),
    ]  # fmt: skip
    assert scaled.workgroup == (1, 1, 1)
    matvec = ops.int4_matvec_f32_scaled.build("weights", "x", "scales", "out", 3, 65)
    assert [(b.name, b.count) for b in matvec.buffers] == [
        ("weights", 27), ("x", 65), ("scales", 3), ("out", 3)
    ]  # fmt: skip
    batched = ops.int4_batched_matvec_f32_scaled.build("weights", "x", "scales", "out", 4, 3, 65)
    assert layout(batched) == [
        ("weights", "u32", "read", 27), ("x", "f32", "read", 260), ("scales", "f32", "read", 3),
        ("out", "f32", "write", 12),
    ]  # fmt: skip
    matmul = ops.int4_batched_matmul_f32_scaled.build(*MATMUL, 4, 3, 65)
    assert layout(matmul) == [
        ("weights", "u32", "read", 27), ("activations", "u32", "read", 36),
        ("row_scales", "f32", "read", 3), ("batch_scales", "f32", "read", 4),
        ("out", "f32", "write", 12),
    ]  # fmt: skip
    top1 = ops.int4_batched_matmul_top1_f32_scaled.build(*MATMUL, 4, 3, 65)
    assert layout(top1)[:-1] == layout(matmul)[:-1]
    assert layout(top1)[-1] == ("out", "f32", "write", 8)
    assert {p.workgroup for p in (matvec, batched, matmul, top1)} == {(64, 1, 1)}
    assert int4.unpack_i4x8.build().workgroup == (256, 1, 1)


ZEROS = [
    (int4.unpack_i4x8, {"lanes": 0}, "i32"),
    (int4.pack_i4x8, {"lanes": 0}, "u32"),
    (ops.int4_dot_i32, {"lanes": 0}, "i32"),
    (ops.int4_dot_f32_scaled, {"lanes": 0}, "f32"),
    *((ops.int4_matvec_f32_scaled, {size: 0}, "f32") for size in ("rows", "cols")),
    *(
        (entry, {size: 0}, "f32")
        for entry in (
            ops.int4_batched_matvec_f32_scaled,
            ops.int4_batched_matmul_f32_scaled,
            ops.int4_batched_matmul_top1_f32_scaled,
        )
        for size in ("batch", "rows", "cols")
    ),
]


@pytest.mark.parametrize(("entry", "sizes", "dtype"), ZEROS, ids=str)
def test_a_zero_size_gives_a_program_that_traps(
    entry: Entry, sizes: dict[str, int], dtype: str
) -> None:
    program, (size,) = entry.build(**sizes), sizes
    assert td.kernel.has_trap(program) and td.kernel.problems(program) == []
    (out,) = layout(program)
    assert out[1:] == (dtype, "write", 1) and out[0] in ("out", "packed")
    assert program.workgroup == (1, 1, 1)
    (top,) = program.body
    assert isinstance(top, n.Region) and top.generator == entry.region
    op = entry.region.rpartition("::")[2]
    for run in (td.dispatch, lambda p, i: evaluated(p, *i)):
        with pytest.raises(Exception, match=f"Fix: {op}: .*{size}.* must be positive") as error:
            run(program, [])
        assert "trap 1" in str(error.value)
    with pytest.raises(ShapeError, match=f"{size}=0"):
        entry.build_or_raise(**sizes)


@pytest.mark.parametrize(
    ("entry", "sizes"),
    [
        (ops.int4_matvec_f32_scaled, {"rows": 1 << 31, "cols": 16}),
        (ops.int4_batched_matvec_f32_scaled, {"batch": 1 << 16, "rows": 1 << 16, "cols": 1}),
        (ops.int4_batched_matvec_f32_scaled, {"batch": 1 << 31, "rows": 1, "cols": 2}),
        (ops.int4_batched_matmul_f32_scaled, {"batch": 1 << 31, "rows": 2, "cols": 1}),
        (ops.int4_batched_matmul_f32_scaled, {"batch": 1 << 31, "rows": 1, "cols": 16}),
        (ops.int4_batched_matmul_top1_f32_scaled, {"batch": 1 << 31, "rows": 1, "cols": 1}),
    ],
    ids=str,
)
def test_a_product_that_overflows_is_refused(entry: Entry, sizes: dict[str, int]) -> None:
    with pytest.raises(ShapeError, match=r"^Fix: .* overflows u32"):
        entry.build_or_raise(**sizes)
    with pytest.raises(TrapError, match="overflows u32"):
        td.dispatch(entry.build(**sizes), [])


# -- vectors ---------------------------------------------------------------------------------------


def dot(a: list[int], b: list[int]) -> int:
    (out,) = evaluated(
        ops.int4_dot_i32.build("lhs", "rhs", "out", len(a)), words(pack_i4(a)), words(pack_i4(b))
    )
    return int(np.frombuffer(out, "<i4")[0])


def test_dots_of_the_vectors() -> None:
    lhs = [-8, -4, -1, 0, 1, 2, 6, 7, 5, -7, 3, -3]
    rhs = [7, -2, -1, 4, -8, 6, 2, 1, -5, 3, -4, 2]
    assert dot(lhs, rhs) == -88
    assert dot(PACKED[0][0], PACKED[1][0]) == 40 and dot(PACKED[2][0], PACKED[2][0]) == 204


def test_a_product_with_floats() -> None:
    program = ops.int4_matvec_f32_scaled.build("weights", "x", "scales", "out", 3, 9)
    (out,) = launched(program, words(pack_rows(W)), floats(X), floats(S))
    assert np.frombuffer(out, "<u4").tolist() == [0x40F80000, 0x3FB80000, 0xBFCC0000]
    assert f32_of([out]) == [7.75, 1.4375, -1.59375]
    both = ops.int4_batched_matvec_f32_scaled.build("weights", "x", "scales", "out", 2, 3, 9)
    outs = launched(both, words(pack_rows(W)), floats([*X, *(-v for v in X)]), floats(S))
    assert f32_of(outs) == [7.75, 1.4375, -1.59375, -7.75, -1.4375, 1.59375]


def test_a_product_of_packed_rows() -> None:
    inputs = (words(pack_rows(W)), words(pack_rows(A)), floats(S), floats(BS))
    program = ops.int4_batched_matmul_f32_scaled.build(*MATMUL, 2, 3, 9)
    scores = [10.875, -5.4375, -0.9375, -0.1875, 0.09375, 1.40625]
    assert f32_of(launched(program, *inputs)) == scores
    assert [[dot(w, a) for w in W] for a in A] == [[29, -29, -10], [-1, 1, 30]]
    top = ops.int4_batched_matmul_top1_f32_scaled.build(*MATMUL, 2, 3, 9)
    assert f32_of(launched(top, *inputs, grid=(1, 1, 1))) == [10.875, 1.40625, 0.0, 2.0]


# -- sweeps ----------------------------------------------------------------------------------------


def test_dots_of_every_length() -> None:
    told = {1: -56, 8: -161, 9: -131, 16: 3, 17: -53, 100: -56, 256: 48}
    for length in range(1, 257):
        a, b = cycled(P, length), cycled(Q, length)
        wanted = sum(x * y for x, y in zip(a, b, strict=True))
        assert dot(a, b) == wanted == told.get(length, wanted)


def test_scaled_dots_of_every_length() -> None:
    for length in range(1, 257):
        a, b = cycled(P, length), cycled(Q, length)
        left, right = f32(0.125 + length % 7 * 0.03125), f32(0.25 + length % 5 * 0.0625)
        wanted = f32(sum(x * y for x, y in zip(a, b, strict=True))) * left * right
        program = ops.int4_dot_f32_scaled.build("a", "b", "sa", "sb", "y", length)
        inputs = (words(pack_i4(a)), words(pack_i4(b)), floats([left]), floats([right]))
        assert evaluated(program, *inputs) == [floats([wanted])]


def row_scales(rows: int) -> np.ndarray:
    return f32([0.125 + 0.0625 * r for r in range(rows)])


@pytest.mark.parametrize("cols", [*COLS, 65])
def test_a_matrix_times_a_float_vector(cols: int) -> None:
    x = f32([c % 11 * 0.125 - 0.5 for c in range(cols)])
    for rows in range(1, 9):
        w, scales = [cycled(P, cols, r) for r in range(rows)], row_scales(rows)
        sums = sequential(np.zeros(rows), [f32([row[c] for row in w]) * x[c] for c in range(cols)])
        program = ops.int4_matvec_f32_scaled.build("weights", "x", "scales", "out", rows, cols)
        run = launched if rows in (1, 8) else evaluated
        assert run(program, words(pack_rows(w)), floats(x), floats(scales)) == [
            floats(sums * scales)
        ]


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("rows", range(1, 6))
def test_a_matrix_times_a_batch_of_float_vectors(rows: int, cols: int) -> None:
    w, scales = [cycled(P, cols, 2 * r) for r in range(rows)], row_scales(rows)
    for batch in range(1, 5):
        x = f32([t % 13 * 0.125 - 0.75 for t in range(batch * cols)]).reshape(batch, cols)
        terms = [x[:, c, None] * f32([row[c] for row in w]) for c in range(cols)]
        wanted = sequential(np.zeros((batch, rows)), terms) * scales
        program = ops.int4_batched_matvec_f32_scaled.build("w", "x", "s", "y", batch, rows, cols)
        run = launched if (batch, rows) in ((4, 5), (3, 2)) else evaluated
        assert run(program, words(pack_rows(w)), floats(x), floats(scales)) == [floats(wanted)]


def matmul_of(w: list[list[int]], a: list[list[int]], scales: np.ndarray) -> np.ndarray:
    """Scores [batch, row]."""
    cols, items = len(w[0]), f32([0.25 + 0.03125 * b for b in range(len(a))])
    terms = [f32([i[c] for i in a])[:, None] * f32([row[c] for row in w]) for c in range(cols)]
    return sequential(np.zeros((len(a), len(w))), terms) * scales * items[:, None]


def matmul_inputs(w: list[list[int]], a: list[list[int]]) -> tuple[bytes, ...]:
    items = f32([0.25 + 0.03125 * b for b in range(len(a))])
    return words(pack_rows(w)), words(pack_rows(a)), floats(row_scales(len(w))), floats(items)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("rows", range(1, 6))
def test_a_matrix_times_a_batch_of_packed_vectors(rows: int, cols: int) -> None:
    w = [cycled(P, cols, 3 * r) for r in range(rows)]
    for batch in range(1, 5):
        a = [cycled(P, cols, 5 * b + 1) for b in range(batch)]
        program = ops.int4_batched_matmul_f32_scaled.build(*MATMUL, batch, rows, cols)
        run = launched if (batch, rows) in ((4, 5), (3, 2)) else evaluated
        assert run(program, *matmul_inputs(w, a)) == [floats(matmul_of(w, a, row_scales(rows)))]


TOP1 = [(1, 1, 1), (2, 2, 7), (3, 3, 8), (4, 4, 9), (5, 5, 17), (6, 6, 33), (3, 7, 65)]


@pytest.mark.parametrize(("batch", "rows", "cols"), TOP1)
def test_the_best_row_is_the_first_greatest(batch: int, rows: int, cols: int) -> None:
    w = [cycled(P, cols, 5 * r) for r in range(rows)]
    a = [cycled(Q, cols, 7 * b) for b in range(batch)]
    scores = matmul_of(w, a, row_scales(rows))
    best, row = scores.max(axis=1), scores.argmax(axis=1)
    program = ops.int4_batched_matmul_top1_f32_scaled.build(*MATMUL, batch, rows, cols)
    inputs = matmul_inputs(w, a)
    assert launched(program, *inputs, grid=(1, 1, 1)) == [floats([*best, *row])]
    apart = ops.int4_batched_matmul_top1_indexed_f32_scaled.build(
        *MATMUL[:4], "scores", "indices", batch, rows, cols
    )
    assert launched(apart, *inputs) == [floats(best), words(row.tolist())]
