"""Replay, compare: two captured files in, where they differ out, as a diff of the first programs
that do."""

from __future__ import annotations

import difflib
import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any

SHOWN = 10  # programs whose diff is printed
MOST_LINES = 60  # of each diff
PARTS = ("schedule", "kernels", "llvm")

Captured = dict[str, dict[str, Any]]


def read(path: str) -> Captured:
    with gzip.open(path, "rt") as file:
        return {made["program"]: made for made in map(json.loads, file)}


def differences(
    before: Captured, after: Captured, parts: Sequence[str] = PARTS
) -> Iterator[tuple[str, str]]:
    """(program, diff) for every program of which these parts are not the same, or that is only on
    one side."""
    for name in dict.fromkeys([*before, *after]):
        if name not in after or name not in before:
            yield name, f"only {'before' if name in before else 'after'}\n"
        elif any(before[name][part] != after[name][part] for part in parts):
            yield name, "".join(diff_of(before[name], after[name], parts))


def diff_of(before: dict[str, Any], after: dict[str, Any], parts: Sequence[str]) -> Iterator[str]:
    """Of each part what is only on one side; kernels and modules that both have do not count,
    wherever they stand."""
    for part in parts:
        left, right = before[part], after[part]
        if part != "schedule":
            left, right = without(left, right), without(right, left)
        lines = difflib.unified_diff(
            flat(left), flat(right), f"before/{part}", f"after/{part}", n=2, lineterm=""
        )
        for number, line in enumerate(lines):
            if number == MOST_LINES:
                yield "  ...\n"
                break
            yield f"  {line}\n"


def without(texts: list[str], others: list[str]) -> list[str]:
    """The texts that the others have not, counted."""
    left = list(texts)
    for other in others:
        if other in left:
            left.remove(other)
    return left


def flat(texts: list[str]) -> list[str]:
    return [line for text in texts for line in text.splitlines()]


def report(before: Captured, after: Captured, parts: Sequence[str] = PARTS) -> str:
    """What people read; empty where nothing differs."""
    found = list(differences(before, after, parts))
    if not found:
        return ""
    shown = [f"{name}\n{diff}" for name, diff in found[:SHOWN]]
    more = [f"and {len(found) - SHOWN} more: {', '.join(name for name, _ in found[SHOWN:][:40])}"]
    return "\n".join([*shown, *(more if len(found) > SHOWN else [])])
