"""Fuzzing kernels as bytes: written programs, changed by strangers who may repair the checksum.

Bits are flipped, bytes replaced, left out and repeated, two programs spliced, numbers made large.
What is read after that is a valid program, in the one form it has, and prints and parses; all else
is a `FileFormatError`. Nothing takes long.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import cache

from tests.backends.llvm.cases import all_cases
from tests.kernel.test_text import EVERYTHING
from tetrad.core.errors import FileFormatError
from tetrad.kernel import registry
from tetrad.kernel.bytes import HEADER, MAGIC, VERSION, checksum, from_bytes, to_bytes
from tetrad.kernel.text import parse, to_text
from tetrad.kernel.verify import problems

MOST_SECONDS = 5.0
EDGES = (0x00, 0x01, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
LARGE = (b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 9, b"\xff\xff\x03")


@cache
def written() -> list[bytes]:
    """Programs of every kind: registered, with every instruction, and small ones of each case."""
    programs = [entry.build() for entry in registry.entries()]
    programs += [parse(EVERYTHING), *(case.program for case in list(all_cases())[::9])]
    return [to_bytes(program) for program in programs]


def somewhere(rng: random.Random, data: bytearray) -> int:
    """Mostly in the body: what is wrong in front of it is found first."""
    return rng.randrange(len(data) // 3 if rng.random() < 0.7 else 0, len(data))


def flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[somewhere(rng, data)] ^= 1 << rng.randrange(8)


def replace(rng: random.Random, data: bytearray) -> None:
    data[somewhere(rng, data)] = rng.choice((*EDGES, rng.randrange(256)))


def truncate(rng: random.Random, data: bytearray) -> None:
    del data[somewhere(rng, data) :]


def leave_out(rng: random.Random, data: bytearray) -> None:
    at = somewhere(rng, data)
    del data[at : at + rng.choice((1, 1, 2, 5, 20))]


def repeat(rng: random.Random, data: bytearray) -> None:
    at, length = somewhere(rng, data), rng.choice((1, 4, 16, 64))
    data[at:at] = data[at : at + length] * rng.choice((1, 1, 2, 300))


def enlarge(rng: random.Random, data: bytearray) -> None:
    at = somewhere(rng, data)
    data[at : at + 1] = rng.choice(LARGE)


def lengthen(rng: random.Random, data: bytearray) -> None:
    """The same number in another form, where it is one."""
    at = somewhere(rng, data)
    data[at : at + 1] = bytes((data[at] | 0x80, 0))


def splice(rng: random.Random, data: bytearray) -> None:
    other = rng.choice(written())[HEADER.size :]
    at, start = somewhere(rng, data), rng.randrange(len(other))
    data[at : at + rng.choice((0, 10, len(data)))] = other[start : start + rng.choice((3, 30, 999))]


CHANGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    flip, flip, replace, replace, truncate, leave_out, repeat, enlarge, lengthen, splice,
)  # fmt: skip


def mutant(seed: int) -> bytes:
    rng = random.Random(seed)
    whole = rng.choice(written())
    if rng.random() < 0.15:  # header and all, nothing repaired
        data = bytearray(whole)
        rng.choice(CHANGES)(rng, data)
        return bytes(data)
    data = bytearray(whole[HEADER.size :])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if data:
            rng.choice(CHANGES)(rng, data)
    return HEADER.pack(MAGIC, VERSION, len(data), checksum(bytes(data))) + bytes(data)


def check(seed: int) -> str | None:
    data, start = mutant(seed), time.perf_counter()
    try:
        found = wrong_with(data)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    took = time.perf_counter() - start
    found = found or (f"took {took:.1f} seconds" if took > MOST_SECONDS else None)
    return f"seed {seed}: {found}; {len(data)} bytes {data[:200].hex()}" if found else None


def wrong_with(data: bytes) -> str | None:
    try:
        program = from_bytes(data)
    except FileFormatError as error:
        is_told = error.offset is not None and error.offset <= len(data) and error.hint
        return None if is_told else f"no place or no remedy: {error}"
    if problems(program):
        return "an invalid program was read"
    if to_bytes(program) != data:
        return "two forms of one program"
    text = to_text(program)
    return None if to_text(parse(text)) == text else "its text reads otherwise"
