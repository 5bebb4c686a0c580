"""Descriptions say what the programs will need, from metadata alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.encoders import tiny_encoder
from tests.models.tiny import TINY, tiny_model
from tetrad.formats import gguf
from tetrad.hub.describe import describe


@pytest.mark.parametrize("arch", TINY)
def test_a_tiny_model(arch: str, tmp_path: Path) -> None:
    metadata, tensors = tiny_model(arch)
    gguf.write(tmp_path / "tiny.gguf", metadata, tensors)
    found = describe(str(tmp_path / "tiny.gguf"))
    tiny = TINY[arch]
    assert (found.architecture, found.title, found.quant) == (tiny.arch, f"tiny-{arch}", "F32")
    assert found.parameters == sum(t.size for t in tensors.values())
    assert found.weight_bytes == sum(t.nbytes for t in tensors.values())
    assert (found.context, found.vocabulary) == (tiny.context, tiny.words)
    assert found.cache_bytes() == 2 * 2 * tiny.layers * tiny.kv_heads * tiny.head_size * 256
    assert found.cache_bytes(257, "f32") == 4 * found.cache_bytes()
    assert found.cache_bytes(256, "q8_0") == found.cache_bytes() * 34 // 64


def test_kinds_of_tensors_by_share(tmp_path: Path) -> None:
    metadata, tensors = tiny_model("llama")
    half = {name: t.astype("float16") if t.ndim == 2 else t for name, t in tensors.items()}
    gguf.write(tmp_path / "tiny.gguf", metadata, half)
    found = describe(str(tmp_path / "tiny.gguf"))
    assert found.quant == "F16" and [kind.format for kind in found.kinds] == ["f16", "f32"]
    assert sum(kind.count for kind in found.kinds) == len(tensors)


def test_an_encoder_keeps_no_keys_and_values(tmp_path: Path) -> None:
    gguf.write(tmp_path / "bert.gguf", *tiny_encoder("bert"))
    found = describe(str(tmp_path / "bert.gguf"))
    assert (found.architecture, found.context, found.cache_bytes()) == ("bert", 128, 0)
