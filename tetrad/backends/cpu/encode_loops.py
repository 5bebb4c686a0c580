"""CPU back end, encode loops: steps that hold other schedules in, entries of a native table
out.

The body of a loop is a table of its own, as that of a call is: its bases are its inputs, its
outputs and its arena. A loop moves them from iteration to iteration: rows of xs and ys by their
size, carries to what was written last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tetrad.backends.cpu.table import (
    FOREVER,
    Base,
    BranchEntry,
    CallEntry,
    Carry,
    Entry,
    LoopEntry,
    Table,
    Word,
)  # fmt: skip
from tetrad.core.record import record
from tetrad.core.sizes import bind
from tetrad.core.types import ArrayType
from tetrad.schedule.nodes import Call, Control, Loop, Schedule, Slot, Switch, While

Dims = Mapping[str, int]
NUMBER = -1  # base of a word that is a plain number
# an iteration estimated shorter than this is not worth two barriers for each of its kernels
ALONE_NS = 10_000
GUESSED_TRIPS = 1000  # of a while loop, when its cost is estimated


class Placing(Protocol):
    """Says where memory lies; `arena` is the base of intermediates."""

    offsets: Mapping[Slot, int]

    @property
    def arena(self) -> int: ...

    def word(self, slot: Slot) -> Word: ...


class Inner(Protocol):
    """A scheduled sub-graph."""

    @property
    def table(self) -> Table: ...

    @property
    def arena_bytes(self) -> int: ...

    @property
    def nanoseconds(self) -> float: ...


def control_entry(step: Control, inner: Sequence[Inner], where: Placing, dims: Dims) -> Entry:
    """One entry for a step, given its scheduled sub-graphs in the order of `step.bodies`."""
    arena = where.word(step.arena)
    match step:
        case Call():
            bases = [where.word(s) for s in (*step.inputs, *step.outputs)]
            return CallEntry(inner[0].table, (*bases, arena), name=step.body.graph.name)
        case Loop():
            return repeat_entry(step, inner[0], where, dims)
        case While():
            return while_entry(step, inner, where, dims)
        case Switch():
            given = tuple(where.word(s) for s in (*step.inputs, *step.outputs, step.arena))
            calls = (
                CallEntry(i.table, given, name=b.graph.name)
                for i, b in zip(inner, step.branches, strict=True)
            )
            return BranchEntry(
                where.word(step.index), tuple(Table((call,)) for call in calls), name=step.name
            )


def times(step: Control, dims: Dims) -> int:
    """How often the sub-graphs of a step run, as far as can be known."""
    if isinstance(step, Loop):
        return bind(step.length, dims)
    return GUESSED_TRIPS if isinstance(step, While) else 1


# -- scan ------------------------------------------------------------------------------------------


def repeat_entry(step: Loop, inner: Inner, where: Placing, dims: Dims) -> LoopEntry:
    count = bind(step.length, dims)
    walk = AxisWalk(count, step.reverse, dims)
    fixed = step.consts + step.carries
    kinds = [slot.type for slot in (*step.body.inputs[fixed:], *step.body.outputs[step.carries :])]
    rows = [
        walk.rows(where.word(s), k)
        for s, k in zip((*step.inputs[fixed:], *ys_of(step)), kinds, strict=True)
    ]
    xs, ys = rows[: len(step.inputs) - fixed], rows[len(step.inputs) - fixed :]
    written = [written_base(step, i, ys, where, count) for i in range(step.carries)]
    given = [Base(where.word(slot)) for slot in step.inputs[:fixed]]
    bases = (*given, *xs, *written, *ys, Base(where.word(step.arena)))
    moving = [i for i in range(step.carries) if step.outputs[i] is not step.inputs[step.consts + i]]
    carries = [carry_of(step, i, where, walk) for i in moving]
    alone = inner.nanoseconds < ALONE_NS
    trips = Word(NUMBER, count)
    return LoopEntry(
        inner.table, trips, name=step.name, bases=bases, carries=tuple(carries), alone=alone
    )


def carry_of(step: Loop, i: int, where: Placing, walk: AxisWalk) -> Carry:
    home = step.outputs[i]
    bases = step.consts + i, len(step.inputs) + i
    return Carry(*bases, where.word(home), spare_word(step, i, where), walk.nbytes(home.type))


def ys_of(step: Loop) -> tuple[Slot, ...]:
    return step.outputs[step.carries :]


def spare_word(step: Loop | While, i: int, where: Placing) -> Word | None:
    found = step.spares[i]
    return None if found is None else where.word(found)


def written_base(step: Loop, i: int, ys: Sequence[Base], where: Placing, count: int) -> Base:
    """Where the first iteration writes a carry: such that the last one writes it where it
    belongs."""
    if step.rows[i] >= 0:
        return ys[step.rows[i] - step.carries]
    spare = spare_word(step, i, where)
    home = where.word(step.outputs[i])
    return Base(home if spare is None or count % 2 else spare)


@record
class AxisWalk:
    """The way along a leading axis, forwards or backwards."""

    count: int
    reverse: bool
    dims: Dims

    def nbytes(self, kind: ArrayType) -> int:
        return bind(
            kind.with_shape(tuple([bind(n, self.dims) for n in kind.shape])).nbytes, self.dims
        )

    def rows(self, start: Word, row: ArrayType) -> Base:
        size = self.nbytes(row)
        if not self.reverse:
            return Base(start, size)
        return Base(Word(start.base, start.value + max(self.count - 1, 0) * size), -size)


# -- while -----------------------------------------------------------------------------------------


def while_entry(step: While, inner: Sequence[Inner], where: Placing, dims: Dims) -> CallEntry:
    """Ask, then run and ask again as long as the answer is yes; a table of its own, for one entry
    of the caller's."""
    condition, body = inner
    spares = (s or step.flag for s in step.spares)
    given = (*step.inputs, *step.outputs, *spares, step.flag, step.arena)
    places = {slot: Word(i, 0) for i, slot in reversed(list(enumerate(given)))}
    asked = step.inputs[: step.condition_consts]
    fixed = step.inputs[step.condition_consts :][: step.body_consts]
    carried = step.inputs[step.condition_consts + step.body_consts :]
    name = step.condition.graph.name
    first = [places[s] for s in (*asked, *carried, step.flag, step.arena)]
    ask = CallEntry(condition.table, tuple(first), name=name)
    read = len(asked) + len(fixed)
    written, end = read + len(carried), read + 2 * len(carried)
    bases = [
        Base(places[s]) for s in (*asked, *fixed, *carried, *step.outputs, step.flag, step.arena)
    ]
    own = [Word(i, 0) for i in range(len(bases))]
    run = (*own[len(asked) : end], own[end + 1])
    again = (*own[: len(asked)], *own[written:])
    asks_again = CallEntry(condition.table, again, name=name)
    turn = Table((CallEntry(body.table, run, name=step.body.graph.name), asks_again))
    walk = AxisWalk(0, False, dims)
    carries = [
        Carry(read + i, written + i, places[home], places[spare], walk.nbytes(home.type))
        for i, (home, spare) in enumerate(zip(step.outputs, step.spares, strict=True))
        if spare is not None
    ]
    alone = condition.nanoseconds + body.nanoseconds < ALONE_NS
    loop = LoopEntry(
        turn, Word(NUMBER, FOREVER), until=places[step.flag], name=step.name, bases=tuple(bases),
        carries=tuple(carries), alone=alone,
    )  # fmt: skip
    return CallEntry(Table((ask, loop)), tuple(where.word(s) for s in given), name=step.name)


# -- looking inside --------------------------------------------------------------------------------


def inner_tables(step: Control, entry: Entry) -> Iterator[tuple[Schedule, Table]]:
    """The sub-graphs of a step with their tables, each time they appear in the entry, in the order
    of profile slots."""
    match step, entry:
        case Call(), CallEntry():
            yield step.body, entry.table
        case Loop(), LoopEntry(body=Table() as table):
            yield step.body, table
        case Switch(), BranchEntry():
            for branch, table in zip(step.branches, entry.tables, strict=True):
                yield branch, called(table, 0)
        case While(), CallEntry():
            loop = entry.table.entries[1]
            if not isinstance(loop, LoopEntry) or not isinstance(loop.body, Table):
                raise TypeError(f"{step.name}: a while loop is a call of a condition and a loop")
            yield step.condition, called(entry.table, 0)
            yield step.body, called(loop.body, 0)
            yield step.condition, called(loop.body, 1)
        case _:
            raise TypeError(f"{step.name} has an entry of another kind")


def called(table: Table, position: int) -> Table:
    entry = table.entries[position]
    if not isinstance(entry, CallEntry):
        raise TypeError(f"{entry.name} is not a call")
    return entry.table
