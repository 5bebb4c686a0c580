"""MPNet: the blocks of BERT, with a bias on attention scores by the distance of two tokens, which
all blocks share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tetrad.core.record import record, replace
from tetrad.models.arch import Arrays, BlockInputs, TokenBatch, Weights, register
from tetrad.models.architectures import bert
from tetrad.models.architectures.roberta import NAMES as ROBERTA
from tetrad.models.architectures.roberta import keys as roberta_keys
from tetrad.models.config import Metadata
from tetrad.models.encoder import Encoder, encoder, encoder_fields, tanh_head
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.library import layers, td
from tetrad.models.shapes import Expected
from tetrad.models.weights import Factors
from tetrad.tracing.array import Array

FURTHEST = 128  # distances from here on share a bucket


@record
class Mpnet(Encoder):
    """The numbers of an MPNet."""

    buckets: int  # of distances; each has a bias for every head


def keys(s: FolderSettings) -> dict[str, object]:
    return {
        **roberta_keys(s),
        "attention.relative_buckets_count": s.count("relative_attention_num_buckets", 32, least=4),
    }


NAMES = replace(
    ROBERTA,
    keys=keys,
    prefixes=("", "mpnet."),
    outer={
        "token_embd": "embeddings.word_embeddings",
        "position_embd": "embeddings.position_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
        "attn_rel_b": "encoder.relative_attention_bias",
    },
    block={
        **bert.NAMES.block,
        "attn_q": "attention.attn.q",
        "attn_k": "attention.attn.k",
        "attn_v": "attention.attn.v",
        "attn_output": "attention.attn.o",
        "attn_output_norm": "attention.LayerNorm",
    },
)


def config(meta: Metadata, vocab: int, factors: Factors) -> Mpnet:
    buckets = meta.count("attention.relative_buckets_count", 32, least=4)
    return Mpnet(**encoder_fields(meta, vocab), buckets=buckets)


def outer(c: Mpnet) -> Iterator[Expected]:
    yield from bert.outer(c)
    yield Expected("attn_rel_b.weight", (c.buckets, c.heads))


def buckets_of(count: int) -> np.ndarray:
    """The bucket of each distance key - query from -FURTHEST to FURTHEST: half of them for keys
    that come later; near distances have one each, far ones share by their logarithm.

    >>> buckets_of(32)[[0, 127, 128, 129, 138, 256]]
    array([15,  1,  0, 17, 24, 31])
    """
    half, exact = count // 2, count // 4
    apart = np.arange(-FURTHEST, FURTHEST + 1)
    far = np.maximum(np.abs(apart), exact).astype(np.float32)
    steps = np.log(far / np.float32(exact)) / np.float32(math.log(FURTHEST / exact))
    shared = np.minimum(exact + (steps * (half - exact)).astype(np.int64), half - 1)
    near = np.where(np.abs(apart) < exact, np.abs(apart), shared)
    return np.asarray(near + half * (apart > 0))


def shared(kind: int, batch: TokenBatch, weights: Weights) -> Arrays:
    """The bias of every head and distance."""
    return (
        td.permute_dims(td.take(weights["attn_rel_b.weight"], buckets_of(kind), axis=0), (1, 0)),
    )


def kinds(c: Mpnet) -> list[int]:
    return [c.buckets] * c.layers


def block(c: Mpnet, weights: Weights, x: Array, at: BlockInputs) -> tuple[Array, BlockInputs]:
    y, at = layers.attention_to_all(c, weights, x, at, tables=(), bias=at.shared[0])
    return bert.after_attention(c, weights, x + y), at


register(
    encoder(
        "mpnet", config=config, outer=outer, shapes=bert.shapes, inputs=bert.inputs, kinds=kinds,
        shared=shared, block=block, folder=NAMES, classify=tanh_head,
    )
)  # fmt: skip
