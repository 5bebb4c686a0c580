"""RoBERTa, XLM-RoBERTa and CamemBERT: the blocks of BERT; positions are counted after the padding
token, so the first rows of their table are never used.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.record import replace
from tetrad.models.arch import register
from tetrad.models.architectures import bert
from tetrad.models.encoder import encoder, folder_keys, tanh_head
from tetrad.models.folder.settings import FolderSettings


def before_first(s: FolderSettings) -> int:
    """Rows of the table of positions that stand before the one of the first token."""
    return s.count("pad_token_id", 1, least=0) + 1


def keys(s: FolderSettings) -> dict[str, object]:
    context = s.count("max_position_embeddings") - before_first(s)
    if context < 1:
        raise s.error("max_position_embeddings", f"{context} rows are left after the padding token")
    return {**folder_keys(s), "context_length": context}


def used_rows(table: np.ndarray, s: FolderSettings) -> np.ndarray:
    return table[before_first(s) :]


NAMES = replace(
    bert.NAMES,
    keys=keys,
    prefixes=("", "roberta."),
    heads={"cls": "classifier.dense", "cls.output": "classifier.out_proj"},
    unused=("pooler.", "lm_head.", "embeddings.position_ids"),
    changes={"position_embd": used_rows},
)

register(
    encoder(
        "roberta", config=bert.config, outer=bert.outer, shapes=bert.shapes, inputs=bert.inputs,
        block=bert.block, folder=NAMES, classify=tanh_head,
    )
)  # fmt: skip
