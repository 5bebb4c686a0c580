"""Bench, speeds: the picture of the front page. Tokens a second of ours, of llama.cpp and of
ik_llama.cpp, side by side, for a small model and one of a billion parameters.

    IK_LLAMA=folder python bench/speeds.py [--quick] [--picture docs/bench-llm.svg]

The small one is SmolLM2. The large one has the shape of a llama with 1.07 billion parameters, the
vocabulary of SmolLM2 and random weights, and says so: speed does not depend on what they mean.
llama.cpp's quantiser makes its Q4_K_M file. Contestants, cases and rounds are those of `llm.py`.

ik_llama.cpp has no package: IK_LLAMA is the folder with its `llama-bench` and
`llama-batched-bench`. They time themselves, right after the other two; without them there are two
bars.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import RESULTS, THREADS, Budget, Report, Row, cpu_times, foreign_share, machine, options
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


# -- ik_llama.cpp ----------------------------------------------------------------------------------

IK = os.environ.get("IK_LLAMA", "")
SIDES = ("Tetrad", "llama.cpp", "ik_llama.cpp") if IK else ("Tetrad", "llama.cpp")


def ik_rows(model: Contest, wants: Callable[[str], bool], budget: Budget) -> Iterator[Row]:
    path = str(model.file())
    tasks = {
        WRITE: lambda: ik_alone(path, 0, CASES[0].tokens, budget.rounds),
        READ: lambda: ik_alone(path, CASES[2].tokens, 0, budget.rounds),
        TOGETHER: lambda: ik_together(path),
    }
    for title, speed in tasks.items():
        name = f"{title}, {model.name}"
        if wants(name):
            before = cpu_times()
            found = speed()
            foreign = foreign_share(before, cpu_times())
            yield Row(f"ik: {name}", found, "tok/s", None, None, "", None, foreign)


def ik_said(program: str, *words: str) -> str:
    command = [str(Path(IK) / program), *words, "-t", str(THREADS)]
    done = subprocess.run(command, text=True, capture_output=True, check=True)
    return done.stdout


def ik_alone(path: str, read: int, written: int, rounds: int) -> float:
    said = ik_said("llama-bench", "-m", path, "-p", str(read), "-n", str(written),
                   "-r", str(rounds + 1), "-o", "json")  # fmt: skip
    return max(json.loads(said)[0]["samples_ts"])


def ik_together(path: str) -> float:
    """A line of its table: | PP | TG | B | N_KV | T_PP | S_PP | T_TG | S_TG | ..."""
    said = ik_said("llama-batched-bench", "-m", path, "-c", "2048", "-npp", "8", "-ntg", "8",
                   "-npl", str(SEQUENCES))  # fmt: skip
    lines = [[cell.strip() for cell in line.split("|")] for line in said.splitlines()]
    return max(float(cells[8]) for cells in lines if len(cells) > 8 and cells[3] == str(SEQUENCES))


# -- the picture -----------------------------------------------------------------------------------


def panels(rows: list[Row]) -> list[Panel]:
    """One for each thing that is done, with a group of bars for each model."""
    by_name = {row.name: row for row in rows}

    def panel(title: str) -> Panel:
        values = {m.name: values_of(by_name, f"{title}, {m.name}") for m in MODELS}
        return Panel(title, [Speeds(name, found) for name, found in values.items() if found])

    return [panel(title) for title in (WRITE, READ, TOGETHER)]


def values_of(rows: dict[str, Row], name: str) -> tuple[float, ...]:
    row, third = rows.get(name), rows.get(f"ik: {name}")
    if row is None:
        return ()
    return row.ours, row.theirs or 0.0, *([third.ours] if third is not None else [])


def main() -> int:
    chosen = options("tokens a second, for the front page")
    report = Report(f"speeds of {THREADS} threads")
    for model in MODELS:
        for rows in (rows_of, *([ik_rows] if IK else [])):
            for made in rows(model, chosen.wants, chosen.budget):
                report.add(made)
    if not chosen.only:
        drawn = side_by_side("Tokens a second", machine(), SIDES, panels(report.rows))
        RESULTS.mkdir(exist_ok=True)
        for path in filter(None, (RESULTS / "speeds.svg", chosen.picture)):
            path.write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
