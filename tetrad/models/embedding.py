"""Models, embedding: from the tokens of a text to its hidden states, and from those to one vector.

Receives an engine and tokens; returns arrays. An encoder takes several texts side by side; a
decoder takes one, a few rows at a time, as all rows of logits of a long text would not be small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tetrad.core.errors import BusyError
from tetrad.models.engine import Engine
from tetrad.models.engine import Sequence as Held

EVERY = 64  # rows at a time, where all are wanted


def text_states(engine: Engine, texts: Sequence[Sequence[int]]) -> Iterator[Iterable[np.ndarray]]:
    """The hidden states of each text, in parts."""
    if not engine.programs.is_uncut:
        return (every_row(engine, tokens) for tokens in texts)
    return ([states] for states in side_by_side(engine, texts))


def side_by_side(engine: Engine, texts: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
    """The hidden states of texts that are evaluated whole, as many at a time as there are free
    slots."""
    at = 0
    while at < len(texts):
        held = start_some(engine, texts[at : at + len(engine.slots)])
        try:
            yield from engine.step_each(list(zip(held, texts[at:], strict=False)))
        finally:
            for sequence in held:
                engine.free(sequence)
        at += len(held)


def start_some(engine: Engine, texts: Sequence[Sequence[int]]) -> list[Held]:
    """At least one sequence. Only the first waits for a slot: who holds some and waits for more
    could wait forever."""
    held = [engine.start(texts[0])]
    try:
        for tokens in texts[1:]:
            held.append(engine.start(tokens, wait=False))
    except BusyError:
        pass  # another thread has the other slots
    return held


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
