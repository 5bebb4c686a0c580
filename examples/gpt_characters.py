"""A character-level GPT, trained on a short story until it writes in its manner. The model is a
plain function on a tree of parameters; forward, backward and update are one compiled program.

    python examples/gpt_characters.py [--steps 300] [--picture loss.svg]

Prints a sample, and draws the loss of every step as an SVG.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tetrad as td

LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 2, 128, 4, 64, 16
STORY = Path(__file__).parent / "data" / "harbour.txt"
Tree = dict[str, Any]


# -- the model -------------------------------------------------------------------------------------


def make_params(key: td.Array, vocabulary: int) -> Tree:
    keys = iter(td.random.split(key, 2 + 4 * LAYERS))

    def normal(*shape: int) -> td.Array:
        return td.random.normal(next(keys), shape) * 0.08

    def dense(rows: int, columns: int) -> Tree:
        return {"weight": normal(rows, columns), "bias": td.zeros(columns)}

    def norm() -> Tree:
        return {"weight": td.ones(WIDTH), "bias": td.zeros(WIDTH)}

    def block() -> Tree:
        return {
            "qkv": dense(WIDTH, 3 * WIDTH), "out": dense(WIDTH, WIDTH),
            "up": dense(WIDTH, 4 * WIDTH), "down": dense(4 * WIDTH, WIDTH),
            "before": norm(), "between": norm(),
        }  # fmt: skip

    return {
        "tokens": normal(vocabulary, WIDTH), "places": normal(CONTEXT, WIDTH),
        "blocks": [block() for _ in range(LAYERS)], "after": norm(),
    }  # fmt: skip


def logits(params: Tree, tokens: td.Array) -> td.Array:
    """tokens [batch, time] -> logits of the token after each, [batch, time, vocabulary]."""
    x = params["tokens"][tokens] + params["places"][: tokens.shape[1]]
    for block in params["blocks"]:
        x = x + attended(block, td.nn.layer_norm(x, **block["before"]))
        hidden = td.nn.gelu(dense(block["up"], td.nn.layer_norm(x, **block["between"])))
        x = x + dense(block["down"], hidden)
    return td.nn.layer_norm(x, **params["after"]) @ params["tokens"].T


def attended(block: Tree, x: td.Array) -> td.Array:
    batch, time, _ = x.shape
    qkv = dense(block["qkv"], x).reshape(batch, time, 3, HEADS, WIDTH // HEADS)
    q, k, v = (qkv[:, :, i] for i in range(3))
    found = td.nn.dot_product_attention(q, k, v, is_causal=True)
    return dense(block["out"], found.reshape(batch, time, WIDTH))


def dense(layer: Tree, x: td.Array) -> td.Array:
    return x @ layer["weight"] + layer["bias"]


# -- training --------------------------------------------------------------------------------------


def loss(params: Tree, tokens: td.Array) -> td.Array:
    """The mean cross entropy of each token, given those before it."""
    return td.nn.cross_entropy(logits(params, tokens[:, :-1]), tokens[:, 1:])


def train(story: np.ndarray, vocabulary: int, steps: int) -> tuple[Tree, list[float]]:
    optimiser = td.optim.chain(
        td.optim.clip_by_global_norm(1.0),
        td.optim.adam(td.optim.warmup_cosine_decay_schedule(0.0, 3e-3, 20, steps)),
    )

    @td.jit(donate_argnums=(0, 1))
    def step(params: Tree, state: Any, tokens: td.Array) -> tuple[Tree, Any, td.Array]:
        value, gradients = td.value_and_grad(loss)(params, tokens)
        updates, state = optimiser.update(gradients, state, params)
        return td.optim.apply_updates(params, updates), state, value

    rng, losses = np.random.default_rng(0), list[float]()
    params = make_params(td.random.key(0), vocabulary)
    state = optimiser.init(params)
    for number in range(steps):
        starts = rng.integers(0, len(story) - CONTEXT - 1, BATCH)
        tokens = story[starts[:, None] + np.arange(CONTEXT + 1)]
        params, state, value = step(params, state, tokens)
        losses.append(float(value))
        if number % 100 == 99:
            print(f"step {number + 1:4}: loss {np.mean(losses[-50:]):.3f}")
    return params, losses


def sample(params: Tree, start: np.ndarray, count: int) -> np.ndarray:
    """`start` and what the model writes after it, drawn at a temperature of 0.5."""

    @td.jit
    def following(params: Tree, window: td.Array, key: td.Array) -> td.Array:
        return td.random.categorical(key, logits(params, window[None])[0, -1] / 0.5)

    found = list(start)
    for key in td.random.split(td.random.key(1), count):
        window = np.asarray(found[-CONTEXT:], np.int32)
        found.append(int(following(params, window, key)))
    return np.asarray(found)


# -- the picture -----------------------------------------------------------------------------------


def picture(losses: list[float]) -> str:
    """The loss of every step as a line, and a line that follows it smoothly."""
    width, height, edge = 640, 320, 40
    top = max(losses)

    def line(values: list[float], style: str) -> str:
        places = (
            f"{edge + (width - 2 * edge) * i / len(values):.1f},"
            f"{height - edge - (height - 2 * edge) * value / top:.1f}"
            for i, value in enumerate(values)
        )
        return f'<polyline fill="none" {style} points="{" ".join(places)}"/>'

    smooth = [float(np.mean(losses[max(0, i - 20) : i + 1])) for i in range(len(losses))]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        line(losses, 'stroke="#b8d4cb"'), line(smooth, 'stroke="#2a7f62" stroke-width="2"'),
        f'<text x="{edge}" y="24">loss from {losses[0]:.2f} to {smooth[-1]:.2f} '
        f"in {len(losses)} steps</text>",
        "</svg>\n",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--picture", type=Path, help="where the loss is drawn")
    given = parser.parse_args()
    text = STORY.read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    story = np.array([alphabet.index(letter) for letter in text], np.int32)
    params, losses = train(story, len(alphabet), given.steps)
    written = sample(params, story[:CONTEXT], 300)
    print("".join(alphabet[token] for token in written))
    drawn = given.picture or Path(tempfile.mkdtemp()) / "loss.svg"
    drawn.write_text(picture(losses), encoding="utf-8")
    print(f"the loss is drawn in {drawn}")
    assert np.mean(losses[-50:]) < 1.6, "it has not learned"


if __name__ == "__main__":
    main()
