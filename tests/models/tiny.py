"""Small random language models, as a GGUF file would hold them: `tiny_model("qwen3")` gives
metadata and tensors.

Every part is given a say: norms and biases are random, windows, caps and trained contexts small
enough to be reached by a short prompt, logits spread with a standard deviation of 1 to 3. The
vocabulary reads and writes any text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray
Metadata = dict[str, Any]
Tensors = dict[str, Array]

# -- which models ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiny:
    """What can be asked of a tiny model. Widths are multiples of 32, so that every format with
    blocks of 32 fits; `width=256, head_size=64, hidden=256` (and `expert_hidden=256`) make room for
    blocks of 256."""

    arch: str
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 16
    hidden: int = 160
    words: int = 300
    context: int = 128
    tied: bool = False  # the output uses the embedding again
    rope_base: float = 10000.0
    llama3: bool = False  # rope_freqs.weight
    experts: int = 0
    experts_used: int = 0
    expert_hidden: int = 0
    window: int = 0
    rope_size: int = 0  # channels that turn; 0: all of a head
    trained_context: int = 0  # phi3: the short rope factors end here, the long ones begin
    rope_scaling: tuple[str, float] | None = None  # ("linear" or "yarn", factor)
    score_cap: float = 0.0
    logit_cap: float = 0.0


TINY = {
    "llama": Tiny("llama"),
    "mixtral": Tiny("llama", experts=4, experts_used=2, hidden=128),
    "qwen2": Tiny("qwen2", tied=True, rope_base=1e6),
    "qwen3": Tiny("qwen3", layers=3, head_size=32, tied=True, rope_base=1e6),
    "qwen3moe": Tiny("qwen3moe", head_size=32, rope_base=1e6, experts=8, experts_used=3,
    expert_hidden=96),
    "phi3": Tiny("phi3", window=24, trained_context=32),
    "gemma2": Tiny("gemma2", layers=3, head_size=32, tied=True, window=8, score_cap=4.0,
    logit_cap=6.0),
    "gemma3": Tiny(
        "gemma3", layers=7, head_size=32, tied=True, rope_base=1e6, window=8,
        rope_scaling=("linear", 8.0)
    ),
}  # fmt: skip


def tiny_model(arch: str, seed: int = 0, **overrides: Any) -> tuple[Metadata, Tensors]:
    """`arch` is a key of TINY; overrides are fields of Tiny: tiny_model("llama", tied=True,
    llama3=True)."""
    tiny = replace(TINY[arch], **overrides)
    metadata = model_keys(tiny, f"tiny-{arch}") | tokenizer_keys(tiny.words)
    # RandomState: NumPy has promised never to change its numbers, and known logits depend on them.
    return metadata, dict(model_tensors(tiny, np.random.RandomState(seed)))


def prompt(length: int, words: int = 300) -> Array:
    """Some token ids, all different for as long as possible."""
    return (17 + 97 * np.arange(length)) % words


# -- metadata: the keys that the converter of llama.cpp writes -------------------------------------


def model_keys(tiny: Tiny, name: str) -> Metadata:
    own = {
        "block_count": tiny.layers,
        "context_length": tiny.context,
        "embedding_length": tiny.width,
        "feed_forward_length": tiny.hidden,
        "attention.head_count": tiny.heads,
        "attention.head_count_kv": tiny.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **dict(head_keys(tiny)),
        **dict(expert_keys(tiny)),
        **dict(window_keys(tiny)),
        **dict(rope_keys(tiny)),
    }
    general = {"general.architecture": tiny.arch, "general.name": name, "general.file_type": 0}
    return {**general, **{f"{tiny.arch}.{key}": value for key, value in own.items()}}


def head_keys(tiny: Tiny) -> Iterator[tuple[str, Any]]:
    if tiny.arch == "llama":
        yield "vocab_size", tiny.words
    if tiny.arch not in ("qwen2", "phi3"):  # these two always have head_size = width / heads
        yield "attention.key_length", tiny.head_size
        yield "attention.value_length", tiny.head_size


def expert_keys(tiny: Tiny) -> Iterator[tuple[str, Any]]:
    if tiny.experts:
        yield "expert_count", tiny.experts
        yield "expert_used_count", tiny.experts_used
    if tiny.expert_hidden:
        yield "expert_feed_forward_length", tiny.expert_hidden


def window_keys(tiny: Tiny) -> Iterator[tuple[str, Any]]:
    if tiny.window or tiny.arch == "phi3":  # phi3 writes 0 for none
        yield "attention.sliding_window", tiny.window
    if tiny.score_cap:
        yield "attn_logit_softcapping", tiny.score_cap
    if tiny.logit_cap:
        yield "final_logit_softcapping", tiny.logit_cap


def rope_keys(tiny: Tiny) -> Iterator[tuple[str, Any]]:
    if tiny.arch != "gemma2":  # gemma2 keeps to the default
        yield "rope.freq_base", tiny.rope_base
    if tiny.arch in ("llama", "phi3"):
        yield "rope.dimension_count", tiny.rope_size or tiny.head_size
    if tiny.arch == "gemma3":
        yield "rope.freq_base_swa", 10000.0
    if tiny.arch == "phi3" and tiny.trained_context:
        yield "rope.scaling.original_context_length", tiny.trained_context
        longer = math.log(tiny.context / tiny.trained_context)
        yield "rope.scaling.attn_factor", math.sqrt(1 + longer / math.log(tiny.trained_context))
    if tiny.rope_scaling:
        kind, factor = tiny.rope_scaling
        yield "rope.scaling.type", kind
        yield "rope.scaling.factor", factor
        if kind == "yarn":
            yield "rope.scaling.original_context_length", int(tiny.context / factor)


# -- tensors ---------------------------------------------------------------------------------------


def model_tensors(tiny: Tiny, rng: np.random.RandomState) -> Iterator[tuple[str, Array]]:
    spread = 2 * fan(tiny.width)  # the output then spreads logits by about 2
    # gemma multiplies its embedding by sqrt(width): were it not small, each token would only
    # predict itself.
    small = 4.0 if tiny.arch.startswith("gemma") else 1.0
    yield (
        "token_embd.weight",
        normal(rng, tiny.words, tiny.width, scale=spread / small if tiny.tied else 1.0),
    )
    yield from rope_tensors(tiny)
    for index in range(tiny.layers):
        for name, tensor in layer_tensors(tiny, rng):
            yield f"blk.{index}.{name}", tensor
    yield "output_norm.weight", near(rng, small, tiny.width)
    if not tiny.tied:
        yield "output.weight", normal(rng, tiny.words, tiny.width, scale=spread)


def layer_tensors(tiny: Tiny, rng: np.random.RandomState) -> Iterator[tuple[str, Array]]:
    yield "attn_norm.weight", near(rng, 1.0, tiny.width)
    yield from attention_tensors(tiny, rng)
    yield "ffn_norm.weight", near(rng, 1.0, tiny.width)
    yield from expert_tensors(tiny, rng) if tiny.experts else dense_tensors(tiny, rng)
    if tiny.arch.startswith("gemma"):
        yield "post_attention_norm.weight", near(rng, 2.0, tiny.width)
        yield "post_ffw_norm.weight", near(rng, 2.0, tiny.width)


def attention_tensors(tiny: Tiny, rng: np.random.RandomState) -> Iterator[tuple[str, Array]]:
    q, kv = tiny.heads * tiny.head_size, tiny.kv_heads * tiny.head_size
    # scores spread by about 2
    parts = {"attn_q": (q, 1.5), "attn_k": (kv, 1.5), "attn_v": (kv, 1.0)}
    matrices = {
        name: normal(rng, rows, tiny.width, scale=gain * fan(tiny.width))
        for name, (rows, gain) in parts.items()
    }
    if tiny.arch == "phi3":
        yield "attn_qkv.weight", np.concatenate(list(matrices.values()))
    else:
        yield from ((f"{name}.weight", matrix) for name, matrix in matrices.items())
    if tiny.arch == "qwen2":
        yield from ((f"{name}.bias", near(rng, 0.0, rows)) for name, (rows, _) in parts.items())
    if tiny.arch in ("qwen3", "qwen3moe", "gemma3"):
        yield "attn_q_norm.weight", near(rng, 1.5, tiny.head_size)
        yield "attn_k_norm.weight", near(rng, 1.5, tiny.head_size)
    yield "attn_output.weight", normal(rng, tiny.width, q, scale=fan(q))


def dense_tensors(tiny: Tiny, rng: np.random.RandomState) -> Iterator[tuple[str, Array]]:
    gate, up = (normal(rng, tiny.hidden, tiny.width, scale=1.5 * fan(tiny.width)) for _ in range(2))
    if tiny.arch == "phi3":
        yield "ffn_up.weight", np.concatenate([gate, up])
    else:
        yield "ffn_gate.weight", gate
        yield "ffn_up.weight", up
    yield "ffn_down.weight", normal(rng, tiny.width, tiny.hidden, scale=fan(tiny.hidden))


def expert_tensors(tiny: Tiny, rng: np.random.RandomState) -> Iterator[tuple[str, Array]]:
    hidden = tiny.expert_hidden or tiny.hidden
    yield "ffn_gate_inp.weight", normal(rng, tiny.experts, tiny.width, scale=2 * fan(tiny.width))
    for name in ("ffn_gate_exps", "ffn_up_exps"):
        yield (
            f"{name}.weight",
            normal(rng, tiny.experts, hidden, tiny.width, scale=1.5 * fan(tiny.width)),
        )
    yield "ffn_down_exps.weight", normal(rng, tiny.experts, tiny.width, hidden, scale=fan(hidden))


def rope_tensors(tiny: Tiny) -> Iterator[tuple[str, Array]]:
    pairs = (tiny.rope_size or tiny.head_size) // 2
    if tiny.llama3:
        yield (
            "rope_freqs.weight",
            llama3_factors(pairs, tiny.rope_base, tiny.context).astype(np.float32),
        )
    if tiny.arch == "phi3" and tiny.trained_context:
        yield "rope_factors_long.weight", np.linspace(1.1, 4.0, pairs, dtype=np.float32)
        yield "rope_factors_short.weight", np.linspace(1.0, 1.5, pairs, dtype=np.float32)


def llama3_factors(pairs: int, base: float, context: int, factor: float = 8.0) -> Array:
    """[pairs]: what llama 3 divides each speed by; pairs that turn 4 times or more in `context` /
    `factor` positions are kept, those that turn less than once are divided by `factor`, in between
    the speed is mixed."""
    turns = context / factor * base ** (-np.arange(pairs) / pairs) / (2 * math.pi)
    kept = np.clip((turns - 1) / (4 - 1), 0, 1)
    return 1 / (kept + (1 - kept) / factor)


def normal(rng: np.random.RandomState, *shape: int, scale: float) -> Array:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def near(rng: np.random.RandomState, centre: float, size: int) -> Array:
    return (centre + 0.25 * rng.standard_normal(size)).astype(np.float32)


def fan(columns: int) -> float:
    """The scale at which a matrix of that many columns keeps the size of what it multiplies."""
    return 1 / math.sqrt(columns)


# -- vocabulary: 256 bytes, some merges, three control tokens, padding -----------------------------

NORMAL, CONTROL, UNUSED = 1, 3, 5  # tokenizer.ggml.token_type
MERGES = [
    "Ġ t",
    "h e",
    "i n",
    "r e",
    "o n",
    "Ġt he",
    "Ġ a",
    "e r",
    "in g",
    "Ġ w",
    "o r",
    "l d",
    "l l",
    "Ġw or",
]
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n"
    "' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tokenizer_keys(words: int) -> Metadata:
    text = byte_letters() + [merge.replace(" ", "") for merge in MERGES]
    known = text + CONTROLS
    padding = [f"[PAD{i}]" for i in range(len(known), words)]
    kinds = [NORMAL] * len(text) + [CONTROL] * len(CONTROLS) + [UNUSED] * len(padding)
    end, start_turn, end_turn = (known.index(token) for token in CONTROLS)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": known + padding,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": start_turn,
        "tokenizer.ggml.eos_token_id": end_turn,
        "tokenizer.ggml.padding_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def byte_letters() -> list[str]:
    """GPT-2's letter for each byte: itself where printable, else the next free letter from U+0100;
    those come last."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
