"""Replay, canonical: text of a kernel or of LLVM in, the same text with every name that people
choose numbered, out.

Two texts that differ only in such names become equal. Names of instructions, types and intrinsics
stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|%?[A-Za-z_][\w.]*')
_HEADS = re.compile(
    r"^(?:buffer (?P<buffer>[\w.]+):|dim (?P<dim>[\w.]+) |args (?P<args>.*)$)", re.M
)
_LLVM_NAME = re.compile(r'[@%](?:"[^"]*"|[\w.$-]+)|^[\w.$-]+(?=:)', re.M)


def canonical_kernel(text: str) -> str:
    """A kernel without the names of the kernel, its regions, buffers, arguments and Dims."""
    names = Numbered()
    for found in _HEADS.finditer(text):
        for name in (found["buffer"], found["dim"], *(found["args"] or "").split(", ")):
            if name:
                names.number(name)
    return "\n".join(canonical_line(line, names) for line in text.splitlines())


def canonical_line(line: str, names: Numbered) -> str:
    head = line.lstrip()
    if head.startswith(("kernel ", "region ")):
        return _QUOTED.sub('""', line)

    def replaced(found: re.Match[str]) -> str:
        word = found[0].strip('"')
        return names.known.get(word, found[0])

    return _WORD.sub(replaced, line)


def canonical_llvm(text: str) -> str:
    """A module with functions, values and labels numbered in order of appearance; declarations
    sorted."""
    declared = sorted(line for line in text.splitlines() if line.startswith("declare"))
    rest = "\n".join(line for line in text.splitlines() if not line.startswith("declare"))
    labels, names = set(re.findall(r"^([\w.$-]+):", rest, re.M)), Numbered()

    def replaced(found: re.Match[str]) -> str:
        word = found[0]
        if word.startswith("@llvm.") or word[0] not in "@%" and word not in labels:
            return word
        return word[:1].strip("abcdefghijklmnopqrstuvwxyz") + names.number(word.lstrip("@%"))

    return "\n".join([*declared, _LLVM_NAME.sub(replaced, rest)])


class Numbered:
    """Names by their number in order of appearance."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.known: dict[str, str] = {}
        for name in names:
            self.number(name)

    def number(self, name: str) -> str:
        return self.known.setdefault(name, f"n{len(self.known)}")
