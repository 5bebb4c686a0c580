"""Compares `reference.py` with the models' own code: the weights of each tiny model, put into the
model class that `transformers` has for it, must give the same logits in float32. Run by hand, from
the root of the repository:

    python -m venv peer && peer/bin/pip install torch transformers
    PYTHONPATH=. peer/bin/python tests/models/against_transformers.py

One line a case; `known` are the logits of words 0 to 3 after LENGTHS[-1] tokens, for KNOWN_LOGITS
of test_reference.py.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

from tests.models.reference import Keys, forward, is_windowed, read_config
from tests.models.tiny import prompt, tiny_model

Array = np.ndarray
TOLERANCE = 1e-4
LENGTHS = (7, 32, 48)  # inside every window, at phi3's trained context, past both

# name, class of transformers, tiny model, overrides
CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("llama", "Llama", "llama", {}),
    ("llama, tied", "Llama", "llama", {"tied": True, "kv_heads": 4}),
    ("llama 3 rope", "Llama", "llama", {"llama3": True, "rope_base": 500000.0}),
    ("llama, wide heads", "Llama", "llama", {"head_size": 32}),
    ("mistral", "Mistral", "llama", {"rope_base": 1e6, "kv_heads": 1}),
    ("mistral, window", "Mistral", "llama", {"window": 9}),
    ("mixtral", "Mixtral", "mixtral", {}),
    ("qwen2", "Qwen2", "qwen2", {}),
    ("qwen2, untied", "Qwen2", "qwen2", {"tied": False}),
    ("qwen3", "Qwen3", "qwen3", {}),
    ("qwen3, yarn", "Qwen3", "qwen3", {"rope_scaling": ("yarn", 4.0)}),
    ("qwen3moe", "Qwen3Moe", "qwen3moe", {}),
    ("phi3", "Phi3", "phi3", {}),
    ("phi3, no window", "Phi3", "phi3", {"window": 0, "trained_context": 0}),
    ("phi3, partial rope", "Phi3", "phi3", {"rope_size": 8, "tied": True}),
    ("gemma2", "Gemma2", "gemma2", {}),
    ("gemma2, 46 layers", "Gemma2", "gemma2", {"layers": 46}),  # the 27B model: another query scale
    ("gemma3", "Gemma3", "gemma3", {}),
    ("gemma3, no scaling", "Gemma3", "gemma3", {"rope_scaling": None, "window": 5}),
]


def main() -> int:
    """The number of cases that differ."""
    failures = 0
    for name, family, arch, overrides in CASES:
        metadata, tensors = tiny_model(arch, **overrides)
        theirs = [answer(build(family, metadata, tensors), prompt(length)) for length in LENGTHS]
        ours = [forward(metadata, tensors, prompt(length), dtype=np.float32) for length in LENGTHS]
        difference = max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True))
        failures += not difference < TOLERANCE
        known = ", ".join(f"{logit:.4f}" for logit in theirs[-1][-1, :4])
        print(
            f"{name:20} largest difference {difference:.1e}   spread {theirs[-1].std():.2f}   "
            f"known [{known}]"
        )
    return failures


# -- the model of transformers ---------------------------------------------------------------------


def build(family: str, metadata: dict[str, Any], tiny: dict[str, Array]) -> Any:
    import torch
    import transformers

    text = "Text" if family == "Gemma3" else ""
    config = getattr(transformers, f"{family}{text}Config")(**settings(family, metadata, tiny))
    config._attn_implementation = "eager"  # the only one with caps on scores
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    # those are settings there
    values, used = {}, {name for name in tiny if name.startswith("rope_")}
    for name, _ in model.named_parameters():
        names = gguf_names(config.model_type, name)
        values[name] = torch.from_numpy(imported(metadata, names, [tiny[n] for n in names]))
        used.update(names)
    if used != set(tiny):
        raise ValueError(f"{family} has no use for {sorted(set(tiny) - used)}")
    # a tied head has a name but no parameter
    model.load_state_dict(values, strict="output.weight" in tiny)
    return model


def answer(model: Any, tokens: Array) -> Array:
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(tokens)[None], use_cache=False).logits[0].numpy()


# -- its settings, from the metadata ---------------------------------------------------------------


def settings(family: str, metadata: dict[str, Any], tiny: dict[str, Array]) -> dict[str, Any]:
    config, key = read_config(metadata), Keys(metadata, metadata["general.architecture"])
    return {
        "vocab_size": len(tiny["token_embd.weight"]),
        "hidden_size": config.width,
        "intermediate_size": key("feed_forward_length"),
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "max_position_embeddings": key("context_length"),
        "rms_norm_eps": config.epsilon,
        "tie_word_embeddings": "output.weight" not in tiny,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
        "sliding_window": config.window or None,
        "rope_parameters": rope_settings(key, config.head_size, tiny),
        **(phi3_settings(key) if family == "Phi3" else head_settings(family, metadata)),
    }


def phi3_settings(key: Keys) -> dict[str, Any]:
    """Its class overrules what `rope_parameters` says of the trained context, so it is told here
    too."""
    return {
        "original_max_position_embeddings": key(
            "rope.scaling.original_context_length", key("context_length")
        )
    }


def head_settings(family: str, metadata: dict[str, Any]) -> dict[str, Any]:
    config, key = read_config(metadata), Keys(metadata, metadata["general.architecture"])
    extra: dict[str, Any] = {"head_dim": config.head_size}
    if family.startswith("Gemma"):
        extra |= {
            "query_pre_attn_scalar": round(config.query_scale**-2),
            "attn_logit_softcapping": config.score_cap or None,
            "final_logit_softcapping": config.logit_cap or None,
            "layer_types": [
                "sliding_attention" if is_windowed(config, layer) else "full_attention"
                for layer in range(config.layers)
            ],
        }
    if config.experts_used:
        extra |= {
            "num_local_experts" if family == "Mixtral" else "num_experts": key("expert_count"),
            "num_experts_per_tok": config.experts_used,
            "norm_topk_prob": True,
            "moe_intermediate_size": key("expert_feed_forward_length", key("feed_forward_length")),
        }
    return extra


def rope_settings(key: Keys, head_size: int, tiny: dict[str, Array]) -> dict[str, Any]:
    plain = {"rope_type": "default", "rope_theta": key("rope.freq_base", 10000.0)}
    kind = key("rope.scaling.type", "")
    if kind:
        plain |= {"rope_type": kind, "factor": key("rope.scaling.factor")}
    if kind == "yarn":
        plain["original_max_position_embeddings"] = key("rope.scaling.original_context_length")
    if key.arch == "gemma3":
        local = {"rope_type": "default", "rope_theta": key("rope.freq_base_swa")}
        return {"full_attention": plain, "sliding_attention": local}
    if key.arch == "phi3":
        plain["partial_rotary_factor"] = key("rope.dimension_count") / head_size
    if "rope_factors_long.weight" in tiny:
        plain |= {
            "rope_type": "longrope",
            "long_factor": tiny["rope_factors_long.weight"].tolist(),
            "short_factor": tiny["rope_factors_short.weight"].tolist(),
            "original_max_position_embeddings": key("rope.scaling.original_context_length"),
        }
    if "rope_freqs.weight" in tiny:
        plain |= {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": key("context_length") // 8,
        }
    return plain


# -- its weights, from those of GGUF ---------------------------------------------------------------

NAMES = {
    "model.embed_tokens": ["token_embd"],
    "model.norm": ["output_norm"],
    "lm_head": ["output"],
    "input_layernorm": ["attn_norm"],
    "self_attn.q_proj": ["attn_q"],
    "self_attn.k_proj": ["attn_k"],
    "self_attn.v_proj": ["attn_v"],
    "self_attn.qkv_proj": ["attn_qkv"],
    "self_attn.o_proj": ["attn_output"],
    "self_attn.q_norm": ["attn_q_norm"],
    "self_attn.k_norm": ["attn_k_norm"],
    "post_attention_layernorm": ["ffn_norm"],
    "mlp.gate_proj": ["ffn_gate"],
    "mlp.up_proj": ["ffn_up"],
    "mlp.gate_up_proj": ["ffn_up"],
    "mlp.down_proj": ["ffn_down"],
    "mlp.gate": ["ffn_gate_inp"],
    "mlp.experts.gate_up_proj": ["ffn_gate_exps", "ffn_up_exps"],
    "mlp.experts.down_proj": ["ffn_down_exps"],
}
GEMMA_NAMES = {
    "post_attention_layernorm": ["post_attention_norm"],
    "pre_feedforward_layernorm": ["ffn_norm"],
    "post_feedforward_layernorm": ["post_ffw_norm"],
}


def gguf_names(family: str, name: str) -> list[str]:
    names = NAMES | (GEMMA_NAMES if family.startswith("gemma") else {})
    found = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.*?)(\.weight|\.bias)?", name)
    if not found or found[2] not in names:
        raise KeyError(f"{name}: a tensor with no name in GGUF")
    block = f"blk.{found[1]}." if found[1] else ""
    ending = found[3] or ".weight"  # stacked experts are parameters without a suffix
    return [block + target + ending for target in names[found[2]]]


def imported(metadata: dict[str, Any], names: list[str], tensors: list[Array]) -> Array:
    """The parameter made of these tensors: two are the halves of one; the files of llama and gemma
    differ in form."""
    config = read_config(metadata)
    # [experts, gate + up, width]
    values = tensors[0] if len(tensors) == 1 else np.concatenate(tensors, axis=1)
    if config.arch.startswith("gemma") and names[0].endswith("norm.weight"):
        values = values - 1  # gemma adds it again
    if config.arch == "llama" and re.search(r"attn_[qk]\.", names[0]):
        values = in_halves(values, config.head_size)
    return np.ascontiguousarray(values)


def in_halves(rows: Array, head_size: int) -> Array:
    """Pairs of a head, from (2i, 2i + 1) as llama files hold them to (i, i + half) as transformers
    turns them."""
    heads = rows.reshape(-1, head_size // 2, 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


if __name__ == "__main__":
    sys.exit(main())
