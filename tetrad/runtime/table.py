"""The runtime, tables: a schedule with all sizes known, as immutable entries and as the image native code executes.

Receives entries (kernel, call, loop, branch, foreign), returns a `Table` whose `address` the pool runs. A word of an
entry is a number, or an address relative to one of the bases (arena, weights, inputs) given at each run.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from tetrad.core.errors import CompileError
from tetrad.core.record import record
from tetrad.runtime.native import FLAGS, HEADER_WORDS, KINDS

BARRIER, SERIAL = FLAGS["BARRIER"], FLAGS["SERIAL"]
HEAVY_GROUPS = 2048  # a table of fewer workgroups is usually done before a second thread is awake
STACK_BYTES = 256 << 10  # what nested entries may take of a worker's stack
FRAME_BYTES = 512  # of it, the native frames of one level
FOREVER = 1 << 62  # trips of a loop that only its condition ends


class Word(NamedTuple):
    """A number (base -1), or the address bases[base] + value."""

    base: int
    value: int


@record
class KernelEntry:
    """Workgroups 0..groups-1 of a kernel, split over the workers in contiguous ranges.

    `slice`: workgroups between two looks at the stop word, 0 = none in between. `barrier` False: the next entry does
    not depend on this one. `serial`: so small that worker 0 runs it alone.
    """

    function: int
    words: tuple[Word, ...]
    groups: int
    slice: int = 0
    name: str = ""
    serial: bool = False
    barrier: bool = True


@record
class CallEntry:
    """A sub-table with bases of its own, made from the caller's."""

    table: Table
    bases: tuple[Word, ...]
    name: str = ""


@record
class LoopEntry:
    """The body, `trips` times: a number, or (base >= 0) an i64 in memory, read once.

    `counter`: address where the number of the iteration is stored as i64 before it begins. `until`: address of a byte
    looked at before each iteration; the loop ends when it is 0 (trips FOREVER makes it a while loop).
    """

    body: Table | tuple[Entry, ...]
    trips: Word
    counter: Word | None = None
    until: Word | None = None
    name: str = ""


@record
class BranchEntry:
    """One of the tables, by the i32 at address `index`, clamped into range."""

    index: Word
    tables: tuple[Table, ...]
    name: str = ""


@record
class ForeignEntry:
    """`void function(ptr words)`, called by worker 0 with the words resolved."""

    function: int
    words: tuple[Word, ...]
    name: str = ""


Entry = KernelEntry | CallEntry | LoopEntry | BranchEntry | ForeignEntry


class Encoded(NamedTuple):
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

    `scratch_bytes` is what a worker needs here; inner tables are counted by themselves. `heavy` None: estimated from
    the number of workgroups. A table that is not heavy runs on the calling thread alone, keeps the GIL and is too short
    to be stopped by Ctrl-C.
    """

    __slots__ = (
        "_image", "address", "base_count", "entries", "heavy", "inner", "meets", "names", "pack", "scratch_bytes",
        "slots", "stack_bytes", "width", "work",
    )  # fmt: skip

    def __init__(self, entries: Iterable[Entry], scratch_bytes: int = 0, heavy: bool | None = None) -> None:
        self.entries = tuple(entries)
        encoded = [encode(entry) for entry in self.entries]
        self._image = array("q", image_words(self.entries, encoded))
        self.address = self._image.buffer_info()[0]
        self.inner = tuple(table for e in encoded for table in e.inner)  # kept alive: the image holds their addresses
        self.base_count = max((e.bases for e in encoded), default=0)
        self.pack: Callable[..., None] = struct.Struct(f"={2 + self.base_count}q").pack_into  # table, options, *bases
        self.scratch_bytes: int = max(scratch_bytes, *(t.scratch_bytes for t in self.inner), 0)
        self.stack_bytes = FRAME_BYTES + max((stack_of(e) for e in encoded), default=0)
        self.slots = sum(slots_of(e) for e in encoded)  # entries, inner ones included
        self.names = tuple(chain.from_iterable(map(names_of, self.entries, encoded)))  # one for each slot
        self.width: int = max(chain(map(width_of, self.entries), (t.width for t in self.inner)), default=0)
        self.meets = any(e.kind in ("KERNEL", "FOREIGN") for e in encoded)  # does every execution pass a barrier?
        self.work = sum(e.work for e in encoded)
        self.heavy = self.work >= HEAVY_GROUPS if heavy is None else heavy
        check_stack(self.stack_bytes)


def image_words(entries: tuple[Entry, ...], encoded: list[Encoded]) -> Iterator[int]:
    """The number of entries, then a record for each."""
    yield len(encoded)
    slot = 0
    for i, e in enumerate(encoded):
        barrier = BARRIER if needs_barrier(entries, i) else 0
        yield from (KINDS[e.kind], HEADER_WORDS + len(e.payload), e.flags | barrier, slot)
        yield from e.payload
        slot += slots_of(e)


def needs_barrier(entries: tuple[Entry, ...], i: int) -> bool:
    """Is there a barrier after entry i? Always at the end of a table and before control flow, which reads memory.

    Not after control flow: what is inside ends with one. Not between two entries that worker 0 runs anyway.
    """
    entry = entries[i]
    if not isinstance(entry, KernelEntry | ForeignEntry):
        return False
    following = entries[i + 1] if i + 1 < len(entries) else None
    if not isinstance(following, KernelEntry | ForeignEntry):
        return True
    return getattr(entry, "barrier", True) and not (runs_alone(entry) and runs_alone(following))


def runs_alone(entry: KernelEntry | ForeignEntry) -> bool:
    return isinstance(entry, ForeignEntry) or entry.serial


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
        case ForeignEntry():
            check_function(entry.function, entry.name)
            payload = [entry.function, len(entry.words), *chain.from_iterable(entry.words)]
            bases, stack = bases_used(entry.words), 8 * len(entry.words)
            return Encoded("FOREIGN", 0, payload, bases=bases, stack=stack, work=HEAVY_GROUPS)


def encode_kernel(entry: KernelEntry) -> Encoded:
    check_function(entry.function, entry.name)
    if entry.groups < 0 or entry.slice < 0:
        raise CompileError(f"schedule: kernel {entry.name!r} has {entry.groups} workgroups in slices of {entry.slice}")
    payload = [entry.function, entry.groups, entry.slice, len(entry.words), *chain.from_iterable(entry.words)]
    flags, bases = SERIAL if entry.serial else 0, bases_used(entry.words)
    return Encoded("KERNEL", flags, payload, bases=bases, stack=8 * len(entry.words), work=entry.groups)


def encode_call(entry: CallEntry) -> Encoded:
    table, count = entry.table, len(entry.bases)
    if count < table.base_count:
        raise CompileError(f"schedule: call gives {count} bases, its table needs {table.base_count}")
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
    trips = entry.trips.value if entry.trips.base < 0 else HEAVY_GROUPS
    payload = [body.address, *chain.from_iterable(words)]
    bases = max(bases_used(words), body.base_count)
    return Encoded("LOOP", flags, payload, (body,), bases, work=float(trips) * max(1, body.work))


def encode_branch(entry: BranchEntry) -> Encoded:
    if not entry.tables:
        raise CompileError("schedule: a branch without tables")
    firsts, slot = [], 0
    for table in entry.tables:
        firsts.append(slot)
        slot += table.slots
    choices = chain.from_iterable((t.address, first) for t, first in zip(entry.tables, firsts, strict=True))
    payload = [len(entry.tables), *entry.index, *choices]
    bases = max(bases_used((entry.index,)), *(t.base_count for t in entry.tables))
    return Encoded("BRANCH", 0, payload, entry.tables, bases, work=max(t.work for t in entry.tables))


def as_table(body: Table | tuple[Entry, ...]) -> Table:
    return body if isinstance(body, Table) else Table(body)


def check_function(address: int, name: str) -> None:
    if address <= 0:
        raise CompileError(f"schedule: {name!r} has no code")


def check_stack(needed: int) -> None:
    if needed > STACK_BYTES:
        raise CompileError(f"schedule: nested entries need {needed} bytes of stack, {STACK_BYTES} are allowed")


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
    return entry.groups if isinstance(entry, KernelEntry) and not entry.serial else 0


def names_of(entry: Entry, e: Encoded) -> Iterator[str]:
    yield entry.name or e.kind.lower()
    for table in e.inner:
        yield from table.names
