"""Low-bit products: every format against NumPy on the same numbers, equal bits for any batch,
threads and target."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu.isa import LEVELS, current_target
from tetrad.backends.cpu.llvm import assembly
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.types import ArrayType
from tetrad.lower.lower import Lowerer
from tetrad.ops.matmul.op import matmul
from tetrad.ops.quantized.op import lowbit_rows, quantize_rows, row_parts
from tetrad.quant import pack, unpack
from tetrad.quant.lanes import DTYPES, LANES
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import programs_of
from tetrad.tracing.array import Array

SHAPES = [(16, 256), (32, 512), (20, 256), (1, 256), (47, 768)]
product = td.jit(lambda x, w: matmul(quantize_rows(x), w, transposed=True))
quantized = td.jit(quantize_rows)
rows_of = td.jit(lowbit_rows)


def weight(name: str, shape: tuple[int, int], seed: int = 0) -> tuple[Array, np.ndarray]:
    """An interleaved weight, and the numbers it stands for."""
    raw = pack(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32), name)
    kind = ArrayType(DTYPES[name], shape)
    return Array.from_bytes(LANES[name].interleave(raw), kind), unpack(raw, name, shape)


def exact(x: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The product of what 8 bits keep of x with the numbers of the weight, in f64."""
    codes, scales, _ = row_parts(np.asarray(quantize_rows(td.asarray(x)).memory), x.shape[1])
    kept = codes.astype(np.float64) * scales[..., None]
    return kept.reshape(x.shape) @ numbers.T.astype(np.float64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", LANES)
def test_rows_are_what_the_file_format_says(name: str, shape: tuple[int, int]) -> None:
    w, numbers = weight(name, shape)
    every = np.arange(shape[0], dtype=np.int32)[::-1].copy()
    for found in (lowbit_rows(w, td.asarray(every)), rows_of(w, td.asarray(every))):
        np.testing.assert_array_equal(np.asarray(found), numbers[every])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", LANES)
def test_products_agree_with_numpy(name: str, shape: tuple[int, int]) -> None:
    w, numbers = weight(name, shape)
    x = np.random.default_rng(1).standard_normal((5, shape[1]), dtype=np.float32)
    want = exact(x, numbers)
    bound = 1e-6 * (np.abs(x) @ np.abs(numbers.T)) + 1e-12  # rounding of one f32 accumulator
    for found in (product(x, w), matmul(quantize_rows(td.asarray(x)), w, transposed=True)):
        assert (np.abs(np.asarray(found) - want) <= bound).all()


@pytest.mark.parametrize("name", LANES)
def test_bits_do_not_depend_on_the_batch(name: str) -> None:
    w, _ = weight(name, (48, 512))
    x = np.random.default_rng(2).standard_normal((19, 512), dtype=np.float32)
    together = np.asarray(product(x, w))
    for count in (1, 2, 3, 4, 5, 8):
        parts = [np.asarray(product(x[i : i + count], w)) for i in range(0, 19, count)]
        np.testing.assert_array_equal(
            np.concatenate(parts).view(np.uint32), together.view(np.uint32)
        )


def test_any_number_of_rows_is_one_program() -> None:
    w, _ = weight("q4_k", (32, 256))
    many = td.jit(
        lambda x, w: matmul(quantize_rows(x), w, transposed=True),
        dims=({0: td.Dim("rows", max=64)}, None),
    )
    x = np.random.default_rng(3).standard_normal((33, 256), dtype=np.float32)
    for count in (1, 3, 4, 7, 33):
        np.testing.assert_array_equal(
            np.asarray(many(x[:count], w)), np.asarray(product(x[:count], w))
        )
    assert many.compiles == 1


def test_elementwise_work_joins_the_product() -> None:
    w, _ = weight("q4_0", (32, 64))
    v, _ = weight("q8_0", (32, 64), seed=5)
    x = np.random.default_rng(4).standard_normal((6, 64), dtype=np.float32)

    def gated(x: Array, w: Array, v: Array) -> Array:
        q = quantize_rows(x)
        return td.nn.silu(matmul(q, w, transposed=True)) * matmul(q, v, transposed=True) + 1  # type: ignore[no-any-return]

    found, want = np.asarray(td.jit(gated)(x, w, v)), np.asarray(gated(td.asarray(x), w, v))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_eight_bits_keep_the_largest_and_know_nan() -> None:
    x = np.random.default_rng(5).standard_normal((6, 96)).astype(np.float32)
    x[1, :32], x[2, 3], x[3, 40], x[4, :32] = 0, np.nan, np.inf, x[4, :32] * np.float32(1e-40)
    for rows in (quantized(x), quantize_rows(td.asarray(x))):
        codes, scales, sums = row_parts(np.asarray(rows.memory), 96)
        assert (
            np.isnan(scales[2, 0])
            and np.isnan(scales[3, 1])
            and np.isfinite(scales[[0, 1, 4, 5]]).all()
        )
        back = codes * scales[..., None]
        kept = np.abs(back - x.reshape(6, 3, 32))[[0, 1, 4, 5]]
        tops = np.abs(x.reshape(6, 3, 32)).max(-1, keepdims=True)[[0, 1, 4, 5]]
        assert (kept <= tops / 253 + 2.0**-110).all()  # blocks of smaller numbers are zero
        np.testing.assert_allclose(sums[0], (codes[0].astype(int).sum(-1) * scales[0]), rtol=1e-6)
    plain = [0, 1, 4, 5]
    np.testing.assert_array_equal(
        np.asarray(quantized(x).memory)[plain],
        np.asarray(quantize_rows(td.asarray(x)).memory)[plain],
    )


def test_rows_out_of_range_and_wrong_operands_are_errors() -> None:
    w, _ = weight("q4_0", (32, 64))
    with pytest.raises(IndexError):
        rows_of(w, td.asarray([32], dtype=td.int32))
    with pytest.raises(td.errors.ShapeError, match="inner sizes differ"):
        product(np.zeros((2, 96), np.float32), w)
    with pytest.raises(td.errors.DtypeError, match="8 bits"):
        matmul(td.zeros((2, 64), dtype=td.float64), w, transposed=True)
    with pytest.raises(td.errors.ShapeError, match="multiple of 32"):
        quantize_rows(td.zeros((2, 40)))


# How four products of bytes show in assembly, by what the target has for them.
DOTS = {
    "vnni512": "vpdpbusd", "vnni256": "vpdpbusd", "maddubs": "vpmaddubsw", "portable": "pm",
    "sdot": "sdot",
    "usdot": "usdot",
}  # fmt: skip


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
@pytest.mark.parametrize("name", LANES)
def test_products_compile_for_every_machine(name: str, target: Target) -> None:
    """Also for those that cannot run here; with VNNI or dot products every four products are one
    instruction."""
    w, _ = weight(name, (16, 256))
    graph = td.trace(lambda x, w: matmul(quantize_rows(x), w, transposed=True))(
        np.zeros((9, 256), np.float32), w
    )
    programs = programs_of(lower_graph(graph, Lowerer(target.machine)))
    text = assembly(
        emit_module({f"k{i}": program for i, program in enumerate(programs)}, target), target
    )
    tiles = target.machine.lowbit_tokens + 1  # a tile of tokens, and one alone
    is_arm = target.triple.startswith("aarch64")
    instruction = "ml" if is_arm and target.dot4 == "portable" else DOTS[target.dot4]
    assert text.count(f"\t{instruction}") >= 8 * tiles
    registers = ".4s" if is_arm else {128: "%xmm", 256: "%ymm", 512: "%zmm"}[target.vector_bits]
    dots = [line for line in text.splitlines() if f"\t{instruction}" in line]
    assert instruction == "ml" or all(registers in line for line in dots)


@pytest.mark.parametrize("name", ["q4_k", "q6_k", "q8_0"])
def test_a_second_term_keeps_what_the_first_lost(name: str) -> None:
    """Rows in two terms are nearly exact, bit for bit the same eager, compiled, alone and
    together."""
    fine = td.jit(lambda x, w: matmul(quantize_rows(x, terms=2), w, terms=2, transposed=True))
    w, numbers = weight(name, (40, 512))
    x = np.random.default_rng(6).standard_normal((7, 512), dtype=np.float32)
    rows = np.asarray(td.jit(lambda x: quantize_rows(x, terms=2))(x).memory)
    np.testing.assert_array_equal(rows, np.asarray(quantize_rows(td.asarray(x), terms=2).memory))
    codes, scales, _ = row_parts(rows, 1024)
    kept = (codes * scales[..., None].astype(np.float64)).reshape(7, 2, 512).sum(1)
    assert np.abs(kept - x).max() < np.abs(x).max() / 127 / 127
    together = np.asarray(fine(x, w))
    want = x.astype(np.float64) @ numbers.T.astype(np.float64)
    bound = np.abs(x) @ np.abs(numbers.T)
    assert (np.abs(together - want) < 5e-5 * bound).all()
    assert (np.abs(np.asarray(product(x, w)) - want) / bound).max() > 20 * (
        np.abs(together - want) / bound
    ).max()
    alone = np.concatenate([np.asarray(fine(x[i : i + 1], w)) for i in range(7)])
    np.testing.assert_array_equal(alone.view(np.uint32), together.view(np.uint32))
    with pytest.raises(td.errors.ShapeError, match="in 2 terms"):
        matmul(quantize_rows(td.asarray(x)), w, terms=2, transposed=True)


@pytest.mark.parametrize("name", ["q4_1", "q4_k", "q6_k", "q8_0"])
def test_many_rows_share_decoded_panels_and_keep_their_bits(name: str) -> None:
    """Several chunks of rows, several panels of columns, a tile that is cut short: as each row
    alone, and as the kernel evaluator."""
    w, _ = weight(name, (24, 1280))
    x = np.random.default_rng(7).standard_normal((263, 1280), dtype=np.float32)
    many = td.jit(
        lambda x, w: matmul(quantize_rows(x), w, transposed=True),
        dims=({0: td.Dim("rows", max=512)}, None),
    )
    together = np.asarray(product(x, w)).view(np.uint32)
    np.testing.assert_array_equal(np.asarray(many(x, w)).view(np.uint32), together)
    for row in (0, 127, 128, 131, 132, 262):
        np.testing.assert_array_equal(
            np.asarray(product(x[row : row + 1], w)).view(np.uint32)[0], together[row]
        )
    graph = td.trace(lambda x: matmul(quantize_rows(x), w, transposed=True))(x[:17])
    (want,) = evaluate_schedule(lower_graph(graph, Lowerer(current_target().machine)), [x[:17]], {})
    np.testing.assert_array_equal(want.view(np.uint32), together[:17])
