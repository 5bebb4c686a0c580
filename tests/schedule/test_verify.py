"""Every rule of the schedule language refuses what breaks it, by its code; its page lists them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.modules import ROOT
from tests.schedule.schedules import (
    FLAG,
    FOUR,
    INDEX,
    SEQ,
    adding,
    doubled,
    doubling,
    is_small,
)
from tetrad.core.dtypes import f32, f64, i8
from tetrad.core.errors import VerifyError
from tetrad.core.record import replace
from tetrad.core.sizes import Dim, Size
from tetrad.core.source import Source
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Literal
from tetrad.kernel.build import KernelBuilder
from tetrad.schedule import verify as module
from tetrad.schedule.build import ScheduleBuilder, constant_slot, input_slot, output_slot, temp_slot
from tetrad.schedule.nodes import (
    Call,
    HostCall,
    HostMemory,
    HostRoom,
    Loop,
    Schedule,
    Slot,
    Step,
    Switch,
    While,
)
from tetrad.schedule.verify import verify

THREE = ArrayType(f32, (3,))
BYTES = ArrayType(i8, (16,))


def launched(kind: ArrayType = FOUR, **fields: object) -> Schedule:
    b = ScheduleBuilder("f")
    b.launch(doubling(), b.input(kind), b.output(kind), **{"groups": 1} | fields)  # type: ignore[arg-type]
    return b.finish()


def stepped(make: Callable[[Slot, Slot], Step]) -> Schedule:
    """One step from an input to an output."""
    b = ScheduleBuilder("f")
    b.add(make(b.input(FOUR), b.output(FOUR)))
    return b.finish()


def changed(**fields: object) -> Schedule:
    """The launch of a schedule with other fields."""
    schedule = launched()
    return replace(schedule, steps=(replace(schedule.steps[0], **fields),))


def in_place(result: int, source: int) -> Schedule:
    schedule = launched()
    slots = schedule.steps[0].slots  # type: ignore[union-attr]
    step = replace(schedule.steps[0], inplace=((slots[result], slots[source]),))
    return replace(schedule, steps=(step,))


def reads_what_nobody_wrote() -> Schedule:
    b = ScheduleBuilder("f")
    b.launch(doubling(), b.temp(FOUR), b.output(FOUR), groups=1)
    return b.finish()


def updates_what_nobody_wrote() -> Schedule:
    b = ScheduleBuilder("f")
    x, y = b.input(FOUR), b.output(FOUR)
    b.launch(adding(), x, y, groups=1, updates=frozenset({y}))
    return b.finish()


def writes_nothing() -> Schedule:
    b = ScheduleBuilder("f")
    b.input(FOUR), b.output(FOUR)
    return b.finish()


def writes_a_constant() -> Schedule:
    b = ScheduleBuilder("f")
    x, c = b.input(FOUR), b.constant(np.zeros(4, np.float32))
    b.launch(doubling(), x, c, groups=1)
    return b.finish([c])


def reads_wide_elements() -> Schedule:
    k = KernelBuilder("wide", 1)
    x, y = k.buffer("x", f64), k.buffer("y", f64, "write")
    k.store(y, k.group_id(), k.load(x, k.group_id()))
    b = ScheduleBuilder("f")
    b.launch(k.finish(), b.input(THREE), b.output(ArrayType(f64, (3,))), groups=1)
    return b.finish()


def constant(kind: ArrayType, literal: Literal | None) -> Schedule:
    b = ScheduleBuilder("f")
    slot = Slot("c", kind, "constant", -1, literal)
    b.launch(doubling(), slot, b.output(FOUR), groups=1)
    return b.finish()


def called(
    access: str = "write",
    form: str = "Nim",
    numbers: tuple[Size, ...] = (2,),
    room: Size | None = None,
    systems: Size = 1,
    split: tuple[int, int] | None = None,
    **moves: Size,
) -> Schedule:
    """A routine that writes the output."""

    def make(x: Slot, y: Slot) -> HostCall:
        rooms = () if room is None else (HostRoom(room),)
        memory = (HostMemory(y, access, **moves), *rooms)
        return HostCall("routine", form, numbers, memory, systems, split)

    return stepped(make)


def calls_into_a_constant() -> Schedule:
    b = ScheduleBuilder("f")
    c = b.constant(np.zeros(4, np.float32))
    b.add(HostCall("routine", "m", (), (HostMemory(c, "write"),), 1))
    return b.finish([c])


def at_places(inputs: list[Slot], outputs: list[Slot]) -> Schedule:
    return replace(launched(), inputs=tuple(inputs), outputs=tuple(outputs), steps=())


X, Y = input_slot(0, FOUR), output_slot(0, FOUR)
NUMBERS = Literal(np.zeros(4, np.float32))
OTHER = Dim("seq", max=65)

BROKEN: list[tuple[str, Callable[[], Schedule]]] = [
    ("S001", lambda: at_places([input_slot(1, FOUR)], [])),
    ("S001", lambda: at_places([Y], [])),
    ("S002", lambda: at_places([X], [output_slot(1, FOUR)])),
    ("S002", lambda: at_places([X], [X, Y])),
    ("S003", reads_what_nobody_wrote),
    ("S003", updates_what_nobody_wrote),
    ("S003", writes_nothing),
    ("S004", lambda: changed(slots=(X,))),
    ("S004", lambda: changed(args={"n": 3})),
    ("S005", reads_wide_elements),
    ("S005", lambda: launched(BYTES)),
    ("S006", lambda: changed(writes=frozenset())),
    ("S006", writes_a_constant),
    ("S007", lambda: changed(partly=frozenset({temp_slot("t", FOUR)}))),
    ("S007", lambda: with_update()),
    ("S008", lambda: in_place(0, 1)),
    ("S008", lambda: in_place(1, 1)),
    ("S009", lambda: stepped(lambda x, y: Call(doubled(), (x, x), (y,)))),
    ("S009", lambda: stepped(lambda x, y: Call(doubled(), (x,), (y, y)))),
    ("S009", lambda: stepped(lambda x, y: Call(launched(THREE), (x,), (y,)))),
    ("S009", lambda: stepped(lambda x, y: Call(doubled(), (input_slot(0, BYTES),), (y,)))),
    ("S009", lambda: loop(spares=())),
    ("S009", lambda: loop(rows=(-1, -1))),
    ("S009", lambda: loop(consts=1, carries=0, spares=(), rows=())),
    ("S009", lambda: whilst(doubled())),
    ("S009", lambda: switched(is_small())),
    ("S010", lambda: launched(ArrayType(f32, (-4,)))),
    ("S010", lambda: launched(groups=-1)),
    ("S010", lambda: launched(flops=-1)),
    ("S010", lambda: loop(length=-1)),
    ("S011", lambda: launched(groups=SEQ)),
    ("S011", lambda: launched(ArrayType(f32, (SEQ,)), groups=OTHER)),
    ("S011", lambda: launched(ArrayType(f32, (SEQ, OTHER)))),
    ("S012", lambda: constant(FOUR, None)),
    ("S012", lambda: constant(THREE, NUMBERS)),
    ("S012", lambda: at_places([Slot("x", FOUR, "input", 0, NUMBERS)], [])),
    ("S003", lambda: called(access="readwrite")),
    ("S010", lambda: called(systems=-1)),
    ("S010", lambda: called(form="Nimm", room=-8)),
    ("S011", lambda: called(systems=SEQ)),
    ("S011", lambda: called(numbers=(SEQ,))),
    ("S011", lambda: called(per_system=SEQ)),
    ("S011", lambda: called(form="Nimm", room=SEQ)),
    ("S013", lambda: called(form="Nmm")),
    ("S013", lambda: called(form="Nixm")),
    ("S013", lambda: called(form="Nim" + "N" * 9)),
    ("S013", lambda: called(access="peek")),
    ("S013", lambda: called(systems=3, per_system=2)),
    ("S013", lambda: called(offset=4)),
    ("S013", lambda: called(offset=-1)),
    ("S013", lambda: called(split=(1, 4))),
    ("S013", lambda: called(split=(0, 0))),
    ("S013", lambda: called(split=(0, 1), numbers=(3,), per_block=2)),
    ("S013", calls_into_a_constant),
]


def with_update() -> Schedule:
    schedule = launched()
    step = replace(schedule.steps[0], updates=frozenset(schedule.inputs))
    first = replace(schedule.steps[0])
    return replace(schedule, steps=(first, step))


def loop(**fields: object) -> Schedule:
    usual = {
        "consts": 0,
        "carries": 1,
        "length": 3,
        "spares": (temp_slot("s", FOUR),),
        "rows": (-1,),
    }
    given = usual | fields
    return stepped(
        lambda x, y: Loop(doubled(), (x,), (y,), reverse=False, **given)  # type: ignore[arg-type]
    )


def whilst(condition: Schedule) -> Schedule:
    flag, spare = temp_slot("flag", FLAG), temp_slot("s", FOUR)
    return stepped(lambda x, y: While(condition, doubled(), (x,), (y,), 0, 0, (spare,), flag))


def switched(branch: Schedule) -> Schedule:
    b = ScheduleBuilder("f")
    index, x = b.input(INDEX), b.input(FOUR)
    b.add(Switch(index, (doubled(), branch), (x,), (b.output(FOUR),)))
    return b.finish()


@pytest.mark.parametrize(("code", "make"), BROKEN, ids=[code for code, _ in BROKEN])
def test_what_breaks_a_rule_is_refused(code: str, make: Callable[[], Schedule]) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(make())
    assert caught.value.code == code


def test_what_keeps_the_rules_passes() -> None:
    for schedule in (
        launched(),
        launched(ArrayType(f32, (SEQ,)), groups=SEQ, flops=2 * SEQ),
        in_place(1, 0),
        constant(FOUR, NUMBERS),
        loop(),
        whilst(is_small()),
        switched(doubled()),
        at_places([X], [X]),
        called(),
        called(form="N" * 9 + "im"),
        called(systems=2, per_system=2, offset=1),
        called(systems=0, per_system=100),
        called(split=(0, 1), numbers=(4,), per_block=1),
        called(form="jmm", room=8),
    ):
        verify(schedule)


def test_a_rule_broken_inside_names_the_schedule_and_the_users_line() -> None:
    inner = doubled("inner")
    line = Source("model.py", 41, "layer")
    step = replace(inner.steps[0], writes=frozenset(), source=line)
    inner = replace(inner, steps=(step,))
    with pytest.raises(VerifyError, match=r"S006: inner: double: (?s:.*)model.py line 41"):
        verify(stepped(lambda x, y: Call(inner, (x,), (y,))))


def test_the_page_lists_every_rule() -> None:
    listed = re.findall(r"^    (S\d+)  ", module.__doc__ or "", re.M)
    page = (ROOT / "docs" / "schedule.md").read_text()
    assert re.findall(r"^\| (S\d+) \|", page, re.M) == listed == sorted({c for c, _ in BROKEN})


def test_constants_of_a_builder_have_their_bytes() -> None:
    slot = constant_slot("c", FOUR, NUMBERS)
    assert (slot.kind, slot.position, slot.literal) == ("constant", -1, NUMBERS)
