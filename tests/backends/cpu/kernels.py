"""Small kernels and the entries that run them, for the tests of the native runtime."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable
from functools import cache

import numpy as np

from tetrad.backends.cpu.isa import host_target
from tetrad.backends.cpu.llvm import Library, compile_object, load_object
from tetrad.backends.cpu.pool import run
from tetrad.backends.cpu.table import KernelEntry, LoopEntry, Table, Word
from tetrad.backends.llvm.module import emit_module
from tetrad.core.dtypes import bool_, f32, f64, i32, i64
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program

LANES = 16
N = 1000  # elements of the arrays that `mix` works on
GROUPS = -(-N // LANES)
TRAP_CODE = 42
TAG = 5  # marks the entry a trap comes from

FLOAT_STATE = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @get_state() {
  %slot = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %state = load i32, ptr %slot
  ret i32 %state
}
define void @set_state(i32 %state) {
  %slot = alloca i32
  store i32 %state, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  ret void
}
"""


def mix_body(k: KernelBuilder) -> None:
    """y[i] = 3 x[i] + x[(i + shift) mod n] + offset: reads what other workers wrote."""
    x, y = k.buffer("x", i64), k.buffer("y", i64, "write")
    n, shift, offset = k.arg("n"), k.arg("shift"), k.arg("offset")
    i = k.global_id()
    with k.when(i < n):
        k.store(y, i, k.load(x, i) * 3 + k.load(x, (i + shift) % n) + k.cast(offset, i64))


def add_counter(k: KernelBuilder) -> None:
    """x[i] = 2 x[i] + counter."""
    counter, x = k.buffer("counter", i64), k.buffer("x", i64, "readwrite")
    n, i = k.arg("n"), k.global_id()
    with k.when(i < n):
        k.store(x, i, k.load(x, i) * 2 + k.load(counter, 0))


def less_than(k: KernelBuilder) -> None:
    """flag = x[0] < limit."""
    x, flag = k.buffer("x", i64), k.buffer("flag", bool_, "write")
    limit = k.cast(k.arg("limit"), i64)
    with k.when(k.lane().eq(0)):
        k.store(flag, 0, k.load(x, 0) < limit)


def set_number(k: KernelBuilder) -> None:
    """x[0] = number, as i32."""
    x = k.buffer("x", i32, "write")
    number = k.cast(k.arg("number"), i32)
    with k.when(k.lane().eq(0)):
        k.store(x, 0, number)


def trap_from(k: KernelBuilder) -> None:
    """Traps in every invocation from number `first` on, with the number as value; before that, x[i]
    += 1."""
    x, first = k.buffer("x", i64, "readwrite"), k.arg("first")
    i = k.global_id()
    k.trap(i >= first, TRAP_CODE, i)
    k.store(x, i, k.load(x, i) + 1)


def through_scratch(k: KernelBuilder) -> None:
    """x[i] = x of the mirrored lane, by way of scratch."""
    x, s = k.buffer("x", i64, "readwrite"), k.scratch("s", i64, LANES)
    k.store(s, k.lane(), k.load(x, k.global_id()))
    k.barrier()
    k.store(x, k.global_id(), k.load(s, LANES - 1 - k.lane()))


def spin(k: KernelBuilder) -> None:
    """A long chain of fma in every workgroup."""
    y, steps = k.buffer("y", f64, "write"), k.arg("steps")
    v = k.local(1.0, f64)
    with k.loop(steps):
        v.set(k.fma(v, 0.999, 0.001))
    k.store(y, k.lane(), v)


def sign(k: KernelBuilder) -> None:
    """Leave the number of the workgroup in the scratch of whoever runs it."""
    s = k.scratch("s", i64, LANES)
    k.store(s, k.lane(), k.cast(k.group_id(), i64))


def signed(k: KernelBuilder) -> None:
    """x[group] = what its worker's scratch says; before that, workgroups below `slow` take their
    time."""
    x, s = k.buffer("x", i64, "readwrite"), k.scratch("s", i64, LANES)
    v = k.local(1.0, f64)
    with k.when(k.group_id() < k.arg("slow")), k.loop(k.arg("steps")):
        v.set(k.fma(v, 0.999, 0.001))
    with k.when(v.get() > 0.0):
        k.store(x, k.group_id(), k.load(s, 0))


def halve(k: KernelBuilder) -> None:
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    k.store(y, k.global_id(), k.load(x, k.global_id()) * 0.5)


BODIES: dict[str, Callable[[KernelBuilder], None]] = {
    "mix": mix_body,
    **{f.__name__: f for f in (add_counter, less_than, set_number, trap_from, through_scratch)},
    **{f.__name__: f for f in (spin, sign, signed, halve)},
}


@cache
def programs() -> dict[str, Program]:
    made = {}
    for name, body in BODIES.items():
        k = KernelBuilder(name, LANES)
        body(k)
        made[name] = k.finish()
    return made


@cache
def library() -> Library:
    target = host_target()
    return load_object(compile_object(emit_module(programs(), target), target), tuple(BODIES))


@cache
def float_state() -> Library:
    target = host_target()
    text = f'target triple = "{target.triple}"\n{FLOAT_STATE}'
    return load_object(compile_object(text, target), ("get_state", "set_state"))


def kernel(
    name: str,
    buffers: tuple[Word, ...],
    groups: int,
    *,
    slice: int = 0,
    serial: bool = False,
    barrier: bool = True,
    shared: bool = False,
    **args: int,
) -> KernelEntry:
    """An entry with the argument words in the order of codegen.module; element counts are not
    looked at."""
    program = programs()[name]
    scratch = [Word(-1, 0) for b in program.buffers if b.is_scratch]
    numbers = [Word(-1, args[a]) for a in program.args]
    grid, counts = [Word(-1, groups), Word(-1, 1)], [Word(-1, 0)] * len(buffers)
    words = (*buffers, *scratch, *numbers, *grid, *counts, Word(-1, TAG))
    return KernelEntry(
        library().address[name], words, groups, slice, name, serial, barrier, shared=shared
    )


def aligned(count: int, dtype: type) -> np.ndarray:
    """Zeros that begin at a cache line."""
    itemsize = np.dtype(dtype).itemsize
    memory = np.zeros(count * itemsize + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    return memory[skip : skip + count * itemsize].view(dtype)


def data() -> np.ndarray:
    return np.random.default_rng(7).integers(-(10**6), 10**6, N)


def mixed(x: np.ndarray, shift: int, offset: int) -> np.ndarray:
    return 3 * x + np.roll(x, -shift) + offset


def mix(source: int, target: int, shift: int, offset: int = 0, **options: bool) -> KernelEntry:
    return kernel(
        "mix",
        (Word(source, 0), Word(target, 0)),
        GROUPS,
        n=N,
        shift=shift,
        offset=offset,
        **options,
    )


def addresses(*arrays: np.ndarray) -> list[int]:
    return [a.ctypes.data for a in arrays]


def barrier_loop(barriers: int, threads: int, shared: bool = False) -> bytes:
    """What two small arrays hold after so many steps, each reading what other workers wrote in the
    step before."""
    x, y = np.arange(4 * LANES), np.zeros(4 * LANES, np.int64)
    there, back = (
        kernel("mix", words, 4, n=4 * LANES, shift=21, offset=1, shared=shared)
        for words in ((Word(0, 0), Word(1, 0)), (Word(1, 0), Word(0, 0)))
    )
    table = Table((LoopEntry((there, back) * 5, Word(-1, barriers // 10)),))
    run(table, addresses(x, y), threads)
    return x.tobytes() + y.tobytes()


def interrupt_handler() -> int:
    """The address of the C function that SIGINT calls now; it comes first in struct sigaction."""
    action = (ctypes.c_int64 * 64)()
    ctypes.CDLL(None).sigaction(int(signal.SIGINT), None, action)
    return int(action[0])
