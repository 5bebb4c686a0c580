"""Computes the numbers of `tests/golden/folders` with the models' own code, and compares.
Run by hand, from the root of the repository:

    python -m venv peer && peer/bin/pip install torch transformers numpy
    PYTHONPATH=. peer/bin/python tests/models/against_transformers_folders.py [NAME...]

Each case is a small random model, saved as a folder by `transformers`, its weights replaced by
those that `folders.weight` makes. `--write` stores the numbers; the tests compare with them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from tests.models.folders import GOLDEN, VOCABULARY, tokens, weight

Array = np.ndarray
LENGTHS = (1, 9, 40)
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 96, "max_position_embeddings": 64,
}  # fmt: skip
BERT = {**SMALL, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
ROBERTA = {**SMALL, "type_vocab_size": 1, "max_position_embeddings": 66, "layer_norm_eps": 1e-5}
DISTIL = {
    "vocab_size": VOCABULARY, "dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96,
    "max_position_embeddings": 64,
}  # fmt: skip
MODERN = {
    **SMALL, "num_hidden_layers": 4, "local_attention": 16, "global_attn_every_n_layers": 3,
    "pad_token_id": 0, "eos_token_id": 3, "bos_token_id": 2, "cls_token_id": 2, "sep_token_id": 3,
}  # fmt: skip
DECODER = {
    **SMALL, "num_hidden_layers": 2, "num_key_value_heads": 2, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": 3, "max_position_embeddings": 128,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
LONG = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 1.0,
    "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
    "original_max_position_embeddings": 32,
}  # fmt: skip
RANK = {"num_labels": 1}

# name -> (class of a config, class of a model, settings)
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("Bert", "BertModel", BERT),
    "bert-rank": ("Bert", "BertForSequenceClassification", {**BERT, **RANK}),
    "roberta": ("Roberta", "RobertaModel", ROBERTA),
    "roberta-rank": ("Roberta", "RobertaForSequenceClassification", {**ROBERTA, **RANK}),
    "xlm-roberta": ("XLMRoberta", "XLMRobertaModel", ROBERTA),
    "distilbert": ("DistilBert", "DistilBertModel", DISTIL),
    "distilbert-rank": ("DistilBert", "DistilBertForSequenceClassification", {**DISTIL, **RANK}),
    "mpnet": ("MPNet", "MPNetModel", {**SMALL, "max_position_embeddings": 66}),
    "nomic-bert": ("NomicBert", "NomicBertModel", {**BERT, "head_dim": 16}),
    "modernbert": ("ModernBert", "ModernBertModel", MODERN),
    "modernbert-rank": (
        "ModernBert", "ModernBertForSequenceClassification",
        {**MODERN, **RANK, "classifier_pooling": "mean"},
    ),
    "llama": ("Llama", "LlamaForCausalLM", DECODER),
    "llama3": ("Llama", "LlamaForCausalLM", {**DECODER, "rope_parameters": LLAMA3}),
    "mistral": ("Mistral", "MistralForCausalLM", {**DECODER, "sliding_window": 9}),
    "qwen2": ("Qwen2", "Qwen2ForCausalLM", {**DECODER, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", "Qwen3ForCausalLM", {**DECODER, "head_dim": 32, "rope_parameters": YARN}),
    "phi3": (
        "Phi3", "Phi3ForCausalLM",
        {**DECODER, "rope_parameters": LONG, "original_max_position_embeddings": 32},
    ),
    "gemma3": (
        "Gemma3Text", "Gemma3ForCausalLM",
        {**DECODER, "num_hidden_layers": 7, "head_dim": 16, "sliding_window": 8,
         "query_pre_attn_scalar": 20},
    ),
}  # fmt: skip


def main(words: list[str]) -> int:
    """The number of cases that differ."""
    chosen = [word for word in words if word in CASES] or list(CASES)
    failures = 0
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            found = computed(name, Path(folder))
        if "--write" in words:
            GOLDEN.mkdir(exist_ok=True)
            (GOLDEN / f"{name}.json").write_text(json.dumps(found))
        else:
            failures += not compared(name, found)
    return failures


def computed(name: str, folder: Path) -> dict[str, Any]:
    """The contents of a golden file."""
    family, kind, settings = CASES[name]
    config = getattr(transformers, f"{family}Config")(**settings)
    model = getattr(transformers, kind)(config)
    model.save_pretrained(folder)
    shapes = {key: list(x.shape) for key, x in load_file(folder / "model.safetensors").items()}
    made = {key: weight(key, shape) for key, shape in shapes.items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    loaded = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager")
    model = loaded.float().eval()
    cases = [answered(model, name, length) for length in LENGTHS]
    fields = json.loads((folder / "config.json").read_text())
    return {"config": fields, "tensors": shapes, "cases": cases}


def answered(model: Any, name: str, length: int) -> dict[str, Any]:
    ids = tokens(length, seed=length)
    kinds = [int(i >= length // 2) for i in range(length)] if name == "bert-rank" else [0] * length
    given = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, length).long()}
    if name == "bert-rank":
        given["token_type_ids"] = torch.tensor([kinds])
    with torch.no_grad():
        out = model(**given)
    if name.endswith("-rank"):
        return {"tokens": ids, "types": kinds, "score": out.logits[0, 0].item()}
    if hasattr(out, "logits"):
        return {"tokens": ids, "logits": rounded(out.logits[0, -1])}
    states = out.last_hidden_state[0]
    return {"tokens": ids, "mean": rounded(states.mean(0)), "first": rounded(states[0])}


def rounded(values: Any) -> list[float]:
    return [float(f"{x:.8g}") for x in values.numpy().tolist()]


def compared(name: str, found: dict[str, Any]) -> bool:
    """The numbers of now against those that are stored."""
    stored = json.loads((GOLDEN / f"{name}.json").read_text())
    same = stored["tensors"] == found["tensors"]
    apart = 0.0
    for old, new in zip(stored["cases"], found["cases"], strict=True):
        for key in old.keys() - {"tokens", "types"}:
            apart = max(apart, float(np.abs(np.array(old[key]) - np.array(new[key])).max()))
    print(f"{name:20} largest difference {apart:.1e}{'' if same else ', other tensors'}")
    return same and apart < 1e-5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
