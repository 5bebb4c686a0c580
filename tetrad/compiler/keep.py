"""The driver, keeping: a compiled program in, an entry of the disk cache out, which `compiler.recall` makes it from.

The entry is JSON: tables, each after those it calls, with symbols for addresses and numbers for constants; the bytes of
the constants; how outputs get their memory; and for each symbol the entry with its object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np

from tetrad.compiler import objects
from tetrad.compiler.driver import Compiled
from tetrad.compiler.objects import Objects
from tetrad.compiler.recall import CONSTANT
from tetrad.compiler.schedule import running, tables_of
from tetrad.lower.launch import Invoke, Lowered, Slot, Step
from tetrad.runtime.table import CallEntry, Entry, KernelEntry, Table, Word

MOST_BYTES = 1 << 20  # of constants in an entry
BYTE = np.dtype(np.uint8)

Numbers = Mapping[Slot, int]


def keep(key: str, compiled: Compiled) -> None:
    """Write a program with all sizes known, unless its constants are large."""
    runner = compiled.runner()
    held = compiled.constants.storage
    results = {i: slot for i, slot in enumerate(compiled.lowered.outputs) if runner.plan[i][0] == "constant"}
    for slot in results.values():
        compiled.constants.address(slot)
    if sum(storage.nbytes for storage in held.values()) > MOST_BYTES:
        return
    numbers = {slot: i for i, slot in enumerate(held)}
    told = {
        **tables_told(tables_of(runner.table, compiled.lowered, {}), compiled.code, numbers),
        "constants": [bytes(storage.as_numpy(BYTE, (storage.nbytes,))).hex() for storage in held.values()],
        "results": {i: numbers[slot] for i, slot in results.items()},
        "arena": runner.scheduled.arena_bytes,
        "plan": runner.plan,
        "copied": sorted(compiled.copied),
    }
    objects.disk_cache().put(key, json.dumps(told, separators=(",", ":")).encode())


def tables_told(tables: Mapping[Lowered, Table], code: Objects, constants: Numbers) -> dict[str, Any]:
    symbols = {address: symbol for symbol, address in code.addresses.items()}
    order = {table: i for i, table in enumerate(tables.values())}
    told, homes = [], {}
    for lowered, table in tables.items():
        entries = []
        for step, entry in zip(running(lowered, {}), table.entries, strict=True):
            words = words_told(step, entry, constants)
            if isinstance(entry, CallEntry):
                entries.append(["call", order[entry.table], words, entry.name])
            elif isinstance(entry, KernelEntry):
                symbol = symbols[entry.function]
                homes[symbol] = code.homes[symbol]
                settings = [entry.groups, entry.slice, entry.name, entry.serial, entry.barrier]
                entries.append(["kernel", symbol, words, *settings])
            else:
                raise TypeError(f"{entry.name}: a schedule has kernels and calls")
        told.append({"entries": entries, "scratch": table.scratch_bytes, "heavy": table.heavy})
    return {"tables": told, "homes": homes}


def words_told(step: Step, entry: Entry, constants: Numbers) -> list[int]:
    """The words one after the other; those of constants by number, for their addresses will be others."""
    slots = (*step.inputs, *step.outputs) if isinstance(step, Invoke) else step.slots
    words: Iterable[Word] = entry.bases if isinstance(entry, CallEntry) else entry.words  # type: ignore[union-attr]
    told = list(words)
    for i, slot in enumerate(slots):
        if slot.kind == "constant":
            told[i] = Word(CONSTANT, constants[slot])
    return list(chain.from_iterable(told))
