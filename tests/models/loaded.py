"""Tiny models on disk and loaded: `loaded("gemma2", "low-bit")` for every architecture and storage
of weights.

A model is made once and shared, since compiling it takes a second or two.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import tetrad as td
from tests.models import reference, tiny
from tetrad import quant
from tetrad.formats import gguf
from tetrad.models.load import ModelParts, load_parts

SLOTS, CONTEXT = 3, 256
WIDE = {"width": 256, "head_size": 64, "hidden": 256}  # room for blocks of 256
# Like the mixes people download, what matters most has more bits. "" stands for everything else.
MIXES = {
    "low-bit": {
        "token_embd": "q8_0", "output": "q6_k", "attn_v": "q6_k", "attn_output": "q8_0",
        "ffn_down": "q6_k",
        "ffn_down_exps": "q8_0", "ffn_up": "q5_k", "ffn_up_exps": "q5_k", "": "q4_k",
    },
    "Q2_K": {"output": "q6_k", "attn_v": "q4_k", "ffn_down": "q3_k", "attn_output": "q3_k",
    "": "q2_k"},
    "Q3_K_M": {"output": "q6_k", "attn_v": "q5_k", "ffn_down": "q4_k", "attn_output": "q4_k",
    "": "q3_k"},
    "IQ4_XS": {"output": "q6_k", "attn_v": "q5_k", "": "iq4_xs"},
    "IQ4_NL": {"output": "q6_k", "attn_v": "q5_k", "": "iq4_nl"},
    "MXFP4_MOE": {"ffn_gate_exps": "mxfp4", "ffn_up_exps": "mxfp4", "ffn_down_exps": "mxfp4",
    "": "q8_0"},
}  # fmt: skip
HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def format_of(kind: str, name: str, tensor: np.ndarray) -> str:
    """The format a tensor is stored in; norms, biases and routers always are floats."""
    part = name.split(".")[-2]
    if kind == "f32" or tensor.ndim < 2 or part == "ffn_gate_inp":
        return "f32"
    if kind == "halves":
        return "f16" if part.startswith("attn") or part == "output" else "bf16"
    mix = MIXES.get(kind, {"": kind})
    return mix.get(part, mix[""])


def stored(tensor: np.ndarray, format: str) -> tuple[np.ndarray | gguf.Raw, np.ndarray]:
    """(what the file gets, the numbers that stand there)."""
    if format == "f32":
        return tensor, tensor
    if format in HALVES:
        return tensor.astype(HALVES[format]), tensor.astype(HALVES[format]).astype(np.float32)
    raw = np.ascontiguousarray(quant.pack(tensor, format)).reshape(-1)
    return gguf.Raw(format, tensor.shape, raw), quant.unpack(raw, format, tensor.shape)


@dataclass(frozen=True, eq=False)
class Loaded:
    """A loaded model, and what the reference needs to know of it."""

    metadata: dict[str, Any]
    tensors: dict[str, np.ndarray]
    parts: ModelParts

    def expected(self, tokens: np.ndarray) -> np.ndarray:
        return reference.forward(
            self.metadata, self.tensors, tokens, context=self.parts.config.context
        )

    def caches(self, dtype: td.DType = td.float32) -> list[td.Array]:
        return list(self.parts.programs.state(SLOTS, CONTEXT, dtype))

    def run(
        self, caches: list[td.Array], tokens: np.ndarray, start: int | Sequence[int] = 0,
        slot: int | Sequence[int] = 0, single: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Logits after every token; the caches are replaced by those with the tokens in them."""
        count = len(tokens)
        position = np.arange(start, start + count) if isinstance(start, int) else start
        operands = (tokens, np.broadcast_to(slot, count), position, np.arange(count))
        program = self.parts.programs.single if single else self.parts.programs.chunk
        logits, *caches[:] = program(
            *(td.asarray(np.asarray(x, np.int32)) for x in operands), *caches
        )
        return np.asarray(logits)


def write_model(
    path: str, arch: str, kind: str, **overrides: Any
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Writes a tiny model; returns its metadata and the numbers its tensors hold."""
    metadata, tensors = tiny.tiny_model(arch, **overrides)
    both = {name: stored(tensor, format_of(kind, name, tensor)) for name, tensor in tensors.items()}
    gguf.write(path, metadata, {name: raw for name, (raw, _) in both.items()})
    return metadata, {name: numbers for name, (_, numbers) in both.items()}


@cache
def loaded(arch: str, kind: str) -> Loaded:
    formats = MIXES.get(kind, {"": "f32" if kind == "halves" else kind}).values()
    is_wide = any(quant.formats[format].block > 32 for format in formats)
    wide = {**WIDE, **({"expert_hidden": 256} if arch == "qwen3moe" else {})} if is_wide else {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"{arch}.gguf")
        metadata, tensors = write_model(path, arch, kind, **wide)
        return Loaded(metadata, tensors, load_parts(path))
