"""Compiler, checking: TETRAD_CHECK=1 runs compiled programs under suspicion; TETRAD_INTERPRET=1
does not run them.

First every launch alone, in a child process, on buffers that each end at a page nobody may touch,
against the kernel evaluator to the bit. Then the whole table as always, in an arena full of poison
between red zones, against the results of the first part. A difference is a `CheckError` that names
kernel, buffer, position, both values and the user's line.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tetrad.backends.cpu.encode import scratch_layout
from tetrad.backends.cpu.encode_loops import NUMBER
from tetrad.backends.cpu.executable import DEFECT, BoundCall, outside_buffer
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.cpu.pool import Trapped, run
from tetrad.backends.cpu.table import KernelEntry, Word
from tetrad.backends.llvm.memory import BOUNDS_TRAP
from tetrad.core.errors import BoundsError, CheckError, RaceError
from tetrad.core.sizes import bind
from tetrad.kernel.evaluate import KernelTrap, evaluate
from tetrad.kernel.nodes import STOP_WORD, Program
from tetrad.kernel.verify import verify
from tetrad.schedule.evaluate import (
    Dims,
    Memory,
    buffers_of,
    prepare,
    run_callback,
    run_control,
    run_host_call,
    value_of,
)
from tetrad.schedule.evaluate import (
    evaluate as evaluate_schedule,
)
from tetrad.schedule.nodes import Callback, Control, HostCall, Launch, Schedule, Slot
from tetrad.schedule.plan import check_plan

if TYPE_CHECKING:
    from tetrad.core.machine import Machine

ZONE = 256  # bytes of red zone before a block; behind it is the guard page
# the evaluator's unwritten memory is 0xA5, so what both leave out differs
RED, POISON, UNWRITTEN = 0xC3, 0xFF, 0x5A
# of a launch the evaluator runs in full; of larger ones it runs a sample
MOST_INVOCATIONS = 1 << 22
SAMPLED = 1 << 16  # invocations at the beginning, in the middle and at the end of a large launch


def verify_programs(programs: Sequence[Program], machine: Machine) -> None:
    for program in programs:
        verify(program, machine.workgroup_bytes)


def run_interpreted(
    call: BoundCall, storages: Sequence[Storage], threads: int | None
) -> list[Storage]:
    """The results of the kernel evaluator; no machine code of a kernel runs."""
    results = evaluate_schedule(call.executable.schedule, input_arrays(call, storages), call.dims)
    return [Storage.from_numpy(np.ascontiguousarray(result)) for result in results]


def run_checked(call: BoundCall, storages: Sequence[Storage], threads: int | None) -> list[Storage]:
    for done in list(call.executable.encoder.done.values()):
        for encoded in done.values():
            check_plan(encoded.lives, encoded.plan)
    expected = check_launches(call, call.executable.schedule, input_arrays(call, storages))
    return check_table(call, storages, expected, threads)


def input_arrays(call: BoundCall, storages: Sequence[Storage]) -> list[np.ndarray]:
    kinds = call.executable.schedule.inputs
    shapes = [tuple(bind(n, call.dims) for n in slot.type.storage_shape) for slot in kinds]
    triples = zip(storages, kinds, shapes, strict=True)
    return [held.as_numpy(slot.type.dtype.np, shape) for held, slot, shape in triples]


# -- memory that notices ---------------------------------------------------------------------------

_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes, _mprotect.restype = (
    [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    ctypes.c_int,
)


class Guarded:
    """Bytes that end exactly where an inaccessible page begins, after a red zone; child processes
    write to the same."""

    def __init__(self, nbytes: int, fill: int) -> None:
        size = -(-(nbytes + ZONE) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._map = mmap.mmap(-1, size + mmap.PAGESIZE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if _mprotect(base + size, mmap.PAGESIZE, 0):
            raise OSError(ctypes.get_errno(), "mprotect of a guard page")
        whole = np.frombuffer(self._map, np.uint8, size)
        self.zone, self.bytes = whole[: size - nbytes], whole[size - nbytes :]
        self.address = base + size - nbytes
        self.zone[:], self.bytes[:] = RED, fill

    @staticmethod
    def copy_of(array: np.ndarray) -> Guarded:
        made = Guarded(array.nbytes, 0)
        made.bytes[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        return made

    def array(self, slot: Slot) -> np.ndarray:
        return self.bytes.view(slot.type.dtype.np)

    def is_intact(self) -> bool:
        return bool((self.zone == RED).all())


# -- launch by launch ------------------------------------------------------------------------------


def check_launches(
    call: BoundCall, schedule: Schedule, arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Every launch alone against the evaluator; the outputs, as `schedule.evaluate` gives them."""
    dims = call.dims
    memory: Memory = {slot: np.ravel(a) for slot, a in zip(schedule.inputs, arrays, strict=True)}
    for step in schedule.steps:
        if isinstance(step, Control):
            run_control(step, memory, dims, lambda body, given: check_launches(call, body, given))
        elif isinstance(step, HostCall):
            run_host_call(step, memory, dims)
        elif isinstance(step, Callback):
            run_callback(step, memory, dims)
        else:
            check_launch(call, step, memory)
    return [value_of(slot, memory, dims).copy() for slot in schedule.outputs]


def check_launch(call: BoundCall, launch: Launch, memory: Memory) -> None:
    """Run one launch on the evaluator and on the machine; memory then holds its results."""
    dims = call.dims
    groups = bind(launch.groups, dims)
    prepare(launch, memory, dims)
    if groups == 0:
        return
    blocks = {s: Guarded.copy_of(value_of(s, memory, dims)) for s in dict.fromkeys(launch.slots)}
    for slot in launch.writes - launch.updates:
        blocks[slot].bytes[:] = UNWRITTEN
    is_large = groups * launch.program.lanes > MOST_INVOCATIONS
    wanted = None if is_large else evaluator_trap(launch, memory, dims, range(groups))
    code, value = run_alone(call, launch, blocks)
    compare_traps(call, launch, wanted, code, value, is_large)
    if is_large:
        check_sample(launch, blocks, memory, dims, groups)
    for slot, block in blocks.items():
        compare(launch, slot, block, np.ravel(value_of(slot, memory, dims)))


def evaluator_trap(launch: Launch, memory: Memory, dims: Dims, groups: range) -> KernelTrap | None:
    """Some workgroups on the evaluator, writing to memory; the trap that ended them, if one did."""
    buffers = buffers_of(launch, memory, dims)
    try:
        evaluate(
            launch.program,
            buffers,
            launch.arguments(dims),
            launch.grid(dims),
            groups,
            True,
        )
    except KernelTrap as trap:
        return trap
    except (BoundsError, RaceError) as error:
        raise CheckError(error.message, source=launch.source, hint=DEFECT) from error
    return None


def check_sample(
    launch: Launch, blocks: Mapping[Slot, Guarded], memory: Memory, dims: Dims, groups: int
) -> None:
    """Too much for the evaluator: it writes some workgroups over a copy of the results, which must
    not change."""
    print(
        f"tetrad check: {launch.name} has {groups} workgroups, the evaluator runs a sample",
        file=sys.stderr,
    )
    for slot in launch.writes:
        memory[slot] = blocks[slot].array(slot).copy()
    some = max(1, SAMPLED // launch.program.lanes)
    for start in (0, (groups - some) // 2, groups - some):
        evaluator_trap(
            launch, memory, dims, range(max(0, start), min(max(0, start) + some, groups))
        )


def run_alone(call: BoundCall, launch: Launch, blocks: Mapping[Slot, Guarded]) -> tuple[int, int]:
    """The machine code of one launch in a child process; its status words. What kills the child is
    an error."""
    layout = scratch_layout(launch.program, {**call.dims, **launch.arguments(call.dims)})
    entry = call.executable.encoder.kernel_entry(launch, call.dims, Blocks(blocks), layout, 0)
    if not isinstance(entry, KernelEntry):
        raise TypeError(f"{launch.name} is not a kernel")
    words = Guarded.copy_of(np.array([word.value for word in entry.words], np.int64))
    scratch, status = Guarded(layout[-1], UNWRITTEN), Guarded(8 * (STOP_WORD + 1), 0)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kernel = ctypes.CFUNCTYPE(None, pointer, number, number, pointer, pointer)(entry.function)
    died = in_child(lambda: kernel(words.address, 0, entry.groups, scratch.address, status.address))
    if died:
        name = signal.Signals(died).name
        message = f"{launch.name}: touched memory outside its buffers ({name})"
        raise CheckError(message, source=launch.source, hint=DEFECT)
    if not (scratch.is_intact() and words.is_intact()):
        raise CheckError(
            f"{launch.name}: wrote before its scratch", source=launch.source, hint=DEFECT
        )
    code, value, *_ = status.bytes.view(np.int64)
    return int(code), int(value)


class Blocks:
    """Where the slots of one launch lie: each in a block of its own."""

    def __init__(self, blocks: Mapping[Slot, Guarded]) -> None:
        self.blocks = blocks

    def word(self, slot: Slot) -> Word:
        return Word(NUMBER, self.blocks[slot].address)


def in_child(work: Callable[[], object]) -> int:
    """Make the call in a forked process; the signal that killed it, or 0."""
    with warnings.catch_warnings():
        # forking beside threads: the child runs native code only
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # its death is reported by the parent, once
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def compare_traps(
    call: BoundCall,
    launch: Launch,
    wanted: KernelTrap | None,
    code: int,
    value: int,
    is_large: bool,
) -> None:
    """A trap of the user's program is the user's; one that only one side has is ours."""
    if code >= BOUNDS_TRAP:
        raise outside_buffer(launch, code, value, call.dims)
    if code in launch.traps and (wanted is not None or is_large):
        raise launch.traps[code].error(value)
    if code or wanted is not None:
        sides = f"compiled code has trap {code}, the evaluator {wanted.code if wanted else 'none'}"
        raise CheckError(f"{launch.name}: {sides}", source=launch.source, hint=DEFECT)


def compare(launch: Launch, slot: Slot, block: Guarded, want: np.ndarray) -> None:
    names = [b.name for b in launch.program.buffers if not b.is_scratch]
    name = names[launch.slots.index(slot)]
    if not block.is_intact():
        raise CheckError(
            f"{launch.name}: wrote before the beginning of {name}",
            source=launch.source,
            hint=DEFECT,
        )
    found = difference(block.array(slot), want)
    if found is not None:
        raise CheckError(f"{launch.name}: buffer {name}{found}", source=launch.source, hint=DEFECT)


def difference(got: np.ndarray, want: np.ndarray) -> str | None:
    """The first element whose bits differ, in words; any NaN equals any NaN."""
    if got.dtype.kind == "c":
        got, want = (x.view(x.real.dtype) for x in (got, want))
    words = np.dtype(f"u{got.dtype.itemsize}")
    differs = got.view(words) != want.view(words)
    if got.dtype.kind not in "iub":
        with np.errstate(invalid="ignore"):
            differs &= ~(np.isnan(got) & np.isnan(want))
    if not differs.any():
        return None
    at = int(np.argmax(differs))
    values = f"[{at}] is {got[at].item()!r} compiled, {want[at].item()!r} evaluated"
    return f"{values}; {int(differs.sum())} of {got.size} differ"


# -- the whole table -------------------------------------------------------------------------------


def check_table(
    call: BoundCall,
    storages: Sequence[Storage],
    expected: Sequence[np.ndarray],
    threads: int | None,
) -> list[Storage]:
    """The table as it always runs, with poison where anything could be left over; copies of its
    results."""
    given = [Guarded.copy_of(a) for a in input_arrays(call, storages)]
    made = output_blocks(call, given)
    arena = Guarded(call.encoded.arena_bytes, POISON)
    try:
        run(call.table, [block.address for block in (*given, *made, arena)], threads)
    except Trapped as trap:
        raise call.explain(trap) from None
    name = call.name
    if not all(block.is_intact() for block in (*given, *made, arena)):
        raise CheckError(
            f"{name}: the schedule wrote before the beginning of its memory", hint=DEFECT
        )
    for i, (block, held) in enumerate(zip(given, input_arrays(call, storages), strict=True)):
        if block not in made and block.bytes.tobytes() != held.tobytes():
            raise CheckError(f"{name}: the schedule changed input {i}", hint=DEFECT)
    for i, (slot, block, want) in enumerate(
        zip(call.executable.schedule.outputs, made, expected, strict=True)
    ):
        found = difference(block.array(slot), np.ravel(want))
        if found is not None:
            message = f"{name}: output {i}{found}, though every kernel alone is right"
            raise CheckError(
                message, hint="the memory plan or the order of launches is wrong: " + DEFECT
            )
    return [stored(block) for block in made]


def output_blocks(call: BoundCall, given: list[Guarded]) -> list[Guarded]:
    """Memory of each output: fresh and poisoned, taken over from a donated input, or a copy of what
    it equals."""
    made: list[Guarded] = []
    for (kind, detail), slot in zip(call.plan, call.executable.schedule.outputs, strict=True):
        if kind == "fresh":
            made.append(Guarded(detail, POISON))
        elif kind == "constant":
            made.append(Guarded.copy_of(value_of(slot, {}, call.dims)))
        elif kind == "input":
            made.append(Guarded.copy_of(given[detail].bytes))
        else:
            made.append(given[detail] if kind == "donated" else made[detail])
    return made


def stored(block: Guarded) -> Storage:
    held = Storage.allocate(block.bytes.nbytes)
    ctypes.memmove(held.ptr, block.address, block.bytes.nbytes)
    return held
