"""Explain, recompiling: why a call needed a new program.

Receives the signatures a function was compiled for, as `Jitted.signatures` words them; returns
sentences that name the arguments that changed since the most similar earlier one, and the way to
need no new program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OPENING, CLOSING = "([{", ")]}"


def why_compiled(signatures: Sequence[str], signature: str) -> list[str]:
    """What made the function compile for this signature.

    >>> why_compiled(["(x: f32[2], n=1)", "(x: f32[3], n=1)"], "(x: f32[3], n=1)")[0]
    'x is f32[3], it was f32[2]'
    """
    earlier = signatures[: signatures.index(signature)]
    if not earlier:
        return ["first call"]
    wanted = parts_of(signature)
    nearest = min(reversed(earlier), key=lambda s: len(changes(parts_of(s), wanted)))
    found = changes(parts_of(nearest), wanted)
    only_sizes = all(
        sizes_differ(parts_of(nearest).get(name, ""), wanted.get(name, "")) for name in found
    )
    hint = "hint: only sizes differ; jit(..., dims=...) serves them all with one program"
    told = [*found.values(), *([hint] if found and only_sizes else [])]
    return told or ["the arguments come in another order or container"]


def changes(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Argument -> a sentence about what is different now."""
    told = {}
    for name, what in after.items():
        if before.get(name) != what:
            told[name] = (
                f"{name} is {what}, it was {before[name]}"
                if name in before
                else f"{name} is new: {what}"
            )
    told.update({name: f"{name} is gone" for name in before if name not in after})
    return told


def sizes_differ(before: str, after: str) -> bool:
    """Types of the same dtype and rank."""
    shapes = [re.fullmatch(r"(\w+)\[([^\[\]]+)\]", text) for text in (before, after)]
    heads = {(m.group(1), m.group(2).count(",")) for m in shapes if m}
    return all(shapes) and len(heads) == 1


def parts_of(signature: str) -> dict[str, str]:
    """Argument -> its type or static value.

    >>> parts_of("(p['w']: f32[2,3], how=('a', 'b'))")
    {"p['w']": 'f32[2,3]', 'how': "('a', 'b')"}
    """
    found = {}
    for part in split(signature[1:-1]):
        name, mark, what = (
            part.partition(": ") if ": " in part.partition("=")[0] else part.partition("=")
        )
        if mark:
            found[name] = what
    return found


def split(text: str) -> list[str]:
    """At commas outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in OPENING:
            depth += 1
        elif c in CLOSING:
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]
