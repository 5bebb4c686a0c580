"""Models, shapes: the tensors an architecture says its files hold, and the check of a file against them.

Receives a config and an open file; returns nothing or raises, before a byte of a tensor is read: what a file's
metadata promise and what its tensors are must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tetrad.core.errors import FileFormatError, UnsupportedError
from tetrad.formats.gguf import File, Tensor
from tetrad.models.config import Config
from tetrad.models.weights import FLOATS

FACTORS = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}  # the config holds these


class Expected(NamedTuple):
    """A tensor by its name in GGUF; one that is not needed may be missing."""

    name: str
    shape: tuple[int, ...]
    is_needed: bool = True


def outer_shapes(c: Config) -> Iterator[Expected]:
    """What stands outside the blocks. A file without output.weight uses its embedding twice."""
    yield Expected("token_embd.weight", (c.vocab, c.width))
    yield Expected("output_norm.weight", (c.width,))
    yield Expected("output.weight", (c.vocab, c.width), False)


def attention_shapes(c: Config, bias: bool = False, head_norms: bool = False) -> Iterator[Expected]:
    """Norm, queries, keys, values and output of a block. Biases are used where the file has them; `bias`: it must."""
    q, kv = c.heads * c.head_size, c.kv_heads * c.head_size
    yield Expected("attn_norm.weight", (c.width,))
    for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
        yield Expected(f"{name}.weight", (rows, c.width))
        yield Expected(f"{name}.bias", (rows,), bias)
    yield Expected("attn_output.weight", (c.width, q))
    yield Expected("attn_output.bias", (c.width,), False)
    if head_norms:
        yield Expected("attn_q_norm.weight", (c.head_size,))
        yield Expected("attn_k_norm.weight", (c.head_size,))


def gated_shapes(c: Config) -> Iterator[Expected]:
    """Norm and the three matrices of a dense feed-forward part, with biases where the file has them."""
    yield Expected("ffn_norm.weight", (c.width,))
    for name, rows, columns in (
        ("ffn_gate", c.hidden, c.width),
        ("ffn_up", c.hidden, c.width),
        ("ffn_down", c.width, c.hidden),
    ):
        yield Expected(f"{name}.weight", (rows, columns))
        yield Expected(f"{name}.bias", (rows,), False)


def expert_shapes(c: Config) -> Iterator[Expected]:
    """Norm, router, and the matrices of all experts of a feed-forward part."""
    yield Expected("ffn_norm.weight", (c.width,))
    yield Expected("ffn_gate_inp.weight", (c.experts, c.width))
    yield Expected("ffn_gate_exps.weight", (c.experts, c.expert_hidden, c.width))
    yield Expected("ffn_up_exps.weight", (c.experts, c.expert_hidden, c.width))
    yield Expected("ffn_down_exps.weight", (c.experts, c.width, c.expert_hidden))


def check_shapes(file: File, outer: Iterable[Expected], blocks: Iterable[Expected], layers: int) -> None:
    """The file's tensors against those outside the blocks and those of every block; more than these is an error."""
    expected = [*outer, *in_every_block(blocks, layers)]
    for tensor in expected:
        check_tensor(file, tensor)
    if unknown := sorted(file.tensors.keys() - {tensor.name for tensor in expected} - FACTORS):
        message = f"{file.path}: {len(unknown)} tensors are not part of this architecture as it is known: {unknown[0]}"
        raise UnsupportedError(message, hint="the file may be of a newer variant of the model")


def in_every_block(blocks: Iterable[Expected], layers: int) -> Iterator[Expected]:
    each = list(blocks)
    for i in range(layers):
        yield from (tensor._replace(name=f"blk.{i}.{tensor.name}") for tensor in each)


def check_tensor(file: File, expected: Expected) -> None:
    tensor = file.tensors.get(expected.name)
    if tensor is None:
        if expected.is_needed:
            raise FileFormatError(f"tensor {expected.name} is missing", file=file.path, hint="is the file complete?")
    elif tuple(tensor.shape) != expected.shape:
        raise wrong(tensor, f"expected shape {list(expected.shape)} from the metadata, got {list(tensor.shape)}")
    elif len(tensor.shape) == 1 and tensor.format not in FLOATS:
        raise wrong(tensor, f"expected a list of {', '.join(FLOATS)}, got {tensor.format}")


def check_factors(file: File, most: int) -> None:
    """The factors of a rope, which are read before the rest is checked: floats, at most `most`."""
    for name in FACTORS & file.tensors.keys():
        tensor = file.tensors[name]
        if tensor.format not in FLOATS or len(tensor.shape) != 1 or tensor.shape[0] > most:
            raise wrong(tensor, f"expected a short list of floats, got {tensor.format} {list(tensor.shape)}")


def wrong(tensor: Tensor, message: str) -> FileFormatError:
    return FileFormatError(message, file=tensor.file, part=f"tensor {tensor.name}", offset=tensor.offset)
