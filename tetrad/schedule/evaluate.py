"""The schedule language, evaluate: a schedule and arrays in, its results out; every launch runs on
the kernel evaluator, in NumPy.

The right answer, bit for bit, for compiled code: used by TETRAD_INTERPRET, TETRAD_CHECK, bisect and
the fuzzer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tetrad.core.sizes import bind
from tetrad.kernel.evaluate import KernelTrap
from tetrad.kernel.evaluate import evaluate as evaluate_kernel
from tetrad.schedule.nodes import Call, Control, Launch, Loop, Schedule, Slot, Switch, While

Dims = Mapping[str, int]
Memory = dict[Slot, np.ndarray]
Watch = Callable[[Launch, Memory, Memory], None]


def evaluate(
    schedule: Schedule, arrays: Sequence[np.ndarray], dims: Dims, watch: Watch | None = None
) -> list[np.ndarray]:
    """The outputs of a schedule; `watch` sees memory before and after every launch."""
    memory: Memory = {slot: np.ravel(a) for slot, a in zip(schedule.inputs, arrays, strict=True)}
    for step in schedule.steps:
        if isinstance(step, Control):
            run_control(step, memory, dims, lambda body, given: evaluate(body, given, dims, watch))
            continue
        # of the table: no array in it is ever changed
        before = memory if watch is None else memory.copy()
        run_launch(step, memory, dims)
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


def run_launch(launch: Launch, memory: Memory, dims: Dims) -> None:
    groups = bind(launch.groups, dims)
    prepare(launch, memory, dims)
    if groups == 0:
        return
    buffers = buffers_of(launch, memory, dims)
    try:
        evaluate_kernel(launch.program, buffers, launch.arguments(dims), (groups, 1, 1), races=True)
    except KernelTrap as trap:
        raise launch.traps[trap.code].error(trap.value) from None


def prepare(launch: Launch, memory: Memory, dims: Dims) -> None:
    """Memory for what a launch writes: fresh, or, where it changes what is there, a copy of
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


def value_of(slot: Slot, memory: Memory, dims: Dims) -> np.ndarray:
    shape = tuple(bind(n, dims) for n in slot.type.storage_shape)
    if slot.literal is not None:
        return slot.literal.array.reshape(shape)
    if slot not in memory:
        memory[slot] = blank(slot, dims)  # a size of zero: no kernel wrote it
    return memory[slot].reshape(shape)
