"""Compares rope, attention, recurrent and transformer blocks and experts with PyTorch and
Transformers, in values and gradients, with sizes and settings at random. Run by hand, from the root
of the repository:

    python -m venv peer && peer/bin/pip install torch transformers
    PYTHONPATH=. peer/bin/python tests/nn/against_torch_blocks.py [seed]

One line a family: how many cases, and the largest difference beside the largest number, in double
precision and in single precision (the oracle is PyTorch in double precision).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import tetrad as td

TOLERANCE = {np.float64: 1e-11, np.float32: 1e-4}
Tree = dict[str, np.ndarray]
# a case: arrays, our function of them, PyTorch's
Case = tuple[Tree, Callable[[Any], Any], Callable[[Any], Any]]


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def attention(rng: np.random.Generator) -> Case:
    b, t, s, groups, d = (int(rng.integers(1, n)) for n in (4, 40, 40, 4, 20))
    heads, width = groups * int(rng.integers(1, 4)), int(rng.integers(1, 20))
    shapes = {"q": (b, heads, t, d), "k": (b, groups, s, d), "v": (b, groups, s, width)}
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    how, scale = pick(rng, "none", "causal", "mask", "bias"), pick(rng, None, 0.3)
    mask = rng.random((b, 1, t, s)) < 0.7
    mask[..., 0] = True  # PyTorch gives NaN to a query that sees nothing
    if how == "bias":
        arrays["bias"] = rng.standard_normal((1, heads, t, s))

    def ours(x: Any) -> Any:
        return td.nn.dot_product_attention(
            x["q"], x["k"], x["v"], x.get("bias"), mask if how == "mask" else None,
            scale=scale, is_causal=how == "causal", layout="bnsh",
        )  # fmt: skip

    def theirs(x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            x["q"], x["k"], x["v"],
            attn_mask=torch.tensor(mask) if how == "mask" else x.get("bias"),
            is_causal=how == "causal", scale=scale, enable_gqa=heads != groups,
        )  # fmt: skip

    return arrays, ours, theirs


def packed(rng: np.random.Generator) -> Case:
    lengths = rng.integers(0, 30, 5)
    ends, heads, d = np.cumsum([0, *lengths]), int(rng.integers(1, 4)), int(rng.integers(1, 20))
    arrays = {name: rng.standard_normal((int(ends[-1]) or 1, heads, d)) for name in "qkv"}
    causal = bool(rng.integers(2))

    def theirs(x: Any) -> Any:
        parts = [
            torch.nn.functional.scaled_dot_product_attention(
                *(x[n][first:stop].transpose(0, 1) for n in "qkv"), is_causal=causal
            ).transpose(0, 1)
            for first, stop in itertools.pairwise(ends)
            if stop > first
        ]
        return torch.cat(parts) if parts else 0 * x["q"]

    return (
        arrays,
        lambda x: td.nn.dot_product_attention(
            x["q"], x["k"], x["v"], cu_seqlens_q=ends, is_causal=causal
        ),
        theirs,
    )


def recurrent(rng: np.random.Generator) -> Case:
    kind = pick(rng, "lstm", "gru")
    inputs, hidden, batch, time = (int(rng.integers(1, 9)) for _ in range(4))
    settings = {"bidirectional": bool(rng.integers(2)), "bias": bool(rng.integers(2))}
    layers = int(rng.integers(1, 4))
    cell = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind]
    module = cell(inputs, hidden, layers, batch_first=True, **settings).double()
    return against_module(
        module, {"x": (batch, time, inputs)}, rng,
        lambda w, x: getattr(td.nn, kind)(w, x["x"])[0], lambda m, x: m(x["x"])[0],
    )  # fmt: skip


def transformer(rng: np.random.Generator) -> Case:
    heads = int(rng.integers(1, 4))
    size, hidden, batch = heads * int(rng.integers(1, 9)), int(rng.integers(1, 30)), 2
    kind = pick(rng, "attention", "encoder", "decoder")
    activation = pick(rng, "relu", "gelu")
    settings: dict[str, Any] = {"num_heads": heads, "norm_first": bool(rng.integers(2))}
    made = {
        "dim_feedforward": hidden, "dropout": 0.0, "batch_first": True, "activation": activation,
        "norm_first": settings["norm_first"],
    }  # fmt: skip
    shapes = {"x": (batch, int(rng.integers(1, 9)), size), "memory": (batch, 7, size)}
    if kind == "attention":
        module: Any = torch.nn.MultiheadAttention(size, heads, batch_first=True)
        return against_module(
            module.double(), shapes, rng,
            lambda w, x: td.nn.multi_head_attention(w, x["x"], x["memory"], num_heads=heads),
            lambda m, x: m(x["x"], x["memory"], x["memory"])[0],
        )  # fmt: skip
    settings["activation"] = activation
    if kind == "encoder":
        module = torch.nn.TransformerEncoderLayer(size, heads, **made)
        return against_module(
            module.double(), {"x": shapes["x"]}, rng,
            lambda w, x: td.nn.transformer_encoder_layer(w, x["x"], **settings),
            lambda m, x: m(x["x"]),
        )  # fmt: skip
    module = torch.nn.TransformerDecoderLayer(size, heads, **made)
    hide = torch.nn.Transformer.generate_square_subsequent_mask(shapes["x"][1]).double()
    return against_module(
        module.double(), shapes, rng,
        lambda w, x: td.nn.transformer_decoder_layer(w, x["x"], x["memory"], **settings),
        lambda m, x: m(x["x"], x["memory"], tgt_mask=hide),
    )  # fmt: skip


def against_module(
    module: Any, shapes: dict[str, Any], rng: np.random.Generator, ours: Any, theirs: Any
) -> Case:
    weights = {name: p.detach().numpy() for name, p in module.named_parameters()}
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}

    def called(x: Any) -> Any:
        own = {name: x[f"w.{name}"] for name in weights}
        return torch.func.functional_call(Wrapped(module, theirs), prefixed(own), (x,))

    whole = {**arrays, **{f"w.{name}": w for name, w in weights.items()}}
    return whole, lambda x: ours({n: x[f"w.{n}"] for n in weights}, x), called


class Wrapped(torch.nn.Module):
    """A module with the call that is compared."""

    def __init__(self, module: Any, call: Any) -> None:
        super().__init__()
        self.module, self.call = module, call

    def forward(self, x: Any) -> Any:
        return self.call(self.module, x)


def prefixed(weights: dict[str, Any]) -> dict[str, Any]:
    return {f"module.{name}": w for name, w in weights.items()}


def experts(rng: np.random.Generator) -> Case:
    tokens, used, count, outputs, inputs = (int(rng.integers(1, n)) for n in (90, 4, 9, 9, 9))
    expert = rng.integers(-1, count, (tokens, used))
    arrays = {
        "x": rng.standard_normal((tokens, inputs)),
        "w": rng.standard_normal((count, outputs, inputs)),
    }

    def theirs(x: Any) -> Any:
        each = torch.einsum("tuok,tk->tuo", x["w"][torch.tensor(expert).clamp(min=0)], x["x"])
        return torch.where(torch.tensor(expert == -1)[..., None], 0.0, each)

    return arrays, lambda x: td.nn.grouped_matmul(x["x"], x["w"], expert), theirs


def rope(rng: np.random.Generator) -> Case:
    """x turned as Llama turns it, by tables of Transformers."""
    size, length = 2 * int(rng.integers(2, 20)), int(rng.integers(1, 60))
    scaling: dict[str, Any] = {"rope_type": pick(rng, "linear", "yarn", "llama3"), "factor": 4.0}
    if scaling["rope_type"] != "linear":
        scaling["original_max_position_embeddings"] = 32
    if scaling["rope_type"] == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = LlamaConfig(
        hidden_size=size, num_attention_heads=1, head_dim=size, max_position_embeddings=128,
        rope_theta=10000.0, rope_parameters={"rope_theta": 10000.0, **scaling},
    )  # fmt: skip
    speeds, amplitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu")
    angles = torch.arange(length)[:, None] * speeds.double()

    def theirs(x: Any) -> Any:
        cos, sin = (torch.cat([f(angles)] * 2, -1) * amplitude for f in (torch.cos, torch.sin))
        turned = torch.cat([-x["x"][..., size // 2 :], x["x"][..., : size // 2]], -1)
        return x["x"] * cos[:, None] + turned * sin[:, None]

    def ours(x: Any) -> Any:
        tables = td.nn.rope_tables(length, size, scaling=scaling, dtype="float64")
        return td.nn.rope(x["x"], *(td.astype(t, x["x"].dtype) for t in tables))

    return {"x": rng.standard_normal((2, length, 3, size))}, ours, theirs


FAMILIES = {
    "attention": (attention, 60), "packed": (packed, 20), "recurrent": (recurrent, 20),
    "transformer": (transformer, 30), "experts": (experts, 30), "rope": (rope, 30),
}  # fmt: skip


def differences(case: Case, dtype: Any) -> Iterator[float]:
    """Of values and of all gradients, beside the largest number of each."""
    arrays, ours, theirs = case
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in arrays.items()}
    want = theirs(leaves)
    ct = np.random.default_rng(0).standard_normal(tuple(want.shape))
    gradients = torch.autograd.grad((want * torch.tensor(ct)).sum(), list(leaves.values()))
    given = {name: x.astype(dtype) for name, x in arrays.items()}
    weigh = ct.astype(dtype)
    got = td.jit(ours)(given)
    back = td.jit(td.grad(lambda x: td.sum(ours(x) * weigh)))(given)
    pairs = [(got, want.detach()), *((back[n], g) for n, g in zip(leaves, gradients, strict=True))]
    for a, b in pairs:
        b = b.numpy()
        yield float(np.abs(np.asarray(a) - b).max(initial=0) / max(np.abs(b).max(initial=0), 1.0))


def main() -> int:
    seed, failed = int(sys.argv[1]) if len(sys.argv) > 1 else 0, 0
    for name, (make, count) in FAMILIES.items():
        worst = dict.fromkeys(TOLERANCE, 0.0)
        for i in range(count):
            case = make(np.random.default_rng([seed, i]))
            for dtype in TOLERANCE:
                # tables of Transformers are f32
                worst[dtype] = max(worst[dtype], *differences(case, dtype))
        slack = 1e-6 if name == "rope" else 0.0
        right = all(worst[dtype] <= TOLERANCE[dtype] + slack * 100 for dtype in TOLERANCE)
        failed += not right
        shown = ", ".join(f"{dtype.__name__} {value:.1e}" for dtype, value in worst.items())
        print(f"{name}: {count} cases, {shown}{'' if right else '   WRONG'}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
