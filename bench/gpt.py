"""Bench, gpt: a character GPT and its training step in three libraries, and a process of its own
that trains one for a few steps. Prints numbers as JSON.

    python bench/gpt.py tetrad | jax | torch

The parameters are a tree of plain arrays; every library gets the same numbers, the same batch and
the same formulas of Adam. Prints seconds of the best step, and the peak memory of the process in
bytes: from the start of the process, and by how much the training raised it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gradients import start_watching, status

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCABULARY = 6, 384, 6, 128, 16, 65
RATE = 1e-3
Tree = dict[str, Any]
Step = Callable[[], Any]  # a training step; gives the loss before it
MakeStep = Callable[[], Step]


def main(library: str) -> dict[str, float]:
    step = STEPS[library]()
    before = start_watching()
    times = [timed(step) for _ in range(6)]
    return {"first": times[0], "later": min(times[1:]), "peak": status("VmHWM"), "before": before}


def timed(step: Step) -> float:
    start = time.perf_counter()
    float(step())
    return time.perf_counter() - start


# -- numbers ---------------------------------------------------------------------------------------


def values() -> Tree:
    """Parameters as NumPy arrays: normal numbers of width 0.02, as GPT-2 begins."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.02).astype(np.float32)

    def norm() -> Tree:
        return {"weight": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}

    def dense(rows: int, columns: int) -> Tree:
        return {"weight": normal(rows, columns), "bias": np.zeros(columns, np.float32)}

    def block() -> Tree:
        return {
            "before": norm(), "qkv": dense(WIDTH, 3 * WIDTH), "out": dense(WIDTH, WIDTH),
            "between": norm(), "up": dense(WIDTH, 4 * WIDTH), "down": dense(4 * WIDTH, WIDTH),
        }  # fmt: skip

    return {
        "tokens": normal(VOCABULARY, WIDTH), "places": normal(CONTEXT, WIDTH),
        "blocks": [block() for _ in range(LAYERS)],
        "after": norm(), "head": normal(WIDTH, VOCABULARY),
    }  # fmt: skip


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Tokens, and the tokens that follow them."""
    found = np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, CONTEXT + 1)).astype(np.int32)
    return np.ascontiguousarray(found[:, :-1]), np.ascontiguousarray(found[:, 1:])


def flops() -> int:
    """Multiplications and additions of the products of one step: forward, and twice that
    backward."""
    tokens = BATCH * CONTEXT
    dense = LAYERS * 12 * WIDTH * WIDTH + WIDTH * VOCABULARY
    scores = LAYERS * 2 * WIDTH * (CONTEXT + 1) // 2
    return 6 * tokens * (dense + scores)


def near(losses: list[float], others: list[float]) -> bool:
    """Are they those of the same training, but for the order of sums?"""
    return bool(np.allclose(losses, others, rtol=1e-3))


# -- Tetrad and JAX: one text ----------------------------------------------------------------------


def loss(nn: Any, params: Tree, tokens: Any, targets: Any) -> Any:
    """nn: the functions of a library."""
    x = params["tokens"][tokens] + params["places"]
    for block in params["blocks"]:
        x = x + attended(nn, block, nn.layer_norm(x, **block["before"]))
        h = nn.gelu(dense(block["up"], nn.layer_norm(x, **block["between"])))
        x = x + dense(block["down"], h)
    logits = nn.layer_norm(x, **params["after"]) @ params["head"]
    return nn.cross_entropy(logits, targets)


def attended(nn: Any, block: Tree, x: Any) -> Any:
    qkv = dense(block["qkv"], x).reshape(BATCH, CONTEXT, 3, HEADS, WIDTH // HEADS)
    found = nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
    return dense(block["out"], found.reshape(BATCH, CONTEXT, WIDTH))


def dense(layer: Tree, x: Any) -> Any:
    return x @ layer["weight"] + layer["bias"]


class TetradFunctions:
    """What `loss` asks for."""

    def __init__(self) -> None:
        import tetrad as td

        self.gelu, self.layer_norm = td.nn.gelu, td.nn.layer_norm
        self.dot_product_attention = td.nn.dot_product_attention
        self.cross_entropy = td.nn.cross_entropy


class JaxFunctions:
    def __init__(self) -> None:
        import jax

        self.gelu, self.dot_product_attention = jax.nn.gelu, jax.nn.dot_product_attention

    @staticmethod
    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        import jax

        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weight + bias

    @staticmethod
    def cross_entropy(logits: Any, targets: Any) -> Any:
        import jax

        logs = jax.nn.log_softmax(logits)
        return -jax.numpy.take_along_axis(logs, targets[..., None], axis=-1).mean()


def with_tetrad() -> Step:
    import tetrad as td

    nn, optimiser = TetradFunctions(), td.optim.adam(RATE)

    @td.jit(donate_argnums=(0, 1))
    def step(params: Any, state: Any, tokens: Any, targets: Any) -> Any:
        value, found = td.value_and_grad(lambda p: loss(nn, p, tokens, targets))(params)
        updates, state = optimiser.update(found, state, params)
        return td.optim.apply_updates(params, updates), state, value

    params = td.tree.map(td.asarray, values())
    kept = [params, optimiser.init(params)]
    given = [td.asarray(each) for each in batch()]

    def call() -> Any:
        kept[0], kept[1], value = step(*kept, *given)
        return value

    return call


def with_jax() -> Step:
    nn = JaxFunctions()
    return jax_step(lambda params, *given: loss(nn, params, *given), values(), batch())


def jax_step(function: Callable[..., Any], start: Tree, data: Sequence[np.ndarray]) -> Step:
    """A jitted step of Adam on a loss; parameters and moments are donated."""
    import jax

    jnp, each = jax.numpy, jax.tree.map

    def step(params: Any, mean: Any, square: Any, count: Any, *given: Any) -> Any:
        value, found = jax.value_and_grad(function)(params, *given)
        count = count + 1
        mean = each(lambda m, g: 0.9 * m + 0.1 * g, mean, found)
        square = each(lambda v, g: 0.999 * v + 0.001 * g * g, square, found)
        first, second = 1 - 0.9**count, 1 - 0.999**count

        def moved(p: Any, m: Any, v: Any) -> Any:
            return p - RATE * (m / first) / (jnp.sqrt(v / second) + 1e-8)

        return each(moved, params, mean, square), mean, square, count, value

    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    params = each(jax.device_put, start)
    kept = [params, each(jnp.zeros_like, params), each(jnp.zeros_like, params), jnp.float32(0)]
    given = [jax.device_put(x) for x in data]

    def call() -> Any:
        *kept[:], value = jitted(*kept, *given)
        jax.block_until_ready(kept)
        return value

    return call


# -- PyTorch ---------------------------------------------------------------------------------------


def with_torch() -> Step:
    """Eager, as its users write it: scaled_dot_product_attention and the fused Adam."""
    import torch

    torch.set_num_threads(2)
    params = on_leaves(lambda x: torch.nn.Parameter(torch.from_numpy(x)), values())
    optimiser = torch.optim.Adam(leaves(params), lr=RATE, fused=True)
    tokens, targets = (torch.from_numpy(x.astype(np.int64)) for x in batch())

    def step() -> Any:
        optimiser.zero_grad(set_to_none=True)
        value = torch_loss(params, tokens, targets)
        value.backward()
        optimiser.step()
        return value.detach()

    return step


def torch_loss(params: Tree, tokens: Any, targets: Any) -> Any:
    from torch.nn import functional as F

    def normed(x: Any, norm: Tree) -> Any:
        return F.layer_norm(x, (WIDTH,), norm["weight"], norm["bias"])

    x = F.embedding(tokens, params["tokens"]) + params["places"]
    for block in params["blocks"]:
        x = x + torch_attended(block, normed(x, block["before"]))
        h = F.gelu(torch_dense(block["up"], normed(x, block["between"])), approximate="tanh")
        x = x + torch_dense(block["down"], h)
    logits = normed(x, params["after"]) @ params["head"]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def torch_attended(block: Tree, x: Any) -> Any:
    from torch.nn import functional as F

    qkv = torch_dense(block["qkv"], x).view(BATCH, CONTEXT, 3, HEADS, WIDTH // HEADS)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch_dense(block["out"], found.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))


def torch_dense(layer: Tree, x: Any) -> Any:
    import torch

    return torch.addmm(layer["bias"], x.flatten(0, -2), layer["weight"]).view(
        *x.shape[:-1], layer["weight"].shape[1]
    )


def leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    on_leaves(found.append, tree)
    return found


def on_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: on_leaves(function, part) for name, part in tree.items()}
    if isinstance(tree, list):
        return [on_leaves(function, part) for part in tree]
    return function(tree)


STEPS: dict[str, MakeStep] = {"tetrad": with_tetrad, "jax": with_jax, "torch": with_torch}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
