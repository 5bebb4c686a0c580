"""CPU back end, the pool: runs tables, alone or with all workers, without Python in between.

Receives a `Table` and the addresses of its bases, returns None or raises. The caller is worker 0;
the other workers are daemon threads that entered native code once and wait there, spinning for a
moment, then asleep. There is one pool, made when first needed; a caller who finds it busy runs
alone, and gets the same bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import struct
import threading
import time
import warnings
import weakref
from array import array
from collections.abc import Callable, Sequence
from functools import cache

from tetrad.backends.cpu.isa import host_target
from tetrad.backends.cpu.listen import EAR, UNHEARD_BY_WORKERS, python_functions, restored
from tetrad.backends.cpu.llvm import Library, compile_object, load_object
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.cpu.native import (
    ANYTIME,
    APART,
    CONTEXT,
    CONTEXT_WORDS,
    HOOK,
    MOST_THREADS,
    POOL,
    POOL_WORDS,
    PROCESSOR_WORDS,
    SYMBOLS,
)
from tetrad.backends.cpu.table import Table
from tetrad.backends.llvm.target import Target
from tetrad.core import lazy
from tetrad.core.errors import TetradError
from tetrad.core.limits import available_threads
from tetrad.core.record import record

LINE = 64  # bytes of a cache line
START_SECONDS = 5.0  # for all workers to be there
EXIT_SECONDS = 1.0  # for all workers to be gone
FIRST_BASES = 64  # room of a new context
STOPPED = -1
FETCHED = POOL["FETCHED"]
PROFILE, SCRATCH, STRIDE, STOP = (
    CONTEXT["PROFILE"],
    CONTEXT["SCRATCH"],
    CONTEXT["STRIDE"],
    CONTEXT["STOP"],
)
SIGNALS = CONTEXT["SIGNALS"]


class Trapped(TetradError, RuntimeError):
    """A kernel reported trouble: the code of its trap and the value that goes with it."""

    def __init__(self, code: int, value: int) -> None:
        self.code, self.value = code, value
        super().__init__(f"a kernel stopped with trap {code}, value {value}")


@record
class Outcome:
    """What a profiled run tells: nanoseconds of each entry (`Table.names` has their names), and the
    workers it had."""

    entry_ns: tuple[int, ...]
    threads: int


class Native:
    """The native functions, callable."""

    def __init__(self, library: Library) -> None:
        def function(
            name: str, result: type | None, *arguments: type, keep_gil: bool = False
        ) -> Callable[..., int]:
            make = ctypes.PYFUNCTYPE if keep_gil else ctypes.CFUNCTYPE
            return make(result, *arguments)(library.address[name])

        pointer, word = ctypes.c_void_p, ctypes.c_int64
        self.library = library
        self.run = function("tetrad_run", word, pointer)
        self.run_with_gil = function("tetrad_run", word, pointer, keep_gil=True)
        self.work = function("tetrad_work", None, pointer)
        self.stop = function("tetrad_stop", word, pointer)
        self.unhook = function("tetrad_unhook", None)
        self.ticks = function("tetrad_ticks", word)
        self.take_raised = function("tetrad_raised", None, pointer)
        function("tetrad_set_nap", None, pointer)(ctypes.cast(ctypes.CDLL(None).nanosleep, pointer))
        function("tetrad_set_python", None, pointer)(python_functions())

    def raised(self) -> BaseException | None:
        """What a handler of signals raised during a run, once."""
        parts = (ctypes.c_void_p * 3)()
        self.take_raised(parts)
        return restored(parts)


class LineBlock:
    """Zeroed memory that begins at a cache line: as bytes, as 64-bit words, as an address."""

    __slots__ = ("_memory", "address", "data", "words")

    def __init__(self, size: int) -> None:
        self._memory = (ctypes.c_char * (size + LINE))()
        start = ctypes.addressof(self._memory)
        skip = -start % LINE
        self.address = start + skip
        self.data = memoryview(self._memory).cast("B")[skip : skip + size]
        self.words = self.data[: size // 8 * 8].cast("q")


class Context:
    """The memory of one run at a time: status, barrier, inputs, the scratch of every worker."""

    __slots__ = (
        "__weakref__", "address", "base_room", "block", "inputs", "pool", "run", "scratch",
        "scratch_room", "threads",
    )  # fmt: skip

    def __init__(self, pool: Pool, base_room: int) -> None:
        self.pool, self.base_room = pool, base_room
        self.block = LineBlock(8 * (CONTEXT["BASES"] + base_room))
        self.block.words[CONTEXT["POOL"]] = pool.block.address
        self.address, self.inputs = self.block.address, self.block.data[8 * CONTEXT_WORDS :]
        self.run = pool.native.run_with_gil
        self.scratch_room, self.threads = 0, 1
        self.scratch: Storage | None = None

    def reserve_scratch(self, size: int, threads: int) -> None:
        """At least `size` bytes for each worker; a worker's area shares no cache line with
        another's."""
        self.scratch_room, self.threads = max(size, self.scratch_room), max(threads, self.threads)
        stride = -(-self.scratch_room // LINE) * LINE
        whole = (stride + LINE) * self.threads  # behind it a line for each worker's claims
        self.scratch = Storage.allocate(whole)
        self.block.words[SCRATCH], self.block.words[STRIDE] = self.scratch.ptr, stride
        self.block.words[CONTEXT["CLAIMS"]] = self.scratch.ptr + stride * self.threads


class Pool:
    """Workers, and the contexts that are not in use."""

    def __init__(self, native: Native) -> None:
        self.native = native
        self.block = LineBlock(8 * POOL_WORDS)
        self.free: list[Context] = []
        self.contexts: weakref.WeakSet[Context] = weakref.WeakSet()
        self.workers: list[threading.Thread] = []
        self.lock = threading.Lock()
        self.limit = available_threads()
        self.processors = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self.avoided = -1
        self.is_closed = False
        self.tell_processors()

    def context(self, table: Table, threads: int = 1) -> Context:
        """A context with room for the table, from the free list or new."""
        try:
            context = self.free.pop()
        except IndexError:
            context = self.new_context(FIRST_BASES)
        if table.base_count > context.base_room:
            context = self.new_context(table.base_count)
        if table.scratch_bytes > context.scratch_room or threads > context.threads:
            context.reserve_scratch(table.scratch_bytes, threads)
        return context

    def new_context(self, base_room: int) -> Context:
        context = Context(self, base_room)
        with self.lock:
            self.contexts.add(context)
        return context

    def start(self, threads: int) -> None:
        """Have workers for so many threads, the caller included, and wait until they listen."""
        if len(self.workers) >= threads - 1 or self.is_closed:
            return
        with self.lock:
            while len(self.workers) < threads - 1 and self.start_worker():
                pass
        deadline = time.monotonic() + START_SECONDS
        while self.block.words[POOL["READY"]] < len(self.workers) and time.monotonic() < deadline:
            time.sleep(20e-6)

    def start_worker(self) -> bool:
        name = f"tetrad-{len(self.workers) + 1}"
        worker = threading.Thread(
            target=serve, args=(self.native, self.block), name=name, daemon=True
        )
        try:
            worker.start()
        except RuntimeError as error:
            self.limit = len(self.workers) + 1
            warnings.warn(
                f"tetrad runs with {self.limit} threads: {error}", RuntimeWarning, stacklevel=2
            )
            return False
        self.workers.append(worker)
        self.avoided = -1
        return True

    def tell_processors(self) -> None:
        """Native code brings workers to other processors; where they may be at all, it reads in the
        block."""
        self.block.words[POOL["PLACES"]] = len(self.processors)
        for number in self.processors:
            word, bit = divmod(number, 64)
            if word < PROCESSOR_WORDS:
                self.block.words[POOL["PROCESSORS"] + word] |= 1 << bit if bit < 63 else -1 << 63

    def make_way(self) -> None:
        """Keep the workers off the processor the caller runs on.

        A sleeping worker is often woken on its waker's processor, and the scheduler takes
        milliseconds to part them: longer than most runs. Nothing is done where processors are too
        few, or the system cannot say.
        """
        here = processor()
        crowded = len(self.processors) <= len(self.workers)
        if self.block.words[FETCHED]:
            self.block.words[FETCHED], self.avoided = 0, -1
            if crowded:  # native code may have sent some away from here
                self.place(self.processors)
        if here == self.avoided or crowded or here not in self.processors:
            return
        self.avoided = here
        self.place(self.processors - {here})

    def place(self, processors: set[int]) -> None:
        """Have the workers run there and nowhere else."""
        for number in (worker.native_id for worker in self.workers):
            if number is not None:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(number, processors)

    def close(self, seconds: float = EXIT_SECONDS) -> None:
        """Send the workers home. Runs still going in other threads are stopped; later ones run
        alone."""
        deadline = time.monotonic() + seconds
        self.is_closed = True
        with self.lock:
            for context in self.contexts:
                context.block.words[STOP] = 1
        while self.workers and not self.native.stop(self.block.address):
            if time.monotonic() > deadline:
                return
            time.sleep(0.001)
        for worker in self.workers:
            worker.join(max(0.0, deadline - time.monotonic()))


def find_processor() -> Callable[[], int]:
    found = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return found if found is not None else lambda: -1


processor = find_processor()  # where the calling thread runs now, or -1


def serve(native: Native, block: LineBlock) -> None:
    """A worker's thread; holding `block` here keeps it alive for as long as native code looks at
    it."""
    if hasattr(signal, "pthread_sigmask"):
        # they are for the threads that run Python
        signal.pthread_sigmask(signal.SIG_BLOCK, UNHEARD_BY_WORKERS)
    native.work(block.address)


class State:
    """The one pool of the process and the native code it runs on."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.native: Native | None = None
        self.pool: Pool | None = None

    def make_pool(self) -> Pool:
        with self.lock:
            if self.native is None:
                self.native = Native(load_object(compile_loop(host_target()), SYMBOLS))
            if self.pool is None:
                self.pool = Pool(self.native)
            return self.pool

    def forked(self) -> None:
        """In a child process: the workers stayed in the parent, and whatever ran there will never
        end here."""
        self.lock = threading.Lock()
        self.pool = None
        if self.native is not None:
            self.native.unhook()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()


state = State()
atexit.register(state.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=state.forked)


def compile_loop(target: Target) -> bytes:
    """The object file of the native loop. Its text is loaded only here: a process that finds the
    file needs no text.

    Not optimised: that would take four times as long, in the first process of all, to save 15 ns an
    entry.
    """
    text: str = lazy.module("tetrad.backends.cpu.native.text").native_text(target)
    return compile_object(text, target, optimise=False)


def use_library(library: Library) -> None:
    """Native code from elsewhere (a compile cache) with the SYMBOLS of `backends.cpu.native`;
    before the first run."""
    with state.lock:
        if state.native is None:
            state.native = Native(library)


def run(
    table: Table,
    bases: Sequence[int],
    threads: int | None = None,
    profile: bool = False,
    apart: bool = True,
) -> Outcome | None:
    """Execute the table; `bases` are the addresses its words refer to.

    `threads` None: what the machine allows, if the table is worth it; a number is taken at its
    word. Raises `Trapped` when a kernel trapped, and what a handler of signals raised meanwhile
    (KeyboardInterrupt after Ctrl-C); then what it was writing is in no defined state. With
    `profile` all workers wait for each other after every entry: its time is that of all of them.
    Without `apart` only where they would anyway: then it is that of worker 0.
    """
    if threads is not None or profile or table.heavy:
        return run_heavy(table, bases, threads, profile, apart)
    pool = state.pool or state.make_pool()
    context = pool.context(table)
    try:
        table.pack(context.inputs, 0, table.address, 1, *bases)
    except struct.error:
        pack_slowly(context, table, 1, bases)
    code = context.run(context.address)
    pool.free.append(context)
    if code:
        raise failure(context, code)
    return None


def run_heavy(
    table: Table, bases: Sequence[int], threads: int | None, profile: bool, apart: bool = True
) -> Outcome | None:
    """The same for tables that take longer than a call: with workers, without the GIL, with an ear
    for signals."""
    pool = state.pool or state.make_pool()
    wanted = wanted_threads(pool, table, threads)
    if wanted > 1:
        pool.start(wanted)
        pool.make_way()
    context = pool.context(table, wanted)
    context.block.words[SIGNALS] = signals = EAR.listens_to()
    timing = APART if profile and apart else 0
    pack_slowly(context, table, wanted | timing | (hook_of(table) if signals else 0), bases)
    ticks = array("q", bytes(8 * table.slots)) if profile else None
    context.block.words[PROFILE] = ticks.buffer_info()[0] if ticks else 0
    code = pool.native.run(context.address)
    context.block.words[PROFILE] = 0
    team = context.block.words[CONTEXT["TEAM"]]
    pool.free.append(context)
    if code:
        raise failure(context, code)
    return None if ticks is None else Outcome(tuple(round(t / ticks_per_ns()) for t in ticks), team)


def wanted_threads(pool: Pool, table: Table, threads: int | None) -> int:
    if pool.is_closed:
        return 1
    if threads is None:
        return max(1, min(pool.limit, table.width)) if table.heavy else 1
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"threads must lie between 1 and {MOST_THREADS}, got {threads}")
    return threads


def use_threads(threads: int) -> None:
    """So many compute from now on, in the whole process; a pool that is made later reads the
    flag."""
    os.environ["TETRAD_THREADS"] = str(threads)
    if state.pool is not None:
        state.pool.limit = threads


def hook_of(table: Table) -> int:
    """Handlers run where the signal comes, unless that may be inside another library, which holds
    locks of its own, or in Python, which runs them itself."""
    return HOOK if table.calls_out or table.calls_python else HOOK | ANYTIME


def pack_slowly(context: Context, table: Table, options: int, bases: Sequence[int]) -> None:
    """Write table, options and bases; bases beyond those the table uses are left out."""
    if len(bases) < table.base_count:
        raise ValueError(f"the table refers to {table.base_count} bases, got {len(bases)}")
    table.pack(context.inputs, 0, table.address, options, *bases[: table.base_count])


def failure(context: Context, code: int) -> BaseException:
    """What a run that ended early raises."""
    raised = context.pool.native.raised()
    if raised is not None:
        return raised
    if code != STOPPED:
        return Trapped(code, context.block.words[CONTEXT["VALUE"]])
    return SystemExit() if context.pool.is_closed else KeyboardInterrupt()


@cache
def ticks_per_ns() -> float:
    """Speed of the time-stamp counter, measured over two milliseconds."""
    native = state.make_pool().native
    ticks, start = native.ticks(), time.perf_counter_ns()
    while time.perf_counter_ns() - start < 2_000_000:
        pass
    return (native.ticks() - ticks) / (time.perf_counter_ns() - start)
