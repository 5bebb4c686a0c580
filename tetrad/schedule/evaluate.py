"""The schedule language, evaluate: a schedule and arrays in, its results out; every launch runs on
the kernel evaluator, in NumPy, and LAPACK itself on the same memory.

The right answer, bit for bit, for compiled code: used by TETRAD_INTERPRET, TETRAD_CHECK, bisect and
the fuzzer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tetrad.core.sizes import bind
from tetrad.core.types import ArrayType
from tetrad.kernel.evaluate import KernelTrap
from tetrad.kernel.evaluate import evaluate as evaluate_kernel
from tetrad.schedule import lapack
from tetrad.schedule.nodes import (
    Call,
    Callback,
    Control,
    HostCall,
    HostMemory,
    HostRoom,
    Launch,
    Leaf,
    Loop,
    Schedule,
    Slot,
    Switch,
    While,
)

Dims = Mapping[str, int]
Memory = dict[Slot, np.ndarray]
Watch = Callable[[Leaf, Memory, Memory], None]


def evaluate(
    schedule: Schedule, arrays: Sequence[np.ndarray], dims: Dims, watch: Watch | None = None
) -> list[np.ndarray]:
    """The outputs of a schedule; `watch` sees memory before and after every step that
    holds no others."""
    memory: Memory = {slot: np.ravel(a) for slot, a in zip(schedule.inputs, arrays, strict=True)}
    for step in schedule.steps:
        if isinstance(step, Control):
            run_control(step, memory, dims, lambda body, given: evaluate(body, given, dims, watch))
            continue
        # of the table: no array in it is ever changed
        before = memory if watch is None else memory.copy()
        run_work(step, memory, dims)
        if watch is not None:
            watch(step, before, memory)
    return [value_of(slot, memory, dims).copy() for slot in schedule.outputs]


Run = Callable[[Schedule, list[np.ndarray]], list[np.ndarray]]


def run_control(step: Control, memory: Memory, dims: Dims, run: Run) -> None:
    """A step that holds others: `run` gives the outputs of a sub-graph for its inputs."""
    given = [value_of(s, memory, dims) for s in step.inputs]
    match step:
        case Call():
            results = run(step.body, given)
        case Loop():
            results = run_repeat(step, given, dims, run)
        case While():
            results = run_while(step, given, run)
        case Switch():
            chosen = int(value_of(step.index, memory, dims))
            results = run(step.branches[min(max(chosen, 0), len(step.branches) - 1)], given)
    memory.update((slot, np.ravel(a)) for slot, a in zip(step.outputs, results, strict=True))


def run_repeat(step: Loop, given: list[np.ndarray], dims: Dims, run: Run) -> list[np.ndarray]:
    first = step.consts + step.carries
    fixed, state, xs = given[: step.consts], given[step.consts : first], given[first:]
    length = bind(step.length, dims)
    ys = [
        blank(slot, dims).reshape([bind(n, dims) for n in slot.type.shape])
        for slot in step.outputs[step.carries :]
    ]
    for t in range(length - 1, -1, -1) if step.reverse else range(length):
        made = run(step.body, [*fixed, *state, *[x[t] for x in xs]])
        state = made[: step.carries]
        for y, row in zip(ys, made[step.carries :], strict=True):
            y[t] = row
    return [*state, *ys]


def run_while(step: While, given: list[np.ndarray], run: Run) -> list[np.ndarray]:
    asked = given[: step.condition_consts]
    fixed = given[step.condition_consts : step.condition_consts + step.body_consts]
    state = given[step.condition_consts + step.body_consts :]
    while run(step.condition, [*asked, *state])[0]:
        state = run(step.body, [*fixed, *state])
    return state


def run_work(step: Leaf, memory: Memory, dims: Dims) -> None:
    if isinstance(step, HostCall):
        run_host_call(step, memory, dims)
    elif isinstance(step, Callback):
        run_callback(step, memory, dims)
    else:
        run_launch(step, memory, dims)


def run_launch(launch: Launch, memory: Memory, dims: Dims) -> None:
    groups = bind(launch.groups, dims)
    prepare(launch, memory, dims)
    if groups == 0:
        return
    buffers = buffers_of(launch, memory, dims)
    try:
        evaluate_kernel(
            launch.program, buffers, launch.arguments(dims), launch.grid(dims), races=True
        )
    except KernelTrap as trap:
        raise launch.traps[trap.code].error(trap.value) from None


def run_host_call(call: HostCall, memory: Memory, dims: Dims) -> None:
    """Call the routine itself, as machine code does: its results are not ours to define."""
    prepare(call, memory, dims)
    arrays = {s: np.ascontiguousarray(value_of(s, memory, dims)) for s in call.slots}
    homes = [home_of(part, arrays, dims) for part in call.memory]
    with lapack.one_thread():
        for system in range(bind(call.systems, dims)):
            for block in range(bind(call.blocks, dims)):
                pointers = [
                    int(home.ctypes.data) + offset_of(part, system, block, dims)
                    for part, home in zip(call.memory, homes, strict=True)
                ]
                numbers = numbers_of(call, block, dims)
                lapack.invoke(lapack.address(call.routine), call.form, numbers, pointers)


def run_callback(step: Callback, memory: Memory, dims: Dims) -> None:
    given = [
        value_of(slot, memory, dims).copy().reshape(bound_shape(kind, dims))
        for slot, kind in zip(step.inputs, step.given, strict=True)
    ]
    made = step.function(given, [bound_shape(s.type, dims) for s in step.outputs], step.source)
    memory.update((slot, np.ravel(a)) for slot, a in zip(step.outputs, made, strict=True))


def home_of(part: HostMemory | HostRoom, arrays: Memory, dims: Dims) -> np.ndarray:
    if isinstance(part, HostMemory):
        return arrays[part.slot]
    return np.empty(max(bind(part.nbytes, dims), 1), np.uint8)


def offset_of(part: HostMemory | HostRoom, system: int, block: int, dims: Dims) -> int:
    """Where the memory of a call starts, in bytes."""
    if isinstance(part, HostRoom):
        return 0
    moves = system * bind(part.per_system, dims) + block * bind(part.per_block, dims)
    return (bind(part.offset, dims) + moves) * part.slot.type.dtype.np.itemsize


def numbers_of(call: HostCall, block: int, dims: Dims) -> list[int]:
    """The integers a routine is given for a block."""
    found = [bind(n, dims) for n in call.numbers]
    if call.split is not None:
        which, most = call.split
        found[which] = min(most, found[which] - block * most)
    return found


def prepare(launch: Leaf, memory: Memory, dims: Dims) -> None:
    """Memory for what a step writes: fresh, or, where it changes what is there, a copy of
    that."""
    for slot in launch.writes:
        memory[slot] = (
            value_of(slot, memory, dims).copy().ravel()
            if slot in launch.updates
            else blank(slot, dims)
        )


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


def bound_shape(kind: ArrayType, dims: Dims) -> tuple[int, ...]:
    return tuple(bind(n, dims) for n in kind.storage_shape)


def value_of(slot: Slot, memory: Memory, dims: Dims) -> np.ndarray:
    shape = bound_shape(slot.type, dims)
    if slot.literal is not None:
        return slot.literal.array.reshape(shape)
    if slot not in memory:
        memory[slot] = blank(slot, dims)  # a size of zero: no kernel wrote it
    return memory[slot].reshape(shape)
