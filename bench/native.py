"""Bench, native: kernel programs and hand-written LLVM text in, functions to time out. And the
roofs of the machine.

A roof is what the hardware gives to code that does nothing else: multiply-adds, byte dot products,
bytes moved. It is measured in the run that quotes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tetrad.backends.cpu.compile import KERNELS
from tetrad.backends.cpu.encode import scratch_layout
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.llvm import Library, compile_object, load_object
from tetrad.backends.cpu.pool import run
from tetrad.backends.cpu.table import KernelEntry, LoopEntry, Table, Word
from tetrad.backends.llvm.target import Target
from tetrad.core.dtypes import f32
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.nodes import Program
from tetrad.kernel.verify import verify

Array = np.ndarray
Arrays = Mapping[str, Array]  # by buffer name, flat
HEADER = (
    "(ptr noalias %args, i64 %begin, i64 %end, ptr noalias %scratch, ptr noalias %status) nounwind"
)
LINE = 64

_libraries: list[Library] = []  # own the code of every function made here


def aligned(count: int, dtype: type | np.dtype = np.float32) -> Array:
    """Zeros that begin at a cache line, as arenas and packed weights do."""
    kind = np.dtype(dtype)
    memory = np.zeros(count * kind.itemsize + LINE, np.uint8)
    skip = -memory.ctypes.data % LINE
    return memory[skip : skip + count * kind.itemsize].view(kind)


def number(value: int) -> Word:
    return Word(-1, value)


# -- programs --------------------------------------------------------------------------------------


def entry_of(program: Program, arrays: Arrays, args: Mapping[str, int], groups: int) -> KernelEntry:
    """A launch with every address in place; the arrays must outlive it."""
    verify(program)
    address = KERNELS.load([program], current_target())[program]
    storage = [arrays[b.name] for b in program.buffers if not b.is_scratch]
    numbers = (
        [a.ctypes.data for a in storage]
        + scratch_layout(program, args)[:-1]
        + [args[a] for a in program.args]
    )
    numbers += [groups, 1] + [a.size for a in storage] + [0]
    return KernelEntry(address, tuple(map(number, numbers)), groups, name=program.name)


def launcher(
    program: Program, arrays: Arrays, args: Mapping[str, int], groups: int, trips: int = 1
) -> Callable[[], None]:
    """One thread runs the kernel `trips` times without coming back: short kernels would time the
    call."""
    body = Table([entry_of(program, arrays, args, groups)], scratch_layout(program, args)[-1])
    return runner(repeated(body, trips), 1, arrays)


def repeated(body: Table, trips: int) -> Table:
    return Table([LoopEntry(body, number(trips))], heavy=True)


def runner(table: Table, threads: int, *keep: object) -> Callable[[], None]:
    """The table as a function; `keep` are the arrays whose addresses it holds."""

    def go(_keep: object = keep) -> None:
        run(table, (), threads)

    return go


def same_as_evaluator(
    program: Program, arrays: Arrays, args: Mapping[str, int], groups: int
) -> bool:
    """Does compiled code write the bits that the kernel language means?"""
    got, want = ({name: a.copy() for name, a in arrays.items()} for _ in range(2))
    launcher(program, got, args, groups)()
    evaluate(program, want, args, (groups, 1, 1))
    written = [b.name for b in program.buffers if b.is_written]
    return all(got[name].tobytes() == want[name].tobytes() for name in written)


# -- hand-written text -----------------------------------------------------------------------------


def hand_entry(text: str, symbol: str, words: Sequence[int], groups: int) -> KernelEntry:
    """The launch of a function `symbol` in LLVM text with the signature of a kernel."""
    target = current_target()
    library = load_object(
        compile_object(f'target triple = "{target.triple}"\n{text}', target), (symbol,)
    )
    _libraries.append(library)
    return KernelEntry(library.address[symbol], tuple(map(number, words)), groups, name=symbol)


def hand_launcher(
    text: str, symbol: str, words: Sequence[int], groups: int, trips: int
) -> Callable[[], None]:
    """The same as `launcher`; the caller keeps the arrays."""
    return runner(repeated(Table([hand_entry(text, symbol, words, groups)]), trips), 1)


def argument(word: int, name: str, kind: str = "ptr") -> str:
    return (
        f"  %w.{name} = getelementptr i64, ptr %args, i64 {word}\n"
        f"  %{name} = load {kind}, ptr %w.{name}\n"
    )


# -- roofs: arithmetic -----------------------------------------------------------------------------

TRIPS = 200_000  # of the loop: some tenths of a millisecond, so that the call does not count
SLOT = 4096  # bytes each workgroup may write: no shared cache lines


def chains(target: Target) -> int:
    """Independent chains: enough for latency x throughput, few enough for the registers."""
    return 20 if target.vector_bits == 512 else 10


def peak_text(symbol: str, kind: str, setup: str, step: Callable[[int], str], count: int) -> str:
    """entry -> loop -[trips]-> loop -> done; each chain is one accumulator of type `kind`."""
    numbers = range(count)
    phis = "".join(
        f"  %c{i} = phi {kind} [zeroinitializer, %entry], [%d{i}, %loop]\n" for i in numbers
    )
    ends = "".join(
        (
            f"  %o{i} = getelementptr {kind}, ptr %out, i64 {i}\n"
            f"  store {kind} %d{i}, ptr %o{i}, align 4\n"
        )
        for i in numbers
    )
    return (
        f"define void @{symbol}{HEADER} {{\nentry:\n{argument(0, 'p')}{argument(1, 'trips', 'i64')}"
        f"  %at = mul i64 %begin, {SLOT}\n  %out = getelementptr i8, ptr %p, i64 %at\n{setup}"
        "  br label %loop\nloop:\n  %i = phi i64 [0, %entry], [%next, %loop]\n"
        f"{phis}{''.join(map(step, numbers))}"
        "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %trips\n"
        "  br i1 %more, label %loop, label %done\n"
        f"done:\n{ends}  ret void\n}}\n"
    )


@dataclass(frozen=True, slots=True)
class Roof:
    """A function and how much work it does."""

    run: Callable[[], None]
    work: float


def peak(text: str, symbol: str, threads: int, work: float) -> Roof:
    memory = aligned((threads + 1) * SLOT, np.uint8)
    entry = hand_entry(text, symbol, [memory.ctypes.data, TRIPS], threads)
    return Roof(runner(Table([entry], heavy=True), threads, memory), work * TRIPS * threads)


def fma_peak(threads: int = 1) -> Roof:
    """Nothing but f32 multiply-adds; a flop is half of one."""
    target = current_target()
    width, count = target.vector_bits // 32, chains(target)
    kind = f"<{width} x float>"
    name = f"llvm.fma.v{width}f32"

    def step(i: int) -> str:
        return f"  %d{i} = call {kind} @{name}({kind} %a, {kind} %a, {kind} %c{i})\n"

    text = f"declare {kind} @{name}({kind}, {kind}, {kind})\n"
    text += peak_text("fma_peak", kind, f"  %a = load {kind}, ptr %out\n", step, count)
    return peak(text, "fma_peak", threads, 2.0 * count * width)


def dot_peak(threads: int = 1) -> Roof | None:
    """Nothing but byte dot products, by the sequence the target has; None where it has none. Counts
    multiply-adds."""
    target = current_target()
    makers = {"vnni512": vnni_peak_text, "maddubs": maddubs_peak_text}
    if target.dot4 not in makers:
        return None
    text, lanes, count = makers[target.dot4]()
    return peak(text, "dot_peak", threads, 4.0 * count * lanes)


def vnni_peak_text() -> tuple[str, int, int]:
    word, byte, name = "<16 x i32>", "<64 x i8>", "llvm.x86.avx512.vpdpbusd.512"

    def step(i: int) -> str:
        return f"  %d{i} = call {word} @{name}({word} %c{i}, {byte} %a, {byte} %a)\n"

    text = f"declare {word} @{name}({word}, {byte}, {byte})\n"
    return text + peak_text("dot_peak", word, f"  %a = load {byte}, ptr %out\n", step, 20), 16, 20


def maddubs_peak_text() -> tuple[str, int, int]:
    """Bytes to pairs, pairs to words, add. One operand comes from memory, else the products would
    leave the loop."""
    word, short, byte = "<8 x i32>", "<16 x i16>", "<32 x i8>"

    def step(i: int) -> str:
        return (
            f"  %x{i} = getelementptr {byte}, ptr %row, i64 {i}\n"
            f"  %b{i} = load {byte}, ptr %x{i}, align 32\n"
            f"  %p{i} = call {short} @llvm.x86.avx2.pmadd.ub.sw({byte} %a, {byte} %b{i})\n"
            f"  %q{i} = call {word} @llvm.x86.avx2.pmadd.wd({short} %p{i}, {short} splat (i16 1))\n"
            f"  %d{i} = add {word} %c{i}, %q{i}\n"
        )

    def first_finds_the_row(i: int) -> str:
        row = f"  %part = and i64 %i, 7\n  %row = getelementptr {byte}, ptr %out, i64 %part\n"
        return step(i) if i else row + step(i)

    text = f"declare {short} @llvm.x86.avx2.pmadd.ub.sw({byte}, {byte})\n"
    text += f"declare {word} @llvm.x86.avx2.pmadd.wd({short}, {short})\n"
    return (
        text
        + peak_text("dot_peak", word, f"  %a = load {byte}, ptr %out\n", first_finds_the_row, 8),
        8,
        8,
    )


# -- roofs: bytes ----------------------------------------------------------------------------------

SPAN = 4096  # elements of a workgroup
UNROLL = 4


def copy_program(hint: str) -> Program:
    k = KernelBuilder(f"copy_{hint}")
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    with k.loop(SPAN, 0, 16 * UNROLL) as i:
        for u in range(UNROLL):
            at = k.group_id() * SPAN + i + 16 * u + k.lane()
            k.store(y, at, k.load(x, at), hint)
    return k.finish()


def read_program() -> Program:
    """Sums that nobody needs, one vector a workgroup: the least that keeps the loads."""
    k = KernelBuilder("read")
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    sums = [k.local(0.0, f32) for _ in range(UNROLL)]
    with k.loop(SPAN, 0, 16 * UNROLL) as i:
        for u, total in enumerate(sums):
            total.set(total.get() + k.load(x, k.group_id() * SPAN + i + 16 * u + k.lane()))
    k.store(
        y,
        k.group_id() * 16 + k.lane(),
        (sums[0].get() + sums[1].get()) + (sums[2].get() + sums[3].get()),
    )
    return k.finish()


def fill_program(hint: str) -> Program:
    k = KernelBuilder(f"fill_{hint}")
    y = k.buffer("y", f32, "write")
    with k.loop(SPAN, 0, 16) as i:
        k.store(y, k.group_id() * SPAN + i + k.lane(), k.const(1.0, f32), hint)
    return k.finish()


def move(reads: int, writes: int, threads: int, hint: str) -> Callable[[], None]:
    """Read and write that many bytes and do nothing with them."""
    x, y = (aligned(max(1, n // (4 * SPAN)) * SPAN) for n in (reads, writes))
    x.fill(1)  # fresh zeros are one page of the system's, read from cache again and again
    both, more = min(x.size, y.size) // SPAN, abs(x.size - y.size) // SPAN
    sums = aligned(16 * max(1, more))
    entries = [entry_of(copy_program(hint), {"x": x, "y": y}, {}, both)]
    if more and x.size > y.size:
        entries.append(entry_of(read_program(), {"x": x[y.size :], "y": sums}, {}, more))
    elif more:
        entries.append(entry_of(fill_program(hint), {"y": y[x.size :]}, {}, more))
    return runner(Table(entries, heavy=True), threads, x, y, sums)
