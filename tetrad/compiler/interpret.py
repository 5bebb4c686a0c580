"""The driver, interpreting: lowered steps run on the kernel evaluator, launch by launch, in NumPy.

The right answer, bit for bit, for compiled code: used by TETRAD_INTERPRET, TETRAD_CHECK, bisect and the fuzzer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tetrad.core.errors import BoundsError
from tetrad.core.sizes import bind
from tetrad.kernel.evaluate import KernelTrap, evaluate
from tetrad.lower.launch import Invoke, Launch, Lowered, Slot

Dims = Mapping[str, int]
Memory = dict[Slot, np.ndarray]
Watch = Callable[[Launch, Memory], None]


def interpret(
    lowered: Lowered, arrays: Sequence[np.ndarray], dims: Dims, watch: Watch | None = None
) -> list[np.ndarray]:
    """The outputs of a lowered graph; `watch` sees memory after every launch."""
    memory: Memory = {slot: np.ravel(a) for slot, a in zip(lowered.inputs, arrays, strict=True)}
    for step in lowered.steps:
        if isinstance(step, Invoke):
            inner = interpret(step.body, [value_of(s, memory, dims) for s in step.inputs], dims, watch)
            memory.update((slot, np.ravel(a)) for slot, a in zip(step.outputs, inner, strict=True))
            continue
        run_launch(step, memory, dims)
        if watch is not None:
            watch(step, memory)
    return [value_of(slot, memory, dims).copy() for slot in lowered.outputs]


def run_launch(launch: Launch, memory: Memory, dims: Dims) -> None:
    groups = bind(launch.groups, dims)
    prepare(launch, memory, dims)
    if groups == 0:
        return
    buffers = buffers_of(launch, memory, dims)
    args = {name: bind(size, dims) for name, size in launch.args.items()}
    try:
        evaluate(launch.program, buffers, args, (groups, 1, 1))
    except KernelTrap as trap:
        site = launch.traps[trap.code]
        raise BoundsError(site.message.format(value=trap.value), source=site.source) from None


def prepare(launch: Launch, memory: Memory, dims: Dims) -> None:
    """Memory for what a launch writes: fresh, or, where it changes what is there, a copy of that."""
    for slot in launch.writes:
        memory[slot] = value_of(slot, memory, dims).copy().ravel() if slot in launch.updates else blank(slot, dims)


def buffers_of(launch: Launch, memory: Memory, dims: Dims) -> dict[str, np.ndarray]:
    """The memory of each buffer, seen as elements of the type the kernel reads."""
    storage = [b for b in launch.program.buffers if not b.is_scratch]
    pairs = zip(storage, launch.slots, strict=True)
    return {b.name: np.ravel(value_of(s, memory, dims)).view(b.dtype.np) for b, s in pairs}


def blank(slot: Slot, dims: Dims) -> np.ndarray:
    """Fresh memory holds a pattern, so that what no kernel writes shows."""
    nbytes = bind(slot.type.nbytes, dims)
    raw = np.full(nbytes, 0xA5, np.uint8)
    return raw.view(slot.type.dtype.np) if nbytes else np.empty(0, slot.type.dtype.np)


def value_of(slot: Slot, memory: Memory, dims: Dims) -> np.ndarray:
    shape = tuple(bind(n, dims) for n in slot.type.storage_shape)
    if slot.literal is not None:
        return slot.literal.array.reshape(shape)
    if slot not in memory:
        memory[slot] = blank(slot, dims)  # a size of zero: no kernel wrote it
    return memory[slot].reshape(shape)
