"""The CPU back end, encode host calls: a call of a routine of LAPACK in, an entry of a native table
out.

Strides become bytes, numbers become words of which the routine gets the address, memory that it may
use as it likes lies in the scratch of the worker that calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from tetrad.backends.cpu.memory import ALIGNMENT
from tetrad.backends.cpu.table import ADDRESS, SCRATCH, VALUE, HostArgument, HostEntry, Word
from tetrad.core.sizes import bind
from tetrad.schedule import lapack
from tetrad.schedule.nodes import HostCall, HostMemory, HostRoom, Slot

Dims = Mapping[str, int]
NUMBER = -1  # base of a word that is a plain number


class SlotWords(Protocol):
    """Says where memory lies."""

    def word(self, slot: Slot) -> Word: ...


def host_entry(
    call: HostCall, dims: Dims, where: SlotWords, rooms: list[int], *, is_shared: bool
) -> HostEntry:
    calls, blocks = bind(call.calls, dims), max(bind(call.blocks, dims), 1)
    given = (*arguments(call, dims, where, rooms), *[plain(VALUE, 1)] * lapack.lengths(call.form))
    address = lapack.address(call.routine)
    return HostEntry(
        address, given, calls, blocks, name=call.name, serial=calls == 1, shared=is_shared
    )


def room_layout(call: HostCall, dims: Dims) -> list[int]:
    """Byte offset of each room in scratch, then the total."""
    offsets, total = [], 0
    for part in call.memory:
        if isinstance(part, HostRoom):
            offsets.append(total)
            total += -(-bind(part.nbytes, dims) // ALIGNMENT) * ALIGNMENT
    return [*offsets, total]


def arguments(
    call: HostCall, dims: Dims, where: SlotWords, rooms: list[int]
) -> Iterator[HostArgument]:
    """One for each letter of the form."""
    numbers, memory, offsets = enumerate(call.numbers), iter(call.memory), iter(rooms)
    for letter in call.form:
        if letter == "m":
            part = next(memory)
            if isinstance(part, HostRoom):
                yield plain(SCRATCH, next(offsets))
            else:
                yield in_slot(part, dims, where)
        elif letter.isupper():
            yield plain(ADDRESS, ord(letter))  # its first byte: processors are little-endian
        else:
            which, size = next(numbers)
            yield integer(call, which, bind(size, dims))


def plain(how: int, value: int) -> HostArgument:
    return HostArgument(how, Word(NUMBER, value))


def integer(call: HostCall, which: int, value: int) -> HostArgument:
    if call.split is None or call.split[0] != which:
        return plain(ADDRESS, value)
    most = call.split[1]
    return HostArgument(ADDRESS, Word(NUMBER, value), per_block=-most, most=most)


def in_slot(part: HostMemory, dims: Dims, where: SlotWords) -> HostArgument:
    base, start = where.word(part.slot)
    nbytes = part.slot.type.dtype.np.itemsize
    first, *moves = (bind(n, dims) * nbytes for n in (part.offset, part.per_system, part.per_block))
    return HostArgument(VALUE, Word(base, start + first), *moves)
