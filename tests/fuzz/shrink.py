"""Shrinking: a failing program in, the smallest one found that fails in the same way out.

Tries, over and over until nothing helps or time is up: fewer outputs, steps replaced by inputs or
by their operands, no calls, no Dims, smaller sizes, tamer values. A change is kept when the program
still fails in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.fuzz.program import FILLS, Leaf, Program, Step, pruned, renumbered
from tetrad.core.sizes import SizeExpr, bind

SECONDS = 40.0


def shrink(
    program: Program, still_fails: Callable[[Program], bool], seconds: float = SECONDS
) -> Program:
    deadline = time.monotonic() + seconds
    shrunk = True
    while shrunk:
        shrunk = False
        for attempt in attempts(program):
            if time.monotonic() > deadline:
                return program
            if is_sound(attempt) and still_fails(attempt):
                program, shrunk = attempt, True
                break
    return program


def is_sound(program: Program) -> bool:
    """Do the ops accept their operands, and is there something left to run?"""
    try:
        kinds = program.types
    except Exception:
        return False
    return bool(program.outputs) and all(
        not isinstance(n, int) or n >= 0 for kind in kinds for n in kind.shape
    )


def attempts(program: Program) -> Iterator[Program]:
    """Programs that are a little simpler, the boldest changes first."""
    yield from fewer_outputs(program)
    yield from fewer_runs(program)
    yield from fewer_steps(program)
    yield from smaller_sizes(program)
    yield from tamer_values(program)


def fewer_outputs(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        for output in program.outputs:
            yield pruned(replace(program, outputs=(output,)))
        for i in range(len(program.outputs)):
            yield pruned(replace(program, outputs=program.outputs[:i] + program.outputs[i + 1 :]))
    for i in range(len(program.items) - 1):
        if isinstance(program.items[i], Step) and i not in program.outputs:
            yield pruned(replace(program, outputs=(i,)))


def fewer_runs(program: Program) -> Iterator[Program]:
    if program.via_jit:
        yield replace(program, via_jit=False)
    if len(program.bindings) > 1:
        yield from (replace(program, bindings=(b,)) for b in program.bindings)
    if program.bindings[0]:
        yield without_dims(program)
    groups = {item.group for item in program.items if isinstance(item, Step)} - {0}
    for group in groups:
        kept = (
            replace(i, group=0) if isinstance(i, Step) and i.group == group else i
            for i in program.items
        )
        yield replace(program, items=tuple(kept))


def without_dims(program: Program) -> Program:
    dims = program.bindings[0]
    return replace(
        map_sizes(program, lambda n: bind(n, dims) if isinstance(n, SizeExpr) else n),
        bindings=({},),
    )


def fewer_steps(program: Program) -> Iterator[Program]:
    types = program.types
    for i in range(len(program.items) - 1, -1, -1):
        item = program.items[i]
        if not isinstance(item, Step):
            continue
        for operand in item.operands:
            if types[operand] == types[i]:
                yield pruned(redirected(program, i, operand))
        new = Leaf(types[i].dtype, types[i].shape, seed=i)
        yield pruned(replace(program, items=(*program.items[:i], new, *program.items[i + 1 :])))


def redirected(program: Program, old: int, new: int) -> Program:
    place = {i: new if i == old else i for i in range(len(program.items))}
    items = tuple(renumbered(item, place) for item in program.items)
    return replace(program, items=items, outputs=tuple(place[o] for o in program.outputs))


def smaller_sizes(program: Program) -> Iterator[Program]:
    """One size everywhere it occurs, in shapes and settings alike."""
    sizes = sorted({n for n in sizes_in(program) if n > 1}, reverse=True)
    for size in sizes:
        for smaller in sorted({1, 2, 3, size // 2, size - 1} - {size, 0}):
            if smaller < size:
                yield map_sizes(
                    program, lambda n, size=size, smaller=smaller: smaller if n == size else n
                )


def sizes_in(program: Program) -> set[int]:
    found: set[int] = set()
    for item in program.items:
        if isinstance(item, Leaf):
            found |= {n for n in item.shape if isinstance(n, int)}
    return found


def map_sizes(program: Program, change: Callable[[Any], Any]) -> Program:
    return replace(program, items=tuple(mapped(item, change) for item in program.items))


def mapped(item: Leaf | Step, change: Callable[[Any], Any]) -> Leaf | Step:
    if isinstance(item, Step):
        names = ("shape", "sizes", "starts", "size", "low", "high")
        return replace(
            item, params={k: sized(v, change) if k in names else v for k, v in item.params.items()}
        )
    return replace(item, shape=sized(item.shape, change), below=change(item.below))


def sized(value: Any, change: Callable[[Any], Any]) -> Any:
    return tuple(change(n) for n in value) if isinstance(value, tuple) else change(value)


def tamer_values(program: Program) -> Iterator[Program]:
    for i, item in enumerate(program.items):
        if not isinstance(item, Leaf):
            continue
        tamer = (
            [replace(item, fill=fill, special=0.0) for fill in reversed(FILLS)]
            if item.fill in FILLS
            else []
        )
        tamer = tamer[: len(FILLS) - 1 - FILLS.index(item.fill)] if item.fill in FILLS else []
        tamer += [replace(item, special=0.0)] if item.special else []
        tamer += [replace(item, seed=0)] if item.seed and item.fill == "index" else []
        tamer += [replace(item, constant=False)] if item.constant else []
        for leaf in tamer:
            yield replace(program, items=(*program.items[:i], leaf, *program.items[i + 1 :]))
