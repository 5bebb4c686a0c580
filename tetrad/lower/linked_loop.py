"""Lowering, linked loops: a loop whose step is a few small kernels becomes one kernel.

Receives the step of a schedule that holds lowered graphs, returns a launch whose kernel runs the
kernels of those graphs one after the other, inside the loop, as one workgroup. So the bits are
those of the kernels, whatever the ops. What passes from one to the next stays in scratch, a number
in a register. Loops and branches inside become loops and branches of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tetrad.core.dtypes import DType, bool_
from tetrad.core.machine import LANES
from tetrad.core.record import record, replace
from tetrad.core.sizes import Size, product
from tetrad.core.types import ArrayType
from tetrad.kernel.build import Val
from tetrad.loopnest.complex import held_as
from tetrad.loopnest.frame import Frame, Memory
from tetrad.lower.link_kernel import Linked, Residence, Unlinkable, link_kernel
from tetrad.schedule.nodes import Call, Launch, Loop, Schedule, Slot, Step, Switch, While

MOST_WORK = 1 << 15  # operations of a step; larger ones are shared by the workers
# trips of a loop that ends by its data: it may go on until somebody stops it, so it is a long one
GUESSED = 1 << 18
MOST_SCRATCH = 1 << 16  # bytes that pass between the kernels of a step

Places = Mapping[Slot, Residence]


def linked_loop(step: Step, memory: Memory) -> Launch | None:
    """The loop as one kernel, or None where its step has too much work, or work of another kind."""
    if not isinstance(step, Loop | While) or not is_small(step):
        return None
    kept: set[Slot] = set()  # numbers that some kernel treats as one of several elements
    while True:
        try:
            return Linker(step, memory, kept).launch(step)
        except Unlinkable as reason:
            if reason.slot is None or reason.slot in kept:
                return None
            kept.add(reason.slot)


def is_small(step: Loop | While) -> bool:
    room = sum(room_of(body) for body in step.bodies)
    return room <= MOST_SCRATCH and sum(work_of(body) for body in step.bodies) <= MOST_WORK


def work_of(schedule: Schedule) -> float:
    """Operations of one run, those of inner loops once: their steps wait for each other anyway."""
    return sum(work_of_step(step) for step in schedule.steps)


def work_of_step(step: Step) -> float:
    if isinstance(step, Launch):
        if not isinstance(step.flops, int) or not isinstance(step.groups, int):
            return float("inf")
        return max(step.flops, step.groups * LANES)
    if isinstance(step, Call | Loop | While):
        return sum(map(work_of, step.bodies))
    return max(map(work_of, step.bodies)) if isinstance(step, Switch) else float("inf")


def room_of(schedule: Schedule) -> float:
    """Bytes of what the steps write."""
    written = {slot for step in schedule.steps for slot in step.writes if slot.kind != "input"}
    inner = (room_of(body) for step in schedule.steps for body in getattr(step, "bodies", ()))
    return sum(bytes_of(slot.type) for slot in written) + sum(inner)


def bytes_of(kind: ArrayType) -> float:
    return kind.nbytes if isinstance(kind.nbytes, int) else float("inf")


def operations(step: Step) -> Size:
    """Operations of all steps together, as far as can be known."""
    if isinstance(step, Launch):
        return step.flops
    inner = [operations(part) for body in getattr(step, "bodies", ()) for part in body.steps]
    trips = step.length if isinstance(step, Loop) else GUESSED if isinstance(step, While) else 1
    total: Size = 1
    for each in inner:
        total = total + each
    return trips * total


@record(eq=False)
class Carried:
    """A carry: what it is called in the body, before a step and after it, and where it lies."""

    before: Slot
    after: Slot
    place: Residence


class Linker:
    """The kernel under construction."""

    def __init__(self, step: Loop | While, memory: Memory, kept: set[Slot]) -> None:
        names = [s.name for body in step.bodies for s in body.steps if isinstance(s, Launch)]
        word = "while" if isinstance(step, While) else "scan"
        self.frame = Frame("_".join(dict.fromkeys((word, *names)))[:60], memory)
        self.k, self.kept = self.frame.k, kept
        self.linked = Linked(self.frame)
        self.changed = frozenset(step.outputs) & frozenset(step.inputs)

    def launch(self, step: Loop | While) -> Launch:
        read = {slot for body in step.bodies for part in body.steps for slot in part.reads}
        again = {o for o, own in zip(step.outputs, outputs_in(step), strict=True) if own in read}
        places = {slot: self.outer(slot) for slot in dict.fromkeys(step.inputs)}
        places |= {
            slot: Residence.of(self.frame.output(slot, "readwrite" if slot in again else "write"))
            for slot in step.outputs
            if slot not in places
        }
        self.linked.constant = self.constant
        self.fetch_numbers(step, places)
        self.run(step, places)
        made = self.frame.finish(1, flops=operations(step))
        return replace(made, source=step.source, updates=self.changed)

    def outer(self, slot: Slot) -> Residence:
        is_changed = slot in self.changed
        return Residence.of(
            self.frame.output(slot, "readwrite") if is_changed else self.frame.input(slot)
        )

    def constant(self, slot: Slot) -> Residence:
        """A table that a kernel brings along."""
        if slot.kind != "constant":
            raise Unlinkable(f"nobody has written {slot.name}")
        return Residence.of(self.frame.input(slot))

    def given(
        self, own: Sequence[Slot], outer: Sequence[Slot], places: Places
    ) -> dict[Slot, Residence]:
        """The places of a sub-graph's inputs or outputs: those of its caller's."""
        pairs = zip(own, outer, strict=True)
        return {inner: self.linked.place(slot, places) for inner, slot in pairs}

    def around(self, body: Schedule, step: Call | Switch, places: Places) -> dict[Slot, Residence]:
        outputs = self.given(body.outputs, step.outputs, places)
        return outputs | self.given(body.inputs, step.inputs, places)

    def fetch_numbers(self, step: Loop | While, places: Places) -> None:
        """Numbers that no step changes are read before the loop."""
        for slot in step.inputs:
            buffer = places[slot].buffer
            if buffer is not None and buffer.access == "read" and buffer.count == 1:
                self.k.load(buffer, 0)

    # -- steps -------------------------------------------------------------------------------------

    def schedule(self, schedule: Schedule, given: Places) -> None:
        """All steps of a lowered graph; what they write has a place, or gets one here."""
        places = dict(given)
        for step in schedule.steps:
            for slot in (*step.writes, *getattr(step, "outputs", ())):
                if slot not in places:
                    places[slot] = self.room(slot)
        for step in schedule.steps:
            self.run(step, places)

    def run(self, step: Step, places: Places) -> None:
        match step:
            case Launch():
                link_kernel(self.linked, step, places)
            case Call():
                self.schedule(step.body, self.around(step.body, step, places))
            case Switch():
                chosen = self.read_number(self.linked.place(step.index, places))
                self.branch(step, chosen, 0, places)
            case Loop():
                self.loop(step, places)
            case While():
                self.repeat(step, places)
            case _:
                raise Unlinkable(f"{step.name} runs outside of kernels")

    def branch(self, step: Switch, chosen: Val, first: int, places: Places) -> None:
        """The branch that is chosen, of those from `first` on."""
        body = step.branches[first]
        given = self.around(body, step, places)
        if first == len(step.branches) - 1:
            self.schedule(body, given)
            return
        with self.k.when(chosen <= first):
            self.schedule(body, given)
        with self.k.otherwise():
            self.branch(step, chosen, first + 1, places)

    # -- loops -------------------------------------------------------------------------------------

    def loop(self, step: Loop, places: Places) -> None:
        fixed, carries = step.consts, step.carries
        count = self.frame.sizes.val(step.length)
        state = self.begin(step, step.body, fixed, places)
        with self.trips(step, count) as i:
            t = count - 1 - i if step.reverse else i
            given = self.given(step.body.inputs[:fixed], step.inputs[:fixed], places)
            rows = (*step.body.inputs[fixed + carries :], *step.body.outputs[carries:])
            whole = (*step.inputs[fixed + carries :], *step.outputs[carries:])
            for own, outer in zip(rows, whole, strict=True):
                given[own] = self.linked.place(outer, places).row(self.k, t, own.type)
            self.step(step.body, given, state)
        self.end(state, step.outputs, places)

    @contextmanager
    def trips(self, step: Loop, count: Val) -> Iterator[Val]:
        """A loop that holds others counts its trips itself: it hears when it is to stop."""
        if not any(isinstance(part, Loop | While) for part in step.body.steps):
            with self.k.loop(count, always=isinstance(step.length, int) and step.length > 0) as i:
                yield i
            return
        at, goes_on = self.k.local(self.k.index(0)), self.k.local(self.k.index(0) < count)
        with self.k.repeat(goes_on):
            i = at.get()
            yield i
            at.set(i + 1)
            goes_on.set(i + 1 < count)

    def repeat(self, step: While, places: Places) -> None:
        asked, fixed = step.condition_consts, step.body_consts
        state = self.begin(step, step.body, asked + fixed, places, fixed)
        given = self.given(step.body.inputs[:fixed], step.inputs[asked : asked + fixed], places)
        goes_on = self.k.local(self.asked(step, state, places))
        with self.k.repeat(goes_on):
            self.step(step.body, given, state)
            goes_on.set(self.asked(step, state, places))
        self.end(state, step.outputs, places)

    def asked(self, step: While, state: Sequence[Carried], places: Places) -> Val:
        """What the condition says of the carries."""
        condition, count = step.condition, step.condition_consts
        given = self.given(condition.inputs[:count], step.inputs[:count], places)
        given |= {
            own: carry.place for own, carry in zip(condition.inputs[count:], state, strict=True)
        }
        (answer,) = condition.outputs
        place = given.get(answer) or self.room(answer)
        self.schedule(condition, {**given, answer: place})
        return self.read_number(place)

    def begin(
        self, step: Loop | While, body: Schedule, first: int, places: Places, inner: int = -1
    ) -> list[Carried]:
        """The carries, each where the body finds it: where the outer array lies that it changes in
        place, else in memory of its own."""
        inner = first if inner < 0 else inner
        count = len(step.outputs) if isinstance(step, While) else step.carries
        state = []
        for i in range(count):
            own, start, home = body.inputs[inner + i], step.inputs[first + i], step.outputs[i]
            stays = step.spares[i] is None and home is start
            begins = self.linked.place(start, places)
            place = begins if stays else self.room(own)
            if not stays:
                self.copy(begins, place, own.type)
            state.append(Carried(own, body.outputs[i], place))
        self.k.barrier()
        return state

    def step(self, body: Schedule, given: Places, state: Sequence[Carried]) -> None:
        """One step: what the body gives becomes what it is given next."""
        inside = {**given, **{carry.before: carry.place for carry in state}}
        late = []
        for carry in state:
            if carry.after is carry.before:
                continue
            if may_take_over(body, carry):
                inside[carry.after] = carry.place
            elif carry.after not in inside:
                inside[carry.after] = self.room(carry.after)
                late.append(carry)
            else:
                late.append(carry)
        self.schedule(body, inside)
        for carry in late:
            self.copy(inside[carry.after], carry.place, carry.before.type)
        if late:
            self.k.barrier()

    def end(self, state: Sequence[Carried], outputs: Sequence[Slot], places: Places) -> None:
        for carry, home in zip(state, outputs, strict=False):
            if places[home] is not carry.place:
                self.copy(carry.place, places[home], carry.before.type)
        self.k.barrier()

    # -- memory ------------------------------------------------------------------------------------

    def room(self, slot: Slot) -> Residence:
        """Memory inside the kernel: a register for a number, else scratch."""
        dtype, each = held_as(slot.type.dtype)
        count = product(slot.type.storage_shape) * each
        if not isinstance(count, int):
            raise Unlinkable(f"{slot.name} has a size that is known at the call")
        if count == 1 and slot not in self.kept:
            computed = dtype.computing
            return Residence(dtype, None, local=self.k.local(zero(computed), computed), slot=slot)
        return Residence.of(self.frame.scratch("held", dtype, -(-count // LANES) * LANES))

    def read_number(self, place: Residence) -> Val:
        return place.load(self.k, self.k.index(0))

    def copy(self, source: Residence, target: Residence, kind: ArrayType) -> None:
        dtype, each = held_as(kind.dtype)
        count = product(kind.storage_shape) * each
        if source.dtype is not dtype or target.dtype is not dtype:
            raise Unlinkable("memory is read as elements of two types")
        if count == 1:
            target.store(self.k, self.k.index(0), source.load(self.k, self.k.index(0)))
            return
        with self.k.loop(self.frame.sizes.val(count), 0, LANES) as first:
            at = first + self.k.lane()
            whole = LANES if is_padded(source) and is_padded(target) else count
            with self.frame.within(at, self.frame.sizes.val(count), whole):
                target.store(self.k, at, source.load(self.k, at))


def is_padded(place: Residence) -> bool:
    """Is there room for whole vectors?"""
    return place.buffer is not None and place.buffer.access == "workgroup"


def zero(dtype: DType) -> bool | int | float:
    return False if dtype is bool_ else 0.0 if dtype.is_float else 0


def outputs_in(step: Loop | While) -> tuple[Slot, ...]:
    return step.body.outputs


def may_take_over(body: Schedule, carry: Carried) -> bool:
    """May a carry be written where it lay? One kernel writes it, nobody reads the old value after
    that, and the kernel itself reads each element before it writes it. A number in memory, which
    all lanes read, is not written before all have read it."""
    if carry.place.buffer is not None and carry.before.type.size == 1:
        return False
    steps = body.steps
    writers = [i for i, step in enumerate(steps) if carry.after in step.writes]
    readers = [i for i, step in enumerate(steps) if carry.before in step.reads]
    if len(writers) != 1 or any(i > writers[0] for i in readers):
        return False
    writer = steps[writers[0]]
    if writers[0] not in readers:
        return isinstance(writer, Launch)
    return isinstance(writer, Launch) and (carry.after, carry.before) in writer.inplace
