"""DistilBERT: the blocks of BERT, without types of tokens."""

from __future__ import annotations

from tetrad.models.arch import Weights, register
from tetrad.models.architectures import bert
from tetrad.models.config import MOST_CONTEXT, MOST_LAYERS
from tetrad.models.encoder import Encoder, encoder
from tetrad.models.folder.settings import FolderSettings
from tetrad.models.folder.spelling import FolderNames
from tetrad.models.library import layers, nn
from tetrad.tracing.array import Array

EPSILON = 1e-12


def keys(s: FolderSettings) -> dict[str, object]:
    s.word("activation", "gelu", ("gelu",))
    return {
        "block_count": s.count("n_layers", most=MOST_LAYERS),
        "context_length": s.count("max_position_embeddings", most=MOST_CONTEXT),
        "embedding_length": s.count("dim"),
        "feed_forward_length": s.count("hidden_dim"),
        "attention.head_count": s.count("n_heads"),
        "attention.layer_norm_epsilon": EPSILON,
    }


NAMES = FolderNames(
    keys=keys,
    prefixes=("", "distilbert."),
    outer={
        "token_embd": "embeddings.word_embeddings",
        "position_embd": "embeddings.position_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
    },
    layer="transformer.layer.",
    block={
        "attn_q": "attention.q_lin",
        "attn_k": "attention.k_lin",
        "attn_v": "attention.v_lin",
        "attn_output": "attention.out_lin",
        "attn_output_norm": "sa_layer_norm",
        "ffn_up": "ffn.lin1",
        "ffn_down": "ffn.lin2",
        "layer_output_norm": "output_layer_norm",
    },
    heads={"cls": "pre_classifier", "cls.output": "classifier"},
    unused=("vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
)


def relu_head(c: Encoder, weights: Weights, x: Array) -> Array:
    return layers.linear(nn.relu(layers.linear(x, weights, "cls")), weights, "cls.output")


register(
    encoder(
        "distilbert", config=bert.config, outer=bert.outer, shapes=bert.shapes, inputs=bert.inputs,
        block=bert.block, folder=NAMES, classify=relu_head,
    )
)  # fmt: skip
