"""Command line: `tetrad perplexity`, how well a model predicts a text, counted as llama-perplexity
counts.

The text is cut into chunks of the context; in each, the second half is predicted, with the first
before it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from tetrad.cli.completion import complete_models
from tetrad.cli.console import note, say
from tetrad.cli.options import (
    READABLE,
    ModelCommand,
    model_options,
    model_path,
    option,
    read_text,
    set_threads,
)
from tetrad.cli.unused import flash_option, gpu_option, unused
from tetrad.core.record import record
from tetrad.models.damage import no_numbers
from tetrad.models.engine import Engine
from tetrad.models.load import ModelParts, load_parts

CONTEXT = 512
MOST_LOSS = 700.0  # of a token: exp of more is no number


@click.command(cls=ModelCommand)
@click.argument("model", shell_complete=complete_models, required=False)
@model_options
@option("-f", "--file", "source", type=READABLE, required=True, help="The text; - is stdin.")
@option(
    "-c",
    "--ctx-size",
    "context",
    type=click.IntRange(4),
    default=CONTEXT,
    help="Tokens of a chunk.",
)
@option("--chunks", type=click.IntRange(-1), default=-1, help="Chunks at most; -1: all.")
@option("-t", "--threads", type=int, default=-1, help="Threads; -1: what affinity and quota allow.")
@gpu_option
@flash_option
@unused("-b", "--batch-size", "batch", why="batches are chosen here")
@unused("-ub", "--ubatch-size", "ubatch", why="batches are chosen here")
def perplexity(
    model: str | None, source: Path, context: int, chunks: int, threads: int, **given: Any
) -> None:
    """How well MODEL predicts the text of FILE: the running value of each chunk, then mean and
    error."""
    set_threads(threads)
    parts = load_parts(model_path(model, given), context=context)
    parts.programs.check_predicts("perplexity")
    tokens = parts.tokenizer.encode(read_text(source), parse_special=False)
    count = len(tokens) // context if chunks < 0 else min(chunks, len(tokens) // context)
    if count == 0:
        raise click.UsageError(
            f"the text has {len(tokens)} tokens; one chunk of {context} is needed, or a smaller -c"
        )
    note(f"perplexity: calculating perplexity over {count} chunks, n_ctx={context}")
    total = Total(0.0, 0.0, 0)
    for number, total in enumerate(running(parts, np.array(tokens, np.int32), context, count), 1):
        say(f"[{number}]{total.perplexity:.4f},", end="", flush=True)
    say(f"\nFinal estimate: PPL = {total.perplexity:.4f} +/- {total.error:.5f}")
    sys.stdout.flush()


@record
class Total:
    """Sums over tokens of -log p and of its square."""

    loss: float
    square: float
    count: int

    def plus(self, losses: np.ndarray) -> Total:
        return Total(
            self.loss + float(losses.sum()),
            self.square + float((losses**2).sum()),
            self.count + losses.size,
        )

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss / self.count)

    @property
    def error(self) -> float:
        """Of the perplexity, from the spread of the losses."""
        mean = self.loss / self.count
        variance = max(0.0, self.square / self.count - mean * mean)
        return self.perplexity * math.sqrt(variance / max(1, self.count - 1))


def running(parts: ModelParts, tokens: np.ndarray, context: int, count: int) -> Iterator[Total]:
    """The total after each chunk."""
    engine, total = Engine(parts.programs, slots=1, context=context), Total(0.0, 0.0, 0)
    for i in range(count):
        chunk = tokens[i * context : (i + 1) * context].copy()
        if parts.tokenizer.adds_bos and parts.tokenizer.bos is not None:
            chunk[0] = parts.tokenizer.bos  # every chunk begins as a text does
        found = losses(engine, chunk)
        if (wrong := ~(found < MOST_LOSS)).any():
            at = len(chunk) // 2 + int(wrong.argmax())
            raise no_numbers(
                engine.programs.step, f"no likelihood for a token of chunk {i + 1}", at
            )
        total = total.plus(found)
        yield total


def losses(engine: Engine, chunk: np.ndarray) -> np.ndarray:
    """-log p of every token in the second half but its first."""
    half = len(chunk) // 2
    sequence = engine.start(chunk)
    try:
        engine.rewind(sequence, 0)
        engine.step([(sequence, chunk[:half])])
        logits = engine.step_every(sequence, chunk[half:-1])
    finally:
        engine.free(sequence)
    return negative_log(logits, chunk[half + 1 :])


def negative_log(logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """-log softmax(logits)[token], row by row in f64: a vocabulary in f64 for all rows would not be
    small."""
    found = np.empty(len(tokens))
    for i, (row, token) in enumerate(zip(logits, tokens, strict=True)):
        top = row.max()
        with np.errstate(all="ignore"):  # what is no number is said by who asked
            found[i] = (
                np.log(np.exp(row - top, dtype=np.float64).sum()) + float(top) - float(row[token])
            )
    return found


COMMANDS = {"perplexity": perplexity}
