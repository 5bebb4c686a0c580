"""Bench, speeds: the picture of the front page. Tokens a second of ours and of llama.cpp, side by
side, for a small model and one of a billion parameters.

    python bench/speeds.py [--quick] [--picture docs/bench-llm.svg]

The small one is SmolLM2. The large one has the shape of a llama with 1.07 billion parameters, the
vocabulary of SmolLM2 and random weights, and says so: speed does not depend on what they mean.
llama.cpp's quantiser makes its Q4_K_M file. Contestants, cases and rounds are those of `llm.py`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import RESULTS, THREADS, Budget, Report, Row, machine, options
from llm import (
    CASES,
    FILE_TYPES,
    SEQUENCES,
    Ours,
    Theirs,
    contest,
    eight,
    model_file,
    quantize,
    timed,
)
from picture import Panel, Speeds, side_by_side

from tetrad.formats import gguf

LARGE = {  # keys of the architecture: those of Llama 3.2 1B
    "block_count": 16,
    "embedding_length": 2048,
    "feed_forward_length": 8192,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
    "rope.dimension_count": 64,
    "context_length": 8192,
}
WRITE, READ, TOGETHER = "write", "read a prompt of 512", f"write {SEQUENCES} answers at once"


@dataclass(frozen=True, slots=True)
class Contest:
    """A model of the picture: what it is called there, and its file."""

    name: str
    file: Callable[[], Path]


MODELS = (
    Contest("SmolLM2 135M, Q4_1", lambda: model_file("Q4_1")),
    Contest("SmolLM2 135M, Q4_K_M", lambda: model_file("Q4_K_M")),
    Contest("llama 1B shape, random weights, Q4_K_M", lambda: large_file()),
)


# -- a billion random weights ----------------------------------------------------------------------


def large_file() -> Path:
    folder = Path(tempfile.gettempdir()) / "tetrad-bench-models"
    folder.mkdir(exist_ok=True)
    made = folder / "llama-1B-random-Q4_K_M.gguf"
    if not made.exists():
        source, part = folder / "llama-1B-random-Q8_0.gguf", made.with_suffix(".part")
        write_random(source)
        quantize(source, part, FILE_TYPES["Q4_K_M"])
        source.unlink()
        part.rename(made)
    return made


def write_random(target: Path) -> None:
    """Matrices in Q8_0, each with blocks drawn at random."""
    with gguf.open_file(model_file("Q4_1")) as small:
        keys = dict(small.typed)
        words = small.tensors["token_embd.weight"].shape[0]
    keys |= {f"llama.{name}": value for name, value in LARGE.items()}
    keys["general.name"] = "llama 1B shape, random weights"
    chance = np.random.default_rng(0)
    tensors = {name: random_tensor(shape, chance) for name, shape in shapes(words)}
    gguf.write(target, keys, tensors)


def shapes(words: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, hidden = LARGE["embedding_length"], LARGE["feed_forward_length"]
    small = width // LARGE["attention.head_count"] * LARGE["attention.head_count_kv"]
    yield "token_embd.weight", (words, width)
    yield "output_norm.weight", (width,)
    of_layer = {
        "attn_norm": (width,),
        "attn_q": (width, width),
        "attn_k": (small, width),
        "attn_v": (small, width),
        "attn_output": (width, width),
        "ffn_norm": (width,),
        "ffn_gate": (hidden, width),
        "ffn_up": (hidden, width),
        "ffn_down": (width, hidden),
    }
    for layer in range(LARGE["block_count"]):
        for name, shape in of_layer.items():
            yield f"blk.{layer}.{name}.weight", shape


def random_tensor(shape: tuple[int, ...], chance: np.random.Generator) -> np.ndarray | gguf.Raw:
    """Norms are one; a block of a matrix is a scale and 32 numbers of eight bits."""
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    count = shape[0] * shape[1] // 32
    blocks = chance.integers(0, 256, (count, 34), np.uint8)
    scale = np.float16(1 / 74 / np.sqrt(shape[1]))  # of bytes with a deviation of 74: products stay
    blocks[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return gguf.Raw("q8_0", shape, blocks.reshape(-1))


# -- measuring -------------------------------------------------------------------------------------


def rows_of(model: Contest, wants: Callable[[str], bool], budget: Budget) -> Iterator[Row]:
    path = model.file()
    yield from alone(model.name, (Ours(path), Theirs(path)), wants, budget)
    name = f"{TOGETHER}, {model.name}"
    if wants(name):
        yield eight(name, (Ours(path, SEQUENCES), Theirs(path, SEQUENCES)), 0.0, budget)


def alone(
    model: str, sides: tuple[Ours, Theirs], wants: Callable[[str], bool], budget: Budget
) -> Iterator[Row]:
    """One sequence: writing, and reading."""
    for title, case in ((WRITE, CASES[0]), (READ, CASES[2])):
        name = f"{title}, {model}"
        if wants(name):
            best, foreign, _ = contest(lambda i, case=case: timed(case, sides[i]), budget, None)
            ours, theirs = (case.tokens / seconds for seconds in best)
            yield Row(name, ours, "tok/s", ours / theirs, None, "llama.cpp", theirs, foreign)


def panels(rows: list[Row]) -> list[Panel]:
    """One for each thing that is done, with a pair of bars for each model."""
    found = []
    for title in (WRITE, READ, TOGETHER):
        of_title = {row.name.removeprefix(f"{title}, "): row for row in rows}
        speeds = [
            Speeds(model.name, row.ours, row.theirs or 0.0)
            for model in MODELS
            if (row := of_title.get(model.name)) is not None
        ]
        found.append(Panel(title, speeds))
    return found


def main() -> int:
    chosen = options("tokens a second, for the front page")
    report = Report(f"speeds of {THREADS} threads")
    for model in MODELS:
        for made in rows_of(model, chosen.wants, chosen.budget):
            report.add(made)
    if not chosen.only:
        drawn = side_by_side(
            "Tokens a second", machine(), ("Tetrad", "llama.cpp"), panels(report.rows)
        )
        RESULTS.mkdir(exist_ok=True)
        for path in filter(None, (RESULTS / "speeds.svg", chosen.picture)):
            path.write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
