"""Models, folders, sentences: how hidden states become one vector or one score, as the folder says.

Receives a folder in the manner of sentence-transformers (modules.json, 1_Pooling/config.json) or a
plain one; returns metadata: pooling, whether vectors have length 1, the longest text, and what is
done with the score of a classifier.
"""

from __future__ import annotations

import os
from typing import Any

from tetrad.core.errors import FileFormatError, UnsupportedError
from tetrad.formats.json_file import check_file, parsed, read_object
from tetrad.models.config import MOST_CONTEXT
from tetrad.models.folder.settings import FolderSettings

MODULES, LENGTH = "modules.json", "sentence_bert_config.json"
MOST_BYTES = 1 << 20
POOLINGS = {"mean": 1, "cls": 2, "lasttoken": 3}  # as GGUF numbers them
OLD = {  # fields of old configs
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
ACTIVATIONS = ("Sigmoid", "Identity")


def sentence_keys(path: str, settings: FolderSettings) -> dict[str, object]:
    """Metadata of the folder, and not of the model in it."""
    keys: dict[str, object] = score_keys(settings)
    if os.path.exists(os.path.join(path, MODULES)):
        keys |= module_keys(path)
    length = os.path.join(path, LENGTH)
    if os.path.exists(length):
        said = FolderSettings(read_object(length, MOST_BYTES), length)
        if said.has("max_seq_length"):
            keys["longest_text"] = said.count("max_seq_length", most=MOST_CONTEXT)
    return keys


def module_keys(path: str) -> dict[str, object]:
    """What follows the model: pooling, then perhaps a vector of length 1."""
    keys: dict[str, object] = {"normalize": False}
    for kind, place in modules_of(os.path.join(path, MODULES)):
        if kind == "Pooling":
            keys["pooling_type"] = pooling_of(os.path.join(path, place, "config.json"))
        elif kind == "Normalize":
            keys["normalize"] = True
        elif kind != "Transformer":
            message = f"{path}: after the model comes a module {kind!r:.60}"
            raise UnsupportedError(message, hint="supported: Transformer, Pooling, Normalize")
    return keys


def modules_of(path: str) -> list[tuple[str, str]]:
    """Kinds and folders of the modules."""
    check_file(path, MOST_BYTES)
    with open(path, "rb") as opened:
        found = parsed(opened.read(MOST_BYTES), path)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise FileFormatError("expected a list of modules", file=path)
    return [module_of(FolderSettings(one, path, f"[{i}].")) for i, one in enumerate(found)]


def module_of(said: FolderSettings) -> tuple[str, str]:
    kind, place = said.value("type", ""), said.value("path", "")
    if not isinstance(kind, str) or not isinstance(place, str):
        raise said.error("type", "expected the name of a class and a folder")
    if place and (set(place) & set("/\\:\0") or place.startswith(".")):
        raise said.error("path", f"expected the name of a folder inside, got {place!r:.60}")
    return kind.rpartition(".")[2], place


def pooling_of(path: str) -> int:
    if not os.path.exists(path):
        raise FileFormatError("the file is missing, modules.json speaks of it", file=path)
    said = FolderSettings(read_object(path, MOST_BYTES), path)
    if said.has("pooling_mode"):
        return POOLINGS[said.word("pooling_mode", None, tuple(POOLINGS))]
    chosen = [name for field, name in OLD.items() if said.flag(field, False)]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise said.error(
            "pooling_mode",
            f"{' and '.join(chosen) or 'none'} is not supported; known: {', '.join(POOLINGS)}",
        )
    return POOLINGS[chosen[0]]


def score_keys(settings: FolderSettings) -> dict[str, object]:
    """Of a model that ranks texts: how its one number becomes a score; between 0 and 1 where the
    folder says nothing, as other programs have it."""
    inner: dict[str, Any] = settings.value("sentence_transformers", {})
    said = inner.get("activation_fn") if isinstance(inner, dict) else None
    name = "Sigmoid" if said is None else str(said).rpartition(".")[2]
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise settings.error("sentence_transformers.activation_fn", f"{name!r:.40}; known: {known}")
    return {"score_activation": name.lower()}
