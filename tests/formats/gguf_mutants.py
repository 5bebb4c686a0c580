"""Damaged GGUF files, many of them: whatever the bytes, the reader opens them or raises its own
error.

Most mutants change numbers of the header (lengths, counts, types, offsets) to values at the edges,
because blind bit flips mostly hit strings; the others cut, insert, delete, repeat and flip.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.formats.gguf_bytes import Bytes, small_file
from tetrad.core.errors import FileFormatError
from tetrad.formats import gguf

EDGES = sorted(
    {
        edge + d
        for edge in (0, *(1 << k for k in (3, 5, 6, 7, 8, 15, 16, 31, 32, 47, 48, 61, 62, 63, 64)))
        for d in (-1, 0, 1)
    }
    | {
        2,
        4,
        9,
        12,
        13,
        20,
        1 << 20,
        1 << 30,
        2**64 - 8,
        2**64 - 32,
        2**64 - 64,
        2**64 // 34,
        2**64 // 144,
    }
)

Mutation = Callable[[random.Random, bytearray, Bytes], None]


def change_numbers(rng: random.Random, data: bytearray, seed: Bytes) -> None:
    for _ in range(rng.randint(1, 3)):
        offset, nbytes = rng.choice(seed.numbers)
        old = int.from_bytes(data[offset : offset + nbytes], "little")
        new = rng.choice(
            (
                rng.choice(EDGES),
                rng.choice(EDGES),
                len(data),
                old + 1,
                old - 1,
                old * 2,
                rng.getrandbits(64),
            )
        )
        data[offset : offset + nbytes] = (new % (1 << 8 * nbytes)).to_bytes(nbytes, "little")


def flip_bytes(rng: random.Random, data: bytearray, seed: Bytes) -> None:
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut(rng: random.Random, data: bytearray, seed: Bytes) -> None:
    del data[rng.randrange(len(data)) :]


def insert(rng: random.Random, data: bytearray, seed: Bytes) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.choice((rng.randbytes(rng.randint(1, 40)), b"\0" * 8, b"\xff" * 8))


def delete(rng: random.Random, data: bytearray, seed: Bytes) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randint(1, 40)]


def repeat(rng: random.Random, data: bytearray, seed: Bytes) -> None:
    """A piece of the file over another place: duplicates, and values where others were expected."""
    length = rng.randint(1, 64)
    source, target = rng.randrange(len(data)), rng.randrange(len(data))
    data[target : target + length] = data[source : source + length]


MUTATIONS: tuple[Mutation, ...] = (change_numbers,) * 5 + (flip_bytes, cut, insert, delete, repeat)


@dataclass
class Outcome:
    opened: int = 0
    refused: int = 0
    slowest_seconds: float = 0.0
    peak_bytes: int = 0  # of one mutant, above what was allocated before it


def mutant(number: int, seed: Bytes) -> bytes:
    """The same for the same number, so a failure comes back."""
    rng, data = random.Random(number), bytearray(seed.data)
    rng.choice(MUTATIONS)(rng, data, seed)
    return bytes(data)


def look_at_everything(path: Path) -> None:
    with gguf.open_file(path) as file:
        for value in file.metadata.values():
            if isinstance(value, gguf.Strings):
                list(value)
        for tensor in file.tensors.values():
            assert len(file.data(tensor.name)) == tensor.nbytes
            file.data(tensor.name).sum()


def campaign(first: int, count: int, folder: Path) -> Outcome:
    outcome, seed, path = Outcome(), small_file(), folder / "mutant.gguf"
    tracemalloc.start()
    try:
        for number in range(first, first + count):
            path.write_bytes(mutant(number, seed))
            try_one(path, outcome)
    except Exception as error:
        raise AssertionError(f"mutant {number}: {type(error).__name__}: {error}") from error
    finally:
        tracemalloc.stop()
    return outcome


def try_one(path: Path, outcome: Outcome) -> None:
    tracemalloc.reset_peak()
    before, started = tracemalloc.get_traced_memory()[0], time.perf_counter()
    try:
        look_at_everything(path)
        outcome.opened += 1
    except FileFormatError as error:
        assert error.file == str(path) and str(path) in str(error)
        outcome.refused += 1
    outcome.slowest_seconds = max(outcome.slowest_seconds, time.perf_counter() - started)
    outcome.peak_bytes = max(outcome.peak_bytes, tracemalloc.get_traced_memory()[1] - before)
