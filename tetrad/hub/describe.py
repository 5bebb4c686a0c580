"""The hub, descriptions: what a model is and what it needs, from its metadata alone.

Receives the path of a GGUF file or a folder; returns a `Description`. No weight is read, so this
takes milliseconds for any model.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import FileFormatError
from tetrad.core.record import record
from tetrad.core.visible import one_line
from tetrad.formats import gguf

# general.file_type: what llama.cpp calls the mix of formats (enum llama_ftype of llama.h).
MIXES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip
CACHE_BITS = {"f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5}
TYPES = {bool: "bool", int: "i64", float: "f64"}  # of what a folder says
BLOCK = 256  # positions of a cache are a multiple of this
MOST = 1 << 40  # of anything that is counted


@record
class FormatShare:
    """The tensors of one format, together."""

    format: str
    count: int
    nbytes: int
    elements: int


@dataclass(frozen=True, eq=False)
class Description:
    path: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, gguf.Tensor]

    @cached_property
    def kinds(self) -> list[FormatShare]:
        """Tensors by format, the largest share first."""
        found: dict[str, list[gguf.Tensor]] = {}
        for tensor in self.tensors.values():
            found.setdefault(tensor.format, []).append(tensor)
        kinds = [
            FormatShare(
                name, len(of), sum(t.nbytes for t in of), sum(math.prod(t.shape) for t in of)
            )
            for name, of in found.items()
        ]
        return sorted(kinds, key=lambda kind: -kind.nbytes)

    @property
    def architecture(self) -> str:
        return printable(self.text("general.architecture") or "?")

    @property
    def title(self) -> str:
        return printable(self.text("general.name"))

    def text(self, key: str) -> str | bytes:
        """A text of the metadata; of another type it is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, str | bytes) else ""

    @property
    def quant(self) -> str:
        """As the file says; else the format that holds most."""
        said = self.metadata.get("general.file_type")
        mix = MIXES.get(said) if isinstance(said, int) else None
        largest = self.kinds[0].format.upper() if self.kinds else "?"
        # Files that were written without knowing better say 0, F32.
        return largest if mix is None or (mix == "F32" and largest != "F32") else mix

    @property
    def parameters(self) -> int:
        return sum(kind.elements for kind in self.kinds)

    @property
    def weight_bytes(self) -> int:
        return sum(kind.nbytes for kind in self.kinds)

    def number(self, name: str, default: int = 0) -> int:
        """A count of the metadata; where there is one for each layer, the largest, which bounds
        what is needed."""
        key = f"{self.architecture}.{name}"
        value = self.metadata.get(key, default)
        each = value if isinstance(value, list | np.ndarray) and len(value) else [value]
        return max(self.count(key, one) for one in each)

    def count(self, key: str, value: object) -> int:
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, int | float) and 0 <= number <= MOST and number == int(number):
            return int(number)
        message = f"expected a whole number from 0 to {MOST}, got {value!r:.60}"
        raise FileFormatError(message, file=self.path, part=f"key {key}")

    @property
    def context(self) -> int:
        return self.number("context_length")

    @property
    def vocabulary(self) -> int:
        embedding = self.tensors.get("token_embd.weight")
        return embedding.shape[0] if embedding is not None and len(embedding.shape) == 2 else 0

    def cache_bytes(self, context: int = 0, kind: str = "f16") -> int:
        """Keys and values of one sequence of `context` positions (0: the model's); an encoder keeps
        none."""
        if self.metadata.get(f"{self.architecture}.attention.causal") is False:
            return 0
        heads = self.number("attention.head_count", 1)
        size = self.number("attention.key_length", self.number("embedding_length") // max(heads, 1))
        both = size + self.number("attention.value_length", size)
        positions = -(-(context or self.context) // BLOCK) * BLOCK
        elements = (
            self.number("block_count")
            * self.number("attention.head_count_kv", heads)
            * both
            * positions
        )
        return int(elements * CACHE_BITS[kind] // 8)


def describe(path: str) -> Description:
    """What a GGUF file or a Hugging Face folder is."""
    return opened(path)[0]


def opened(path: str) -> tuple[Description, dict[str, gguf.Typed]]:
    """The same, and the metadata with types: those of the file, or in a folder those that Python
    gives them."""
    if os.path.isdir(path):
        with lazy.module("tetrad.models.folder.file").open_folder(path) as folder:
            found = Description(path, folder.metadata, folder.tensors)
        return found, {key: typed(value) for key, value in found.metadata.items()}
    with gguf.open_file(path) as file:
        return Description(file.path, file.metadata, file.tensors), file.typed


def typed(value: object) -> gguf.Typed:
    """
    >>> typed(3).type, typed("a").type, typed([1.5]).type
    ('i64', 'str', '[f64]')
    """
    if isinstance(value, list | tuple | np.ndarray):
        inner = typed(value[0]).type if len(value) else "str"
        return gguf.Typed(f"[{inner}]", value)
    return gguf.Typed(TYPES.get(type(value), "str"), value)


def printable(value: object) -> str:
    """Text of a file as it may be shown: what would steer a terminal is written out, what is
    endless is cut.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    text = value[:800].decode(errors="replace") if isinstance(value, bytes) else str(value)
    return one_line(text[:200])


def count_text(n: float) -> str:
    """A number of parameters as model names have it.

    >>> count_text(134515008), count_text(6738415616)
    ('135M', '6.7B')
    """
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= 0.9995 * size:
            return f"{n / size:.0f}{unit}" if n >= 10 * size else f"{n / size:.1f}{unit}"
    return str(int(n))
