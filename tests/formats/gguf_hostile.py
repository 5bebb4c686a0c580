"""GGUF files made to cost much: each of some kind, of any size. Opened or refused, they take little
time and memory.

    python -m tests.formats.gguf_hostile FOLDER MEGABYTES [KIND...]

prints what each took, as lines of JSON: every kind is tried in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.formats.gguf_bytes import ARR, BOOL, F32, I32, STR, U8, U32, Bytes

Kind = Callable[[int], bytes | bytearray]
ROOM = 4096  # bytes left for the rest of a header
KINDS: dict[str, Kind] = {}


def kind(make: Kind) -> Kind:
    KINDS[make.__name__] = make
    return make


def packed(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def array(name: str, element: int, count: int, content: bytes) -> bytes:
    return packed(name.encode()) + struct.pack("<IIQ", ARR, element, count) + content


def strings(name: str, texts: Iterable[bytes]) -> bytes:
    parts = [packed(text) for text in texts]
    return array(name, STR, len(parts), b"".join(parts))


def text(name: str, value: bytes) -> bytes:
    return packed(name.encode()) + struct.pack("<I", STR) + packed(value)


def with_keys(*keys: bytes, tensors: Iterable[bytes] = ()) -> bytes:
    entries = list(tensors)
    return b"".join((Bytes().head(len(entries), len(keys)).data, *keys, *entries))


def vocabulary(tokens: bytes, merges: bytes, *more: bytes) -> bytes:
    model, pre = text("tokenizer.ggml.model", b"gpt2"), text("tokenizer.ggml.pre", b"gpt-2")
    return with_keys(text("general.architecture", b"llama"), model, pre, tokens, merges, *more)


def tensor(name: bytes, dims: tuple[int, ...], format: int, offset: int) -> bytes:
    return packed(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, format, offset)


def repeated(
    name: str, pattern: bytes, strings_of_it: int, size: int, most: int = 1 << 21
) -> bytes:
    """An array of strings, many times the same few: as many as the file or the limit has room
    for."""
    times = min((size - ROOM) // len(pattern), most // strings_of_it)
    return array(name, STR, times * strings_of_it, pattern * times)


# -- strings ---------------------------------------------------------------------------------------


@kind
def too_many_empty_strings(size: int) -> bytes:
    return with_keys(repeated("tokenizer.ggml.tokens", packed(b""), 1, size, most=1 << 40))


@kind
def empty_strings(size: int) -> bytes:
    return with_keys(repeated("tokenizer.ggml.tokens", packed(b""), 1, size))


@kind
def strings_of_zeros(size: int) -> bytes:
    """They look like lengths."""
    return with_keys(repeated("a", packed(bytes(7)), 1, size))


@kind
def strings_long_and_short(size: int) -> bytes:
    return with_keys(repeated("a", packed(bytes(300)) + packed(b""), 2, size))


@kind
def strings_that_end_the_search(size: int) -> bytes:
    """Just enough short ones for the quick way to be tried again."""
    return with_keys(repeated("a", packed(b"a") * 40 + packed(b"b" * 256), 41, size))


@kind
def many_arrays_of_strings(size: int) -> bytes:
    one = strings("", [b"a"] * 4)[8:]
    return with_keys(*(packed(b"k%06d" % i) + one for i in range(min(size // 70, (1 << 14) - 1))))


# -- vocabularies ----------------------------------------------------------------------------------


@kind
def too_many_tokens(size: int) -> bytes:
    merges = strings("tokenizer.ggml.merges", [b"a b"])
    return vocabulary(
        repeated("tokenizer.ggml.tokens", packed(b"a"), 1, size, most=(1 << 19) + 1), merges
    )


@kind
def equal_tokens(size: int) -> bytes:
    merges = strings("tokenizer.ggml.merges", [b"a b"])
    return vocabulary(
        repeated("tokenizer.ggml.tokens", packed(b"a"), 1, size, most=1 << 19), merges
    )


@kind
def many_tokens_and_merges(size: int) -> bytes:
    """As many as there may be, and all of them right."""
    merged = min(size // 40, (1 << 19) - 4096)
    words = [b"%03x" % i for i in range(4096)]
    pairs = [(words[i >> 12], words[i & 4095]) for i in range(merged)]
    tokens = strings("tokenizer.ggml.tokens", [*words, *(a + b for a, b in pairs)])
    return vocabulary(tokens, strings("tokenizer.ggml.merges", (a + b" " + b for a, b in pairs)))


@kind
def many_equal_merges(size: int) -> bytes:
    merges = repeated("tokenizer.ggml.merges", packed(b"a b"), 1, size, most=1 << 20)
    return vocabulary(strings("tokenizer.ggml.tokens", [b"a", b"b", b"ab"]), merges)


@kind
def long_tokens(size: int) -> bytes:
    count = min((size - ROOM) // 20_008, (60 << 20) // 20_008)
    tokens = strings("tokenizer.ggml.tokens", (b"%06x" % i + b"a" * 19_994 for i in range(count)))
    return vocabulary(tokens, strings("tokenizer.ggml.merges", [b"a b"]))


@kind
def merges_without_tokens(size: int) -> bytes:
    merges = repeated("tokenizer.ggml.merges", packed(b"x y"), 1, size, most=1 << 20)
    return vocabulary(strings("tokenizer.ggml.tokens", [b"a", b"b"]), merges)


# -- arrays and texts ------------------------------------------------------------------------------


@kind
def arrays_in_arrays(size: int) -> bytes:
    inner = struct.pack("<IQ", U8, 0)
    for _ in range(2):
        inner = struct.pack("<IQ", ARR, 32) + inner * 32
    times = min((size - ROOM) // len(inner), (1 << 16) // (32 * 33))
    return with_keys(array("a", ARR, times, inner * times))


@kind
def too_deep(size: int) -> bytes:
    return with_keys(
        packed(b"a") + struct.pack("<I", ARR) + struct.pack("<IQ", ARR, 1) * ((size - ROOM) // 12)
    )


@kind
def numbers(size: int) -> bytes:
    count = min(size - ROOM, 60 << 20)
    return with_keys(
        array("tokenizer.ggml.scores", F32, count // 8, bytes(count // 2)),
        array("b", BOOL, 9, bytes(9)),
    )


@kind
def bools(size: int) -> bytes:
    count = min(size - ROOM, 60 << 20)
    return with_keys(array("a", BOOL, count, b"\1" * (count - 1) + b"\2"))


@kind
def a_long_template(size: int) -> bytes:
    length = min(size - ROOM, 60 << 20)
    return with_keys(
        text("tokenizer.chat_template", b"{{ a }}" * (length // 7 - 1) + "\U0001f600".encode())
    )


@kind
def texts_with_a_wide_letter(size: int) -> bytes:
    """One such letter makes Python take four bytes for each of the others."""
    one = b"a" * 900_000 + "\U0001f600".encode()
    return with_keys(*(text(f"k{i}", one) for i in range(size // len(one))))


@kind
def long_names(size: int) -> bytes:
    name = b"a" * 65_000 + "\U0001f600".encode()
    entry = struct.pack("<IB", U8, 1)
    return with_keys(*(packed(b"%06d" % i + name) + entry for i in range(size // 65_100)))


@kind
def many_keys(size: int) -> bytes:
    return with_keys(
        *(
            packed(b"key.%06d" % i) + struct.pack("<II", U32, i)
            for i in range(min(size // 26, 1 << 14))
        )
    )


@kind
def equal_keys(size: int) -> bytes:
    return with_keys(*[packed(b"key") + struct.pack("<II", U32, 1)] * min(size // 19, 1 << 14))


# -- tensors ---------------------------------------------------------------------------------------


@kind
def many_tensors(size: int) -> bytes:
    count = min(size // 96, 1 << 16)
    made = with_keys(
        tensors=(tensor(b"blk.%d.x" % i, (2, 2, 1, 1), 0, 32 * i) for i in range(count))
    )
    return made + bytes(32 * count + 64)


@kind
def too_many_tensors(size: int) -> bytes:
    return Bytes().head((1 << 16) + 1, 0).data + bytes(size - ROOM)


@kind
def equal_tensors(size: int) -> bytes:
    count = min(size // 64, 1 << 16)
    return with_keys(tensors=[tensor(b"t", (1,), 0, 0)] * count) + bytes(4096)


@kind
def overlapping_tensors(size: int) -> bytes:
    """Each of them half of the file."""
    count, elements = min(size // 128, 1 << 16), size // 8
    made = with_keys(
        tensors=(tensor(b"blk.%d.x" % i, (elements,), 0, 32 * i) for i in range(count))
    )
    return made + bytes(size - len(made))


@kind
def many_axes(size: int) -> bytes:
    return with_keys(tensors=[tensor(b"t", (1,) * 5, 0, 0)]) + bytes(size - ROOM)


@kind
def a_huge_shape(size: int) -> bytes:
    return with_keys(tensors=[tensor(b"t", (1 << 40, 1 << 40), 0, 0)]) + bytes(size - ROOM)


@kind
def a_huge_alignment(size: int) -> bytes:
    key = packed(b"general.alignment") + struct.pack("<II", U32, 1 << 20)
    return with_keys(
        key, tensors=[tensor(b"a", (1,), 0, 0), tensor(b"b", (1,), 0, 1 << 20)]
    ) + bytes(size - ROOM)


@kind
def split_into_many(size: int) -> bytes:
    keys = [
        packed(name) + struct.pack("<Ii", I32, n)
        for name, n in ((b"split.no", 0), (b"split.count", 65_535))
    ]
    return with_keys(*keys) + bytes(size - ROOM)


# -- what they take --------------------------------------------------------------------------------


def look(path: Path) -> str:
    """Opened, described, and its tokeniser made: what is said of it."""
    from tetrad.cli.models import facts
    from tetrad.core.errors import TetradError
    from tetrad.hub.describe import describe
    from tetrad.text.tokenizer import tokenizer_from_gguf

    try:
        found = describe(str(path))
        facts(found)
        if "tokenizer.ggml.tokens" in found.metadata:
            tokenizer_from_gguf(
                {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": [], **found.metadata}
            )
    except TetradError as error:
        return str(error)
    return "opened"


def measured(path: Path) -> dict[str, object]:
    """In a process of its own: seconds of processor time, and the most memory above what it began
    with."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            said = look(path)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            result = {
                "said": said[:200],
                "seconds": time.process_time() - begin,
                "peak": peak << 10,
            }
            os.write(writing, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return dict(json.loads(told)) if told else {"said": "died", "seconds": 1e9, "peak": 1 << 60}


def main(folder: str, megabytes: str, *names: str) -> None:
    path, size = Path(folder) / "hostile.gguf", int(megabytes) << 20
    look(Path(__file__))  # what is imported is no part of it
    for name in names or KINDS:
        path.write_bytes(bytes(KINDS[name](size)).ljust(size, b"\0"))
        print(
            json.dumps({"kind": name, "bytes": path.stat().st_size, **measured(path)}), flush=True
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
