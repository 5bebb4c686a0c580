"""Small models as Hugging Face folders: weights made from their names, and what `transformers`
computes with them.

A golden file (`tests/golden/folders/NAME.json`) has the config.json of a model, the names and
shapes of its tensors, tokens, and the numbers that the models' own code gives. The weights are not
stored: `weight` makes them again, here and where the numbers were computed.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
GOLDEN = Path(__file__).parents[1] / "golden" / "folders"
WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "a", "cat", "dog", "sat", "ran", "on", "mat",
    "fast", "slow", "##s", "##ing", "##ed", *"bcdefghij", *(f"##{c}" for c in "klmnop"),
]  # fmt: skip
VOCABULARY = 64


def weight(name: str, shape: list[int] | tuple[int, ...]) -> Array:
    """The same numbers for the same name, wherever they are made."""
    random = np.random.RandomState(zlib.crc32(name.encode()) % (1 << 31))
    values = random.standard_normal(tuple(shape))
    if "norm" in name.lower() or "_ln." in name:
        values = 0.1 * values + name.endswith(("weight", "gamma"))
    elif len(shape) == 1:
        values = 0.1 * values
    elif "embed" in name and "relative" not in name:
        values = 0.7 * values
    else:
        values = 1.3 * values / np.sqrt(shape[-1])
    return values.astype(np.float32)


def tokens(length: int, seed: int = 0) -> list[int]:
    return np.random.RandomState(seed).randint(4, VOCABULARY, length).tolist()


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def names() -> list[str]:
    return sorted(path.stem for path in GOLDEN.glob("*.json"))


def tensors_of(name: str) -> dict[str, Array]:
    return {key: weight(key, shape) for key, shape in golden(name)["tensors"].items()}


def write_folder(
    folder: Path,
    config: dict[str, Any],
    tensors: dict[str, Array],
    tokenizer: dict[str, Any] | None = None,
    **save: Any,
) -> Path:
    """A folder with all that `td.load` wants."""
    import tetrad as td

    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer or wordpiece()))
    roles = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    td.safetensors.save(folder / "model.safetensors", tensors, **save)
    return folder


def golden_folder(folder: Path, name: str, **save: Any) -> Path:
    return write_folder(folder, golden(name)["config"], tensors_of(name), **save)


def wordpiece() -> dict[str, Any]:
    """A tokenizer.json in the manner of BERT, with a template for pairs; it asks for cutting and
    filling up, which must not happen."""
    vocabulary = WORDS + [f"w{i}" for i in range(VOCABULARY - len(WORDS))]
    special = [
        {"id": i, "content": WORDS[i], "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i in range(4)
    ]  # fmt: skip

    def token(name: str, kind: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def text(name: str, kind: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [token("[CLS]", 0), text("A", 0), token("[SEP]", 0)]
    return {
        "version": "1.0",
        "truncation": {
            "direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0
        },
        "padding": {
            "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]",
        },
        "added_tokens": special,
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, text("B", 1), token("[SEP]", 1)],
            "special_tokens": {
                name: {"id": name, "ids": [i], "tokens": [name]}
                for name, i in (("[CLS]", 2), ("[SEP]", 3))
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: i for i, word in enumerate(vocabulary)},
        },
    }  # fmt: skip
