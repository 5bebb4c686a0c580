"""Damaged safetensors files, many of them: whatever the bytes, the reader opens them or raises its
own error.

Most mutants change one or two tokens of the header (numbers to values at the edges, names, types,
punctuation), because blind bit flips mostly end in a header that is no JSON.
"""

from __future__ import annotations

import json
import random
import re
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tetrad.core.errors import FileFormatError, UnsupportedError
from tetrad.formats import safetensors
from tetrad.formats.safetensors.layout import DTYPES

EDGES = [
    "0", "1", "2", "3", "7", "8", "-1", "-0", "01", "1.0", "1e3", "true", "null", '"1"', "[]", "{}",
    "[" * 40, str(2**31), str(2**32), str(2**48), str(2**63 - 1), str(2**64 - 1), str(2**64),
    "9" * 60, "NaN",
]  # fmt: skip
TYPES = ["F32", "F64", "U8", "BOOL", "F4", "F6_E2M3", "F8_E5M2", "C64", "f32", "", "X" * 90]
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+|[{}\[\],:]')


def small_file() -> bytes:
    """Several types and shapes, metadata, escapes."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt", "näme": 'a "b"\n'}}
    data = b""
    for name, dtype, shape, nbytes in (
        ("a.weight", "F32", [3, 4], 48),
        ("a.bias", "BF16", [4], 8),
        ("flags", "BOOL", [5], 5),
        ("none", "F16", [0, 2], 0),
        ("scalar", "U8", [], 1),
        ("low", "F4", [4], 2),
    ):
        offsets = [len(data), len(data) + nbytes]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += bytes(i % 2 for i in range(nbytes))
    header = json.dumps(entries, ensure_ascii=False).encode()
    return len(header).to_bytes(8, "little") + header + data


SEED = small_file()
HEADER = int.from_bytes(SEED[:8], "little")


def framed(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def change_tokens(rng: random.Random, data: bytes) -> bytes:
    header = data[8 : 8 + HEADER]
    for _ in range(rng.randint(1, 2)):
        found = rng.choice([*TOKEN.finditer(header)])
        new = rng.choice(
            [
                rng.choice(EDGES),
                json.dumps(rng.choice(TYPES)),
                rng.choice([*TOKEN.finditer(header)])[0].decode(),
                "",
            ]
        ).encode()
        header = header[: found.start()] + new + header[found.end() :]
    return framed(header, data[8 + HEADER :])


def change_number(rng: random.Random, data: bytes) -> bytes:
    header = data[8 : 8 + HEADER]
    found = rng.choice([m for m in TOKEN.finditer(header) if m[0].isdigit()])
    new = str(int(found[0]) + rng.choice([-8, -4, -1, 1, 4, 8, 48])).encode()
    header = header[: found.start()] + new + header[found.end() :]
    return framed(header, data[8 + HEADER :])


def change_length(rng: random.Random, data: bytes) -> bytes:
    length = rng.choice([0, 1, HEADER - 1, HEADER + 1, len(data), 10**8, 2**63, 2**64 - 1])
    return length.to_bytes(8, "little") + data[8:]


def flip(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.randint(1, 16)) + data[at:]


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(change_tokens,) * 4, *(change_number,) * 3, change_length, flip, cut, insert,
)  # fmt: skip


def mutant(number: int) -> bytes:
    """The same for the same number, so a failure comes back."""
    rng = random.Random(number)
    return rng.choice(MUTATIONS)(rng, SEED)


@dataclass
class Outcome:
    opened: int = 0
    refused: int = 0
    slowest_seconds: float = 0.0
    peak_bytes: int = 0


def look_at_everything(path: Path) -> None:
    with safetensors.open_file(path) as file:
        for name, tensor in file.tensors.items():
            assert len(file.data(name)) == tensor.nbytes
            if tensor.dtype in DTYPES:
                assert file.array(name).shape == tensor.shape


def campaign(first: int, count: int, folder: Path) -> Outcome:
    outcome, path = Outcome(), folder / "mutant.safetensors"
    tracemalloc.start()
    try:
        for number in range(first, first + count):
            path.write_bytes(mutant(number))
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
    except (FileFormatError, UnsupportedError) as error:
        assert str(path) in str(error)
        outcome.refused += 1
    outcome.slowest_seconds = max(outcome.slowest_seconds, time.perf_counter() - started)
    outcome.peak_bytes = max(outcome.peak_bytes, tracemalloc.get_traced_memory()[1] - before)
