"""Replay, capture: `python -m tests.replay.capture FILE` writes what this revision's compiler makes
of every program.

A line of the file is a program for one processor, in a form that outlives changes of the compiler's
own classes: the text of its kernels, their LLVM text, and its schedule as the entries that native
code runs. Nothing is compiled to machine code, so any machine can replay any processor's programs.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.compiled import check_schedule
from tests.replay.canonical import canonical_kernel, canonical_llvm
from tests.replay.programs import programs
from tetrad.backends.cpu.encode import Constants, TableEncoder
from tetrad.backends.cpu.isa import LEVELS
from tetrad.backends.cpu.table import (
    BranchEntry,
    CallEntry,
    Entry,
    KernelEntry,
    LoopEntry,
    Table,
    Word,
)
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.record import replace
from tetrad.graph.infer import dim_names
from tetrad.graph.nodes import Graph
from tetrad.kernel.nodes import Program
from tetrad.lower.lower import Lowerer
from tetrad.schedule.nodes import Schedule, Slot, programs_of

PROCESSORS = ("x86-64-v3", "x86-64-v4-vnni")
THREADS = 2
SIZES = (1, 7)  # of every Dim, in turn: formulas are compared by what they give
FIRST_CONSTANT, FIRST_KERNEL = 1 << 44, 1 << 40

Labels = dict[int, str]  # what stands for a number that means a place


class LabelledConstants(Constants):
    """Constants at made-up addresses, each labelled with its content."""

    def __init__(self, labels: Labels) -> None:
        super().__init__()
        self.labels = labels
        self.numbers: dict[Slot, int] = {}

    def address(self, slot: Slot) -> int:
        if slot not in self.numbers:
            number = self.numbers[slot] = FIRST_CONSTANT + len(self.numbers)
            self.labels[number] = f"constant {digest(slot.literal.held.tobytes())}"  # type: ignore[union-attr]
        return self.numbers[slot]


def captured(name: str, graph: Graph, target: Target) -> dict[str, Any]:
    """What is compared of one program."""
    lowered = lower_graph(graph, Lowerer(replace(target.machine, parallel_groups=THREADS)))
    check_schedule(lowered)
    kernels = list(dict.fromkeys(programs_of(lowered)))
    addresses = {kernel: FIRST_KERNEL + i for i, kernel in enumerate(kernels)}
    texts = [canonical_kernel(str(kernel)) for kernel in kernels]
    labels = {
        addresses[kernel]: digest(text.encode())
        for kernel, text in zip(kernels, texts, strict=True)
    }
    return {
        "program": f"{name} [{target.name}]",
        "kernels": sorted(texts),
        "llvm": sorted(
            canonical_llvm(emit_module({"kernel": kernel}, target)) for kernel in kernels
        ),
        "schedule": [
            line for size in sizes_of(graph) for line in scheduled(lowered, addresses, labels, size)
        ],
    }


def sizes_of(graph: Graph) -> list[dict[str, int]]:
    names = dim_names(graph)
    return [dict.fromkeys(names, size) for size in SIZES] if names else [{}]


def scheduled(
    lowered: Schedule, addresses: Mapping[Program, int], labels: Labels, dims: Mapping[str, int]
) -> Iterator[str]:
    made = TableEncoder(addresses, LabelledConstants(labels)).encode(lowered, dims)
    yield (
        f"arena {made.arena_bytes} moved {made.bytes_moved} flops {made.flops} at "
        f"{sorted(dims.values())}"
    )
    yield from lines_of(made.table, labels, "")


def lines_of(table: Table, labels: Labels, indent: str) -> Iterator[str]:
    yield f"{indent}table scratch={table.scratch_bytes} heavy={table.heavy}"
    for entry in table.entries:
        yield from entry_lines(entry, labels, indent + "  ")


def entry_lines(entry: Entry, labels: Labels, indent: str) -> Iterator[str]:
    """An entry by its numbers: which kernel, by its text; where each address points; how it is
    split."""
    match entry:
        case KernelEntry():
            words = " ".join(word_text(word, labels) for word in entry.words)
            how = f"{entry.groups} {entry.slice} {entry.serial:d}{entry.barrier:d}{entry.shared:d}"
            yield f"{indent}kernel {labels[entry.function]} [{how}] {words}"
        case CallEntry():
            yield f"{indent}call {' '.join(word_text(word, labels) for word in entry.bases)}"
            yield from lines_of(entry.table, labels, indent)
        case LoopEntry():
            bases = " ".join(
                f"{word_text(base.word, labels)}{base.stride:+}" for base in entry.bases
            )
            yield (
                f"{indent}loop {entry.trips} {entry.counter} {entry.until} alone={entry.alone} "
                f"{bases}"
            )
            yield f"{indent}  {entry.carries}"
            inner = (entry.body,) if isinstance(entry.body, Table) else (Table(entry.body),)
            yield from (line for table in inner for line in lines_of(table, labels, indent))
        case BranchEntry():
            yield f"{indent}branch {entry.index}"
            for table in entry.tables:
                yield from lines_of(table, labels, indent)
        case _:
            given = [
                f"{a.how}:{word_text(a.word, labels)}:{[a.per_system, a.per_block, a.most]}"
                for a in entry.arguments
            ]
            yield f"{indent}host {entry.name} {entry.calls} {entry.blocks} {' '.join(given)}"


def word_text(word: Word, labels: Labels) -> str:
    """A number, a place relative to a base, or what lies at a made-up address."""
    if word.base >= 0:
        return f"{word.base}:{word.value}"
    return labels.get(word.value, str(word.value))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def capture(path: str) -> None:
    with gzip.open(path, "wt", compresslevel=1) as file:
        for name, graph in programs():
            for processor in PROCESSORS:
                file.write(json.dumps(captured(name, graph, LEVELS[processor])) + "\n")


if __name__ == "__main__":
    capture(sys.argv[1])
