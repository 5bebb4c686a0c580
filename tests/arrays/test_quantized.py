"""Quantised arrays as users have them: bytes in and out, numbers, products that never decode the
weight first."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.pipeline import optimise
from tetrad.quant import pack, unpack
from tetrad.quant.lanes import LANES

FORMATS = [*LANES, "f32", "f16", "bf16"]
SHAPES = [(16, 256), (20, 512), (1, 256), (33, 2304)]


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_bytes_go_in_and_come_out(name: str, shape: tuple[int, int]) -> None:
    raw = np.random.default_rng(1).integers(0, 256, pack(random(shape), name).shape, dtype=np.uint8)
    q = td.quant.from_bytes(raw.tobytes(), name, shape=shape)
    assert q.to_bytes() == raw.tobytes()
    assert q.shape == shape and q.nbytes >= raw.nbytes


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_those_of_the_format_eager_and_compiled(name: str) -> None:
    x = random((20, 512))
    q = td.quant.quantize(x, name)
    want = unpack(pack(x, name), name, x.shape)
    np.testing.assert_array_equal(np.asarray(q.dequantize()), want)
    np.testing.assert_array_equal(np.asarray(td.jit(lambda w: w.dequantize())(q)), want)


@pytest.mark.parametrize("shape", [(40, 2304), (16, 1024), (7, 256)], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_a_product_with_the_numbers_has_the_bits_of_a_float_product(
    name: str, shape: tuple[int, int]
) -> None:
    q, x = td.quant.quantize(random(shape), name), random((13, shape[1]), 1)
    product = td.jit(lambda x, w: td.matmul(x, w.dequantize().T) + 1)
    numbers = np.ascontiguousarray(np.asarray(q.dequantize()).T)
    want = np.asarray(td.jit(lambda x, w: td.matmul(x, w) + 1)(x, numbers))
    np.testing.assert_array_equal(np.asarray(product(x, q)).view(np.uint32), want.view(np.uint32))
    alone = [np.asarray(product(x[i : i + 1], q)) for i in range(13)]
    np.testing.assert_array_equal(np.concatenate(alone).view(np.uint32), want.view(np.uint32))


def test_the_weight_of_a_product_is_never_decoded_into_memory() -> None:
    q = td.quant.quantize(random((32, 256)), "q4_k")
    graph = optimise(td.trace(lambda x, w: td.matmul(x, w.dequantize().T))(random((3, 256)), q))
    (product,) = [n for n in graph.nodes() if n.op.name != "parameter"]
    assert product.op.name == "matmul" and product.param("transposed")


def test_float_formats_take_any_number_of_columns() -> None:
    for shape in ((3, 7), (17, 1030)):
        x = random(shape)
        q = td.quant.from_bytes(x.tobytes(), "f32", shape=shape)
        np.testing.assert_array_equal(np.asarray(td.jit(lambda w: w.dequantize())(q)), x)


def test_printing_names_the_type() -> None:
    q = td.quant.quantize(random((16, 256)), "q6_k")
    assert repr(q) == str(q) == "Array(quantised q6_kx16[16,256])"


def test_wrong_names_shapes_and_lengths_are_errors() -> None:
    with pytest.raises(td.errors.UnsupportedError, match="known formats"):
        td.quant.from_bytes(b"", "q9_z", shape=(1, 32))
    with pytest.raises(
        td.errors.UnsupportedError, match=r"known formats: bf16, f16, f32, iq4_nl, .*, q8_k"
    ):
        td.quant.quantize(random((2, 256)), "iq2_xxs")
    with pytest.raises(td.errors.ShapeError, match="takes 18 bytes, got 17"):
        td.quant.from_bytes(bytes(17), "q4_0", shape=(1, 32))
    with pytest.raises(td.errors.ShapeError, match="multiple of 32"):
        td.quant.from_bytes(bytes(18), "q4_0", shape=(1, 33))
    with pytest.raises(td.errors.ShapeError, match="matrix"):
        td.quant.quantize(random((2, 2, 32)), "q4_0")
    with pytest.raises(td.errors.DtypeError, match="quantised type"):
        td.asarray(np.zeros((2, 32), np.int32)).dequantize()
