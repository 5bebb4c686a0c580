"""Models with weights of equal bytes, which are constants of a single value and yet blocks: they
load and run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.models import tiny
from tests.models.loaded import WIDE, Loaded
from tetrad.formats import gguf
from tetrad.models.load import load_parts
from tetrad.quant import format_named, unpack
from tetrad.quant.lanes import LANES

TOKENS = tiny.prompt(6)


def zeroed(name: str, tensor: np.ndarray, format: str, is_zero: Any) -> tuple[Any, np.ndarray]:
    """(what the file gets, the numbers that stand there): matrices in this format, some of them of
    zero bytes."""
    if tensor.ndim < 2 or name.split(".")[-2] == "ffn_gate_inp":
        return tensor, tensor
    raw = np.ascontiguousarray(format_named(format).pack(tensor)).reshape(-1)
    raw = np.zeros_like(raw) if is_zero(name) else raw
    return gguf.Raw(format, tensor.shape, raw), unpack(raw, format, tensor.shape)


def model(folder: Path, format: str, is_zero: Any, arch: str = "llama") -> Loaded:
    wide = {**WIDE, **({"expert_hidden": 256} if arch == "qwen3moe" else {})}
    metadata, tensors = tiny.tiny_model(arch, layers=1, **wide)
    both = {name: zeroed(name, tensor, format, is_zero) for name, tensor in tensors.items()}
    path = os.path.join(folder, "zeros.gguf")
    gguf.write(path, metadata, {name: raw for name, (raw, _) in both.items()})
    return Loaded(
        metadata, {name: numbers for name, (_, numbers) in both.items()}, load_parts(path)
    )


@pytest.mark.parametrize("format", LANES)
def test_a_model_of_zeros(tmp_path: Path, format: str) -> None:
    made = model(tmp_path, format, lambda name: True)
    logits = made.run(made.caches(), TOKENS)
    assert logits.shape == (len(TOKENS), 300) and not logits.any()


@pytest.mark.parametrize("format", ["q4_0", "q6_k"])
@pytest.mark.parametrize("arch", ["llama", "qwen3moe"])
def test_some_tensors_of_zeros(tmp_path: Path, arch: str, format: str) -> None:
    made = model(tmp_path, format, lambda name: "ffn" in name or "attn_k" in name, arch)
    logits, expected = made.run(made.caches(), TOKENS), made.expected(TOKENS)
    # activations are rounded to 8 bits
    assert np.abs(logits - expected).max() / expected.std() < 0.1


@pytest.mark.parametrize("format", LANES)
@pytest.mark.parametrize("byte", [0, 1, 0x3C])
def test_products_with_weights_of_equal_bytes(format: str, byte: int) -> None:
    size = int(np.prod(format_named(format).packed_shape((32, 256))))
    w = td.quant.from_bytes(bytes([byte]) * size, format, shape=(32, 256))
    x = td.asarray(np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32))
    numbers = unpack(np.full(size, byte, np.uint8), format, (32, 256))
    got = np.asarray(td.jit(lambda x: td.matmul(x, w.dequantize().T))(x))
    as_argument = np.asarray(td.jit(lambda x, w: td.matmul(x, w.dequantize().T))(x, w))
    want = np.asarray(x, np.float64) @ numbers.T.astype(np.float64)
    for found in (got, as_argument):
        np.testing.assert_allclose(
            found, want, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(numbers).max()))
        )
