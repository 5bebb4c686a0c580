"""Code generation, targets: vectors of words cut into what one instruction takes, and put together
again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tetrad.backends.llvm.emitter import Codegen


def pieces(cg: Codegen, width: int, x: str) -> list[str]:
    """An operand, as many lanes at a time as an instruction takes."""
    if width == cg.lanes:
        return [x]
    wide, word = f"<{cg.lanes} x i32>", f"<{width} x i32>"
    lanes = [
        ", ".join(f"i32 {start + i}" for i in range(width)) for start in range(0, cg.lanes, width)
    ]
    return [cg.new(f"shufflevector {wide} {x}, {wide} poison, {word} <{part}>") for part in lanes]


def constant_bytes(values: tuple[int, ...]) -> str:
    """Unsigned bytes as a vector of LLVM, which writes them signed."""
    return f"<{', '.join(f'i8 {value - 256 if value > 127 else value}' for value in values)}>"


def joined(cg: Codegen, width: int, parts: list[str]) -> str:
    """The pieces as one vector."""
    while len(parts) > 1:
        parts = [join_words(cg, a, b, width) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        width *= 2
    return parts[0]


def join_words(cg: Codegen, a: str, b: str, width: int) -> str:
    lanes = ", ".join(f"i32 {i}" for i in range(2 * width))
    kind = f"<{width} x i32>"
    return cg.new(f"shufflevector {kind} {a}, {kind} {b}, <{2 * width} x i32> <{lanes}>")
