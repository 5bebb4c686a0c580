"""GGUF files made by hand, byte by byte: what the reader must accept, and, changed a little, what
it must refuse.

Written from the description of the format and sharing nothing with the package. `Bytes` remembers
where its numbers stand, so that mutants can change a length or a count and not only bits.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
CODES = {
    U8: "B",
    I8: "b",
    U16: "H",
    I16: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "B",
    U64: "Q",
    I64: "q",
    F64: "d",
}


class Number(NamedTuple):
    """Where an integer of the header stands, and how wide it is."""

    offset: int
    nbytes: int


class Bytes:
    def __init__(self) -> None:
        self.data, self.numbers = bytearray(), list[Number]()

    def raw(self, data: bytes) -> Bytes:
        self.data += data
        return self

    def number(self, code: str, value: float) -> Bytes:
        if code in "BHIQ":
            self.numbers.append(Number(len(self.data), struct.calcsize(code)))
        return self.raw(struct.pack("<" + code, value))

    def u32(self, value: int) -> Bytes:
        return self.number("I", value)

    def u64(self, value: int) -> Bytes:
        return self.number("Q", value)

    def string(self, text: str | bytes) -> Bytes:
        raw = text.encode() if isinstance(text, str) else text
        return self.u64(len(raw)).raw(raw)

    def head(self, tensors: int, keys: int, version: int = 3) -> Bytes:
        return self.raw(b"GGUF").u32(version).u64(tensors).u64(keys)

    def key(self, name: str | bytes, kind: int, value: float | str | bytes) -> Bytes:
        self.string(name).u32(kind)
        return (
            self.string(value)
            if isinstance(value, str | bytes)
            else self.number(CODES[kind], value)
        )

    def array(self, name: str, kind: int, values: list[float] | list[str]) -> Bytes:
        return self.string(name).u32(ARR).elements(kind, values)

    def elements(self, kind: int, values: list[float] | list[str]) -> Bytes:
        self.u32(kind).u64(len(values))
        for value in values:
            self.string(value) if isinstance(value, str) else self.raw(
                struct.pack("<" + CODES[kind], value)
            )
        return self

    def tensor(self, name: str | bytes, dims: list[int], kind: int, offset: int) -> Bytes:
        self.string(name).u32(len(dims))
        for size in dims:
            self.u64(size)
        return self.u32(kind).u64(offset)

    def pad(self, alignment: int = 32) -> Bytes:
        return self.raw(b"\0" * (-len(self.data) % alignment))


def small_file() -> Bytes:
    """About 2 kB with every type of value, arrays in arrays, and tensors of several formats."""
    b = Bytes().head(tensors=5, keys=20)
    b.key("general.architecture", STR, "llama").key("general.alignment", U32, 64)
    b.key("a.u8", U8, 200).key("a.i8", I8, -100).key("a.u16", U16, 60000).key("a.i16", I16, -30000)
    b.key("a.i32", I32, -5).key("a.u64", U64, 2**63 + 1).key("a.i64", I64, -(2**40))
    b.key("a.f32", F32, 1.5).key("a.f64", F64, 0.1).key("a.bool", BOOL, 1).key(
        "a.bytes", STR, b"\xff\xfe"
    )
    b.array("tokens", STR, ["<s>", "", "é", "a longer token"]).array(
        "scores", F32, [0.5, -1.0, 2.0]
    )
    b.array("flags", BOOL, [0, 1, 1]).array("empty", I32, [])
    b.string("nested").u32(ARR).u32(ARR).u64(2).elements(U16, [1, 2, 3]).elements(STR, ["x", "y"])
    b.key("split.no", U16, 0).key("split.count", U16, 1)
    b.tensor("token_embd.weight", [8, 4], 0, 0).tensor("blk.0.q", [32, 2], 2, 128).tensor(
        "blk.0.k", [256], 12, 192
    )
    b.tensor("scalar", [], 26, 384).tensor("blk.0.norm", [2, 2, 2, 2], 1, 448)
    b.pad(64).raw(bytes(i % 251 for i in range(448 + 32)))
    return b
