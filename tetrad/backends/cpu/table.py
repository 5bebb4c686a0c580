"""CPU back end, tables: a schedule with all sizes known, as immutable entries and as the image
native code executes.

Receives entries (kernel, host, call, loop, branch), returns a `Table` whose `address` the pool
runs. A word of an entry is a number, or an address relative to one of the bases (arena, weights,
inputs) given at each run.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from tetrad.backends.cpu.native import FLAGS, HEADER_WORDS, KINDS
from tetrad.core.errors import CompileError
from tetrad.core.record import record
from tetrad.schedule.lapack import MOST_ARGUMENTS

BARRIER, SERIAL, SHARED = FLAGS["BARRIER"], FLAGS["SERIAL"], FLAGS["SHARED"]
HEAVY_GROUPS = 2048  # a table of fewer workgroups is usually done before a second thread is awake
STACK_BYTES = 256 << 10  # what nested entries may take of a worker's stack
FRAME_BYTES = 512  # of it, the native frames of one level
LOOP_BYTES = 128  # and the frame of a loop that one worker runs
HOST_BYTES = 3 * 8 * MOST_ARGUMENTS  # arguments of a routine: values, addresses, as passed
FOREVER = 1 << 62  # trips of a loop that only its condition ends


class Word(NamedTuple):
    """A number (base -1), or the address bases[base] + value."""

    base: int
    value: int


@record
class KernelEntry:
    """Workgroups 0..groups-1 of a kernel, split over the workers in contiguous ranges.

    `slice`: workgroups between two looks at the stop word, 0 = none in between. `barrier` False:
    the next entry does not depend on this one. `serial`: so small that worker 0 runs it alone.
    `shared`: so large that a worker who is done takes over what others have not begun.
    """

    function: int
    words: tuple[Word, ...]
    groups: int
    slice: int = 0
    name: str = ""
    serial: bool = False
    barrier: bool = True
    shared: bool = False
    calls_python: bool = False  # its function is one of Python's


VALUE, ADDRESS, SCRATCH = 0, 1, 2  # what a routine is given: see `native.entries`
UNBOUNDED = (1 << 63) - 1


@record
class HostArgument:
    """What a routine is given: a word, its address, or memory so far into the worker's scratch; how
    far it moves with each system and each block, and the most it may be."""

    how: int
    word: Word
    per_system: int = 0
    per_block: int = 0
    most: int = UNBOUNDED


@record
class HostEntry:
    """A routine of another library, called `calls` times: for every system, and for each of the
    `blocks` it has. Calls are split over the workers as workgroups are; `serial` and `shared` as
    for kernels."""

    routine: int
    arguments: tuple[HostArgument, ...]
    calls: int
    blocks: int = 1
    name: str = ""
    serial: bool = False
    shared: bool = False
    calls_out: bool = True


@record
class CallEntry:
    """A sub-table with bases of its own, made from the caller's."""

    table: Table
    bases: tuple[Word, ...]
    name: str = ""


@record
class Base:
    """A base of a loop's body: where it is in the first iteration, and how far it moves after
    each."""

    word: Word
    stride: int = 0


@record
class Carry:
    """What one iteration writes and the next one reads.

    `read` and `written` are bases of the body. The written one alternates between `home` and
    `spare`; without a spare it moves by its stride, from row to row. After the loop the value lies
    at home, copied there if need be.
    """

    read: int
    written: int
    home: Word
    spare: Word | None
    nbytes: int


@record
class LoopEntry:
    """The body, `trips` times: a number, or (base >= 0) an i64 in memory, read once.

    `counter`: address where the number of the iteration is stored as i64 before it begins. `until`:
    address of a byte looked at before each iteration; the loop ends when it is 0 (trips FOREVER
    makes it a while loop). `bases`: what the body sees in place of the table's own. `alone`: so
    short an iteration that worker 0 runs all of them.
    """

    body: Table | tuple[Entry, ...]
    trips: Word
    counter: Word | None = None
    until: Word | None = None
    name: str = ""
    bases: tuple[Base, ...] = ()
    carries: tuple[Carry, ...] = ()
    alone: bool = False


@record
class BranchEntry:
    """One of the tables, by the i32 at address `index`, clamped into range."""

    index: Word
    tables: tuple[Table, ...]
    name: str = ""


Entry = KernelEntry | HostEntry | CallEntry | LoopEntry | BranchEntry


@record
class Encoded:
    """One entry as native code wants it, and what its table must know about it."""

    kind: str
    flags: int
    payload: list[int]
    inner: tuple[Table, ...] = ()  # tables it refers to
    bases: int = 0  # how many of the table's bases it needs
    stack: int = 0  # bytes of its words on the stack
    work: float = 0  # workgroups


class Table:
    """A schedule and its native image; immutable.

    `scratch_bytes` is what a worker needs here; inner tables are counted by themselves. `heavy`
    None: estimated from the number of workgroups. A table that is not heavy runs on the calling
    thread alone, keeps the GIL and is too short to be stopped by Ctrl-C.
    """

    __slots__ = (
        "_image", "address", "base_count", "calls_out", "calls_python", "entries", "heavy", "inner",
        "meets",
        "names", "pack",
        "scratch_bytes", "slots", "stack_bytes", "width", "work",
    )  # fmt: skip

    def __init__(
        self, entries: Iterable[Entry], scratch_bytes: int = 0, heavy: bool | None = None
    ) -> None:
        self.entries = tuple(entries)
        encoded = [encode(entry) for entry in self.entries]
        self._image = array("q", image_words(self.entries, encoded))
        self.address = self._image.buffer_info()[0]
        # kept alive: the image holds their addresses
        self.inner = tuple(table for e in encoded for table in e.inner)
        self.base_count = max((e.bases for e in encoded), default=0)
        # table, options, *bases
        self.pack: Callable[..., None] = struct.Struct(f"={2 + self.base_count}q").pack_into
        self.scratch_bytes: int = max(scratch_bytes, *(t.scratch_bytes for t in self.inner), 0)
        self.stack_bytes = FRAME_BYTES + max((stack_of(e) for e in encoded), default=0)
        self.slots = sum(slots_of(e) for e in encoded)  # entries, inner ones included
        # one for each slot
        self.names = tuple(chain.from_iterable(map(names_of, self.entries, encoded)))
        self.width: int = max(
            chain(map(width_of, self.entries), map(inner_width, self.entries, encoded)), default=0
        )
        self.meets = any(map(stands_alone, self.entries))  # does every execution pass a barrier?
        parts = (*self.entries, *self.inner)
        self.calls_python = any(getattr(e, "calls_python", False) for e in parts)
        self.calls_out = any(getattr(e, "calls_out", False) for e in parts)
        self.work = sum(e.work for e in encoded)
        # What only a condition ends may go on for ever: Ctrl-C has to reach it.
        self.heavy = self.work >= (HEAVY_GROUPS if heavy is None else FOREVER) or bool(heavy)
        check_stack(self.stack_bytes)


def image_words(entries: tuple[Entry, ...], encoded: list[Encoded]) -> Iterator[int]:
    """The number of entries, then a record for each."""
    yield len(encoded)
    slot = 0
    for i, e in enumerate(encoded):
        # Claims are cleared between barriers: without one behind it an entry cannot be shared.
        flags = e.flags | BARRIER if needs_barrier(entries, i) else e.flags & ~SHARED
        yield from (KINDS[e.kind], HEADER_WORDS + len(e.payload), flags, slot)
        yield from e.payload
        slot += slots_of(e)


def needs_barrier(entries: tuple[Entry, ...], i: int) -> bool:
    """Is there a barrier after entry i? Always at the end of a table and before control flow, which
    reads memory.

    Not after control flow: what is inside ends with one. Not between two entries that worker 0 runs
    anyway.
    """
    entry = entries[i]
    if not stands_alone(entry):
        return False
    following = entries[i + 1] if i + 1 < len(entries) else None
    if following is None or not stands_alone(following):
        return True
    return getattr(entry, "barrier", True) and not (runs_alone(entry) and runs_alone(following))


def stands_alone(entry: Entry) -> bool:
    """Is nothing of the entry read by all workers, and is there no barrier inside?"""
    return isinstance(entry, KernelEntry | HostEntry) or getattr(entry, "alone", False)


def runs_alone(entry: Entry) -> bool:
    """Does worker 0 run it while the others wait?"""
    return getattr(entry, "serial", False) or getattr(entry, "alone", False)


def encode(entry: Entry) -> Encoded:
    match entry:
        case KernelEntry():
            return encode_kernel(entry)
        case CallEntry():
            return encode_call(entry)
        case LoopEntry():
            return encode_loop(entry)
        case BranchEntry():
            return encode_branch(entry)
        case HostEntry():
            return encode_host(entry)


def encode_kernel(entry: KernelEntry) -> Encoded:
    check_function(entry.function, entry.name)
    if entry.groups < 0 or entry.slice < 0:
        raise CompileError(
            f"schedule: kernel {entry.name!r} has {entry.groups} workgroups in slices of "
            f"{entry.slice}"
        )
    payload = [
        entry.function,
        entry.groups,
        entry.slice,
        len(entry.words),
        *chain.from_iterable(entry.words),
    ]
    flags, bases = (
        SERIAL if entry.serial else SHARED if entry.shared else 0,
        bases_used(entry.words),
    )
    return Encoded(
        "KERNEL", flags, payload, bases=bases, stack=8 * len(entry.words), work=entry.groups
    )


def encode_host(entry: HostEntry) -> Encoded:
    """As a kernel whose workgroups are calls; after each of them the stop word is looked at."""
    check_function(entry.routine, entry.name)
    if entry.calls < 0 or entry.blocks < 1 or len(entry.arguments) > MOST_ARGUMENTS:
        raise CompileError(
            f"schedule: {entry.name!r} is called {entry.calls} times in {entry.blocks} blocks with "
            f"{len(entry.arguments)} arguments"
        )
    head = (entry.routine, entry.blocks, len(entry.arguments))
    words = [*map(number, head), *chain.from_iterable(map(argument_words, entry.arguments))]
    payload = [entry.routine, entry.calls, 1, len(words), *chain.from_iterable(words)]
    flags, stack = SERIAL if entry.serial else SHARED if entry.shared else 0, HOST_BYTES
    return Encoded(
        "HOST",
        flags,
        payload,
        bases=bases_used(words),
        stack=8 * len(words) + stack,
        work=max(entry.calls, HEAVY_GROUPS),
    )


def argument_words(argument: HostArgument) -> tuple[Word, ...]:
    moves = argument.per_system, argument.per_block, argument.most
    return (number(argument.how), argument.word, *map(number, moves))


def number(value: int) -> Word:
    return Word(-1, value)


def encode_call(entry: CallEntry) -> Encoded:
    table, count = entry.table, len(entry.bases)
    if count < table.base_count:
        raise CompileError(
            f"schedule: call gives {count} bases, its table needs {table.base_count}"
        )
    payload = [table.address, count, *chain.from_iterable(entry.bases)]
    return Encoded("CALL", 0, payload, (table,), bases_used(entry.bases), 8 * count, table.work)


def encode_loop(entry: LoopEntry) -> Encoded:
    body = as_table(entry.body)
    words = [entry.trips, entry.counter or Word(-1, 0), entry.until or Word(-1, 0)]
    flags = FLAGS["LOADED"] if entry.trips.base >= 0 else 0
    flags |= FLAGS["COUNTS"] if entry.counter else 0
    flags |= FLAGS["TESTS"] if entry.until else 0
    # Without any barrier a loop could not be stopped, and its workers could drift apart.
    flags |= FLAGS["MEETS"] if entry.counter or entry.until or not body.meets else 0
    flags |= FLAGS["ALONE"] if entry.alone else 0
    trips = entry.trips.value if entry.trips.base < 0 else HEAVY_GROUPS
    own, carries = len(entry.bases), [carry_words(carry) for carry in entry.carries]
    listed = (n for base in entry.bases for n in (*base.word, base.stride))
    payload = [
        body.address,
        *chain.from_iterable(words),
        own,
        len(carries),
        *listed,
        *chain.from_iterable(carries),
    ]
    work = float(trips) * max(1, body.work)
    return Encoded(
        "LOOP", flags, payload, (body,), loop_bases(entry, body, words), 8 * own + LOOP_BYTES, work
    )


def carry_words(carry: Carry) -> tuple[int, ...]:
    swaps = carry.spare is not None
    return (
        carry.read,
        carry.written,
        *carry.home,
        *(carry.spare or Word(-1, 0)),
        int(swaps),
        carry.nbytes,
    )


def loop_bases(entry: LoopEntry, body: Table, words: list[Word]) -> int:
    """How many bases of its table a loop needs; those of the body are its own, if it has any."""
    if not entry.bases:
        return max(bases_used(words), body.base_count)
    if len(entry.bases) < body.base_count:
        raise CompileError(
            f"schedule: loop gives {len(entry.bases)} bases, its body needs {body.base_count}"
        )
    moved = [
        word for carry in entry.carries for word in (carry.home, carry.spare) if word is not None
    ]
    return bases_used([*words, *moved, *(base.word for base in entry.bases)])


def encode_branch(entry: BranchEntry) -> Encoded:
    if not entry.tables:
        raise CompileError("schedule: a branch without tables")
    firsts, slot = [], 0
    for table in entry.tables:
        firsts.append(slot)
        slot += table.slots
    choices = chain.from_iterable(
        (t.address, first) for t, first in zip(entry.tables, firsts, strict=True)
    )
    payload = [len(entry.tables), *entry.index, *choices]
    bases = max(bases_used((entry.index,)), *(t.base_count for t in entry.tables))
    return Encoded(
        "BRANCH", 0, payload, entry.tables, bases, work=max(t.work for t in entry.tables)
    )


def as_table(body: Table | tuple[Entry, ...]) -> Table:
    return body if isinstance(body, Table) else Table(body)


def check_function(address: int, name: str) -> None:
    if address <= 0:
        raise CompileError(f"schedule: {name!r} has no code")


def check_stack(needed: int) -> None:
    if needed > STACK_BYTES:
        message = (
            f"schedule: nested entries need {needed} bytes of stack, {STACK_BYTES} are allowed"
        )
        raise CompileError(message, hint="nest jitted functions, loops and branches less deeply")


def bases_used(words: Iterable[Word]) -> int:
    bases = [word.base for word in words]
    if min(bases, default=-1) < -1:
        raise CompileError(f"schedule: base {min(bases)} is neither -1 nor an index")
    return 1 + max(bases, default=-1)


def slots_of(e: Encoded) -> int:
    return 1 + sum(table.slots for table in e.inner)


def stack_of(e: Encoded) -> int:
    return FRAME_BYTES + e.stack + max((table.stack_bytes for table in e.inner), default=0)


def width_of(entry: Entry) -> int:
    match entry:
        case KernelEntry(serial=False):
            return entry.groups
        case HostEntry(serial=False):
            return entry.calls
    return 0


def inner_width(entry: Entry, e: Encoded) -> int:
    """The most workgroups side by side in the tables of an entry; one worker has no use for
    others."""
    return (
        0 if getattr(entry, "alone", False) else max((table.width for table in e.inner), default=0)
    )


def names_of(entry: Entry, e: Encoded) -> Iterator[str]:
    yield entry.name or e.kind.lower()
    for table in e.inner:
        yield from table.names
