"""Models, embedding: from the tokens of a text to its hidden states, and from those to one vector.

Receives programs or an engine, and tokens; returns arrays. An encoder takes several texts side by
side; a decoder takes one, a few rows at a time, as all rows of logits of a long text would not be
small.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from tetrad.backends.cpu.memory import Storage
from tetrad.models.engine import Engine
from tetrad.models.steps import CHUNK, TEXT_TILE, Programs
from tetrad.tracing.array import Array

EVERY = 64  # rows at a time, where all are wanted
TOKENS = 2 * CHUNK  # of an encoder's step, unless one text has more
FEW_TEXTS = 8  # so many in a step, or a multiple: each size has tables of its own
MOST_SIZES = 64  # of steps whose arguments are kept


class TextEncoder:
    """An encoder, ready to run: whole texts, side by side, each with the bits it has alone. Threads
    may share it."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.turns = programs, programs.turns
        self.batches: OrderedDict[tuple[int, int], TextArguments] = OrderedDict()

    def states(
        self, texts: Sequence[np.ndarray], types: Sequence[np.ndarray] | None = None
    ) -> Iterator[np.ndarray]:
        """The hidden states f32[tokens, width] of each text. `types` say of every token of which
        part of its text it is; without them all are of the first."""
        for some in groups_of([len(text) for text in texts]):
            mine = None if types is None else [types[i] for i in some]
            yield from self.run([texts[i] for i in some], mine)

    def run(
        self, texts: Sequence[np.ndarray], types: Sequence[np.ndarray] | None
    ) -> list[np.ndarray]:
        """Texts that go into one step."""
        ends = [*accumulate(len(text) for text in texts)]
        self.programs.check_files()
        with self.turns:
            batch = self.batch(round_up(ends[-1]), len(texts))
            batch.fill(texts, types)
            found = batch.run()
        return [found[end - len(text) : end] for text, end in zip(texts, ends, strict=True)]

    def batch(self, tokens: int, texts: int) -> TextArguments:
        """The arguments of a step of so many tokens and texts, and of what fills it up."""
        key = tokens, texts if texts <= FEW_TEXTS else -(-texts // FEW_TEXTS) * FEW_TEXTS
        if key not in self.batches:
            self.batches[key] = TextArguments(self.programs, *key)
        self.batches.move_to_end(key)
        if len(self.batches) > MOST_SIZES:
            self.batches.popitem(last=False)
        return self.batches[key]


class TextArguments:
    """The arguments of an encoder's step of one size, written anew for every step."""

    def __init__(self, programs: Programs, tokens: int, texts: int) -> None:
        self.tokens, self.position, self.types = (np.zeros(tokens, np.int32) for _ in range(3))
        self.starts = np.zeros(texts + 2, np.int32)  # one more text fills the step up
        arrays = [
            Array.from_numpy(x) for x in (self.tokens, self.position, self.types, self.starts)
        ]
        self.bound = programs.texts.sized(*arrays)
        self.storages = [x.storage(Storage.from_numpy) for x in arrays]

    def fill(self, texts: Sequence[np.ndarray], types: Sequence[np.ndarray] | None) -> None:
        """Texts one after the other; what is left over is a text that nobody reads."""
        at, self.types[:] = 0, 0
        for i, text in enumerate(texts):
            end = at + len(text)
            self.starts[i], self.tokens[at:end] = at, text
            self.position[at:end] = np.arange(len(text))
            if types is not None:
                self.types[at:end] = types[i]
            at = end
        self.starts[len(texts)] = at
        self.starts[len(texts) + 1 :] = len(self.tokens)
        self.tokens[at:] = self.position[at:] = 0

    def run(self) -> np.ndarray:
        (made,) = self.bound.run(self.storages, self.bound.dims)
        return Array.from_storage(self.bound.outputs[0], made).memory


def ranked(programs: Programs, rows: np.ndarray) -> np.ndarray:
    """f32[texts]: a number for each state that stands for a text, f32[texts, width]."""
    if not len(rows):
        return np.zeros(0, np.float32)
    given = Array.from_numpy(rows)
    bound = programs.ranks.sized(given)
    (made,) = bound.run([given.storage(Storage.from_numpy)], bound.dims)
    return np.array(Array.from_storage(bound.outputs[0], made).memory[:, 0])


def round_up(tokens: int) -> int:
    return -(-tokens // TEXT_TILE) * TEXT_TILE


def groups_of(lengths: Sequence[int]) -> Iterator[range]:
    """Neighbouring texts that go into one step: at most so many tokens, about equally many each."""
    left, first, total = sum(lengths), 0, 0
    wanted = left / max(1, -(-left // TOKENS))
    for i, length in enumerate(lengths):
        if total and (total + length > TOKENS or total + length / 2 > wanted):
            yield range(first, i)
            first, left = i, left - total
            total, wanted = 0, left / max(1, -(-left // TOKENS))
        total += length
    if lengths:
        yield range(first, len(lengths))


def pooled(states: Iterable[np.ndarray], pooling: str) -> np.ndarray:
    """One vector: the mean of all states, the first, or the last."""
    total, count, last = np.float64(0), 0, np.zeros((1, 1), np.float32)
    for part in states:
        if pooling == "first":
            return np.asarray(part[0], np.float32)
        total, count, last = total + part.sum(axis=0, dtype=np.float64), count + len(part), part
    return np.asarray(last[-1] if pooling == "last" else total / count, np.float32)


def every_row(engine: Engine, tokens: Sequence[int], first: int = 0) -> Iterator[np.ndarray]:
    """What comes after every token from number `first` on, a few rows at a time."""
    sequence = engine.start(tokens)
    try:
        engine.rewind(sequence, min(first, sequence.length))
        if sequence.length < first:
            engine.step([(sequence, tokens[sequence.length : first])])
        for start in range(first, len(tokens), EVERY):
            yield engine.step_every(sequence, tokens[start : start + EVERY])
    finally:
        engine.free(sequence)
