"""Printing then parsing a schedule gives the same schedule; text that is none is a ParseError."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tetrad as td
from tests.explain.programs import loops
from tests.replay.programs import SPECIAL, TRANSFORMED
from tetrad.backends.cpu.isa import LEVELS
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.dtypes import f32
from tetrad.core.errors import ParseError
from tetrad.core.record import replace
from tetrad.core.sizes import ceil_div
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph
from tetrad.kernel.nodes import Program
from tetrad.lower.lower import Lowerer
from tetrad.schedule.nodes import HostCall, HostMemory, HostRoom, Launch, Schedule, Slot
from tetrad.schedule.parse import parse, parse_program
from tetrad.schedule.text import kernels, literals, to_text

PROGRAMS = {**TRANSFORMED, **SPECIAL}  # `tests.compiled` asks the same of every conformance case


def lowered(graph: Graph) -> Schedule:
    return lower_graph(graph, Lowerer(replace(LEVELS["x86-64-v3"].machine, parallel_groups=2)))


@pytest.mark.parametrize("name", list(PROGRAMS)[::3])
def test_parsing_what_is_printed_prints_the_same(name: str) -> None:
    function, *operands = PROGRAMS[name]
    schedule = lowered(td.trace(function)(*operands))
    text = to_text(schedule, sources=False)
    again, found = parse_program(text)
    assert to_text(again) == text == to_text(parse(str(schedule)))
    assert list(found) == list(kernels(schedule)) == list(kernels(again))


seq = td.Dim("seq", max=4096)
TEXT = """\
dim seq max=4096
kernel fma(x0: f32 read, x1: f32 read, y2: f32 write, s: f32 workgroup count=4*seq) workgroup=16,1,1
schedule f(%0):
  %0: f32[seq,4] input 0 in0
  %1: f32[4] constant #0 c4
  %2: f32[seq,4] output 0 out0
  launch fma(%1, %0, %2) groups=ceil(seq/4) writes=y2 inplace=y2:x0 flops=8*seq
  return %2
"""


def test_a_schedule_as_text() -> None:
    def f(x: td.Array) -> td.Array:
        return x * x + np.arange(4, dtype=np.float32)

    schedule = lowered(td.trace(f)(td.Spec((seq, 4))))
    shown = to_text(schedule)
    assert "   # test_text.py:" in shown and to_text(parse(shown)) == to_text(
        schedule, sources=False
    )
    (name,), (literal,) = literals(schedule), literals(schedule).values()
    assert name == "#0" and literal.held.tolist() == [0, 1, 2, 3]
    again = parse(shown, {"#0": literal})
    assert [s.literal for s in again.steps[0].reads if s.kind == "constant"] == [literal]  # type: ignore[union-attr]


def test_what_is_read_is_what_is_written() -> None:
    schedule = parse(TEXT)
    (launch,) = schedule.steps
    assert isinstance(launch, Launch)
    x, c, y = schedule.inputs[0], launch.slots[0], schedule.outputs[0]
    assert (x.name, x.kind, x.position, x.type) == ("in0", "input", 0, ArrayType(f32, (seq, 4)))
    assert launch.slots == (c, x, y) and launch.writes == {y} and launch.inplace == ((y, c),)
    assert launch.groups == ceil_div(seq, 4)
    assert [str(b.count) for b in launch.program.buffers] == ["None", "None", "None", "4*seq"]
    assert to_text(schedule) == TEXT


HOST = """\
dim seq max=4096
schedule f(%0):
  %0: f32[seq,4,4] input 0 in0
  %1: f32[seq,4,4] output 0 out0
  host trsm form=Rimm numbers=4*seq memory=%1:write:3:16:2,room:8*seq systems=seq split=0:64 flops=9
  return %1
"""


def test_a_host_call_is_read_back() -> None:
    schedule = parse(HOST)
    (call,) = schedule.steps
    assert isinstance(call, HostCall) and to_text(schedule) == HOST
    (y,) = schedule.outputs
    assert call.memory == (HostMemory(y, "write", 3, 16, 2), HostRoom(8 * seq))
    assert (call.routine, call.form, call.numbers) == ("trsm", "Rimm", (4 * seq,))
    assert call.calls == seq * ceil_div(4 * seq, 64)
    assert call.writes == {y} and not call.reads and not call.updates


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (":16:2", ":16"),
        ("%1:write", "%7:write"),
        ("room:8*seq", "room:8:8"),
        ("split=0:64", "split=64"),
        ("systems=seq ", ""),
        ("flops=", "flips="),
    ],
)
def test_a_host_call_that_is_none_is_refused(old: str, new: str) -> None:
    with pytest.raises(ParseError, match="line 5: expected"):
        parse(HOST.replace(old, new, 1))


def test_names_of_any_kind_are_read_back() -> None:
    kind = ArrayType(f32, (2,))
    slots = tuple(
        Slot(name, kind, "input", i) for i, name in enumerate(["a b", 'q"(,)', "é #0", "", "%1:="])
    )
    program = Program("two words", (), (), (1, 1, 1), ())
    launches = (
        Launch(program, (), {}, 1, frozenset()),
        Launch(Program("two words", (), (), (1, 1, 1), ()), (), {"x y": 3}, 1, frozenset()),
    )
    schedule = Schedule(Graph("<λ> @x", (), ()), launches, slots, slots[:1])
    again = parse(to_text(schedule))
    assert to_text(again) == to_text(schedule)
    assert [s.name for s in again.inputs] == [s.name for s in slots]
    assert again.graph.name == "<λ> @x" and [s.name for s in again.steps] == ["two words"] * 2
    assert again.steps[1].args == {"x y": 3}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dim seq max=4096\n", "", "line 1: expected an integer or a declared dim, not 'seq'"),
        ("max=4096", "max=0", "line 1: Dim seq: max must be at least 1"),
        ("f32 read,", "f33 read,", "line 2: unknown dtype 'f33'"),
        ("f32[4]", "f32[4", "line 5: expected a type such as"),
        ("input 0", "inlet 0", "line 4: expected .*, got '%0: f32"),
        ("%1: f32", "%0: f32", "line 8: expected .* declared once|line 7: expected launch"),
        ("(%1, %0, %2)", "(%1, %0, %9)", "line 7: expected launch"),
        ("launch f", "launch g", "line 7: expected launch"),
        ("launch", "lunch", "line 7: expected"),
        ("writes=y2", "writes=s", "line 7: expected launch"),
        ("writes=y2", "writes=y2 writes=y2", "line 7: expected writes once"),
        ("writes=y2", "rights=y2", "line 7: expected launch"),
        ("ceil(seq/4)", "ceil(seq/0)", "line 7: expected ceil"),
        ("  return %2\n", "", "line 8: expected return, got the end of the text"),
        ("f(%0):", "f(%0)", "line 3: expected schedule"),
        (TEXT, "", "line 1: expected a schedule, got the end"),
        (TEXT, TEXT + TEXT[TEXT.index("schedule") :], "line 9: expected schedule .* a new name"),
        (TEXT, "return %0", "line 1: expected return at the end of a schedule"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(TEXT.replace(old, new, 1))


LOOPS = to_text(lowered(td.trace(loops)(td.Spec((6,)), td.Spec((5, 6)))), sources=False)


@given(
    at=st.integers(0, len(LOOPS)),
    drop=st.integers(0, 4),
    junk=st.text(st.sampled_from('%@#()->,:="\\ 0x-9eé\n'), max_size=4),
)
def test_text_that_is_damaged_is_read_or_refused(at: int, drop: int, junk: str) -> None:
    try:
        parse(LOOPS[:at] + junk + LOOPS[at + drop :])
    except ParseError as error:
        assert str(error).startswith("line ")


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(ParseError, match="line "):
        parse(text)
