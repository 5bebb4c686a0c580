"""Printing then parsing gives the same program; bad text gives a line number and what was
expected."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernel.programs import programs, run_random
from tetrad.core.dtypes import bf16, bool_, f32, f64, i32, index, u32
from tetrad.core.errors import ParseError
from tetrad.core.sizes import Dim, ceil_div
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.text import FORMS, fingerprint, line_of, parse, to_text
from tetrad.kernel.verify import problems

EVERYTHING = """\
kernel "everything"
workgroup 4 1 1
args n
dim seq max=4096
buffer x: f32 read count=1+3*seq
buffer y: f32 readwrite count=64*ceil(1+seq/16)
buffer s: i32 workgroup count=16 zeroed
buffer c: u32 readwrite
body:
  %0: index = arg("n")
  %1: index = id("local", 0)
  %2: f32 = load(x, %1)
  %3: f32 = broadcast(%2, lane=2)
  %4: f32 = fma(%2, %2, %3)
  %5: f32 = shuffle(%2, %2, [1, 0, 3, 2])
  %6: f32 = add(%4, %5)
  %7: f32 = local(%6)
  region "loop":
    %8: index = const(1)
    for %9 in range(%8, %0, step=4):
      %10: bool = lt(%2, %6)
      %11: bool = any(%10)
      if %11:
        %12: f32 = neg(%2)
        %13: f32 = sqrt(%6)
        %14: f32 = select(%10, %12, %13)
        set(%7, %14)
      else:
        %15: bool = not(%10)
        trap(%15, 3, %1)
  %16: u32 = bitcast(%2)
  %17: i32 = cast(%2)
  %18: i32 = dot4(%17, %16, %16, u_max=127)
  store(s, %1, %18)
  %19: u32 = const(5)
  %20: u32 = lookup(%19, [0, 1, 2, 3, 4, 6, 8, 12, 0, 255, 254, 253, 252, 250, 248, 244])
  barrier()
  prefetch(y, %0)
  %21: f32 = get(%7)
  %22: f32 = broadcast(%21)
  %23: index = id("group", 1)
  store(y, %23, %22, hint="stream")
  %24: index = bufferlength(c)
  %25: u32 = rotl(%16, %19)
  %26: u32 = atomic_add(c, %1, %25)
  %27: u32 = atomic_compare_exchange(c, %24, %25, expected=%26, order="seq_cst")
  %28: f32 = permute(%2, %19)
  %29: f32 = dot2(%28, %16, %19)
  %30: bool = const(false)
  %31: bool = local(%30)
  repeat while %31:
    set(%31, %30)
  return()
"""


def everything() -> n.Program:
    return parse(EVERYTHING)


def test_the_text_of_every_instruction() -> None:
    program = everything()
    assert problems(program) == []
    assert to_text(program) == str(program) == EVERYTHING


def test_what_was_parsed() -> None:
    program = everything()
    x, y, s, _ = program.buffers
    seq = Dim("seq", max=4096)
    assert (program.name, program.args, program.workgroup) == ("everything", ("n",), (4, 1, 1))
    assert (x.dtype, x.access, x.count, x.zeroed) == (f32, "read", 3 * seq + 1, False)
    assert (y.dtype, y.access, y.count, y.zeroed) == (
        f32,
        "readwrite",
        64 * ceil_div(seq + 1, 16),
        False,
    )
    assert (s.dtype, s.access, s.count, s.zeroed) == (i32, "workgroup", 16, True)
    _, lane, load, broadcast, fma, shuffle, *_, store, length, _, added, exchanged = program.body[
        :-6
    ]
    leaving = program.body[-1]
    assert isinstance(load, n.Load) and (load.dtype, load.buffer, load.at) == (f32, x, lane)
    assert isinstance(broadcast, n.Broadcast) and (broadcast.x, broadcast.lane) == (load, 2)
    assert isinstance(fma, n.Fma) and (fma.a, fma.b, fma.c) == (load, load, broadcast)
    assert isinstance(shuffle, n.Shuffle) and shuffle.lanes == (1, 0, 3, 2)
    assert isinstance(store, n.Store) and (store.buffer, store.hint) == (y, "stream")
    assert isinstance(added, n.Atomic) and (added.expected, added.order) == (None, "relaxed")
    assert isinstance(exchanged, n.Atomic) and isinstance(leaving, n.Return)
    assert (exchanged.at, exchanged.expected, exchanged.order) == (length, added, "seq_cst")


def test_parsed_blocks() -> None:
    program = everything()
    region = program.body[8]
    assert isinstance(region, n.Region) and region.generator == "loop"
    first, loop = region.body
    assert isinstance(loop, n.For) and (loop.start, loop.stop, loop.step) == (
        first,
        program.body[0],
        4,
    )
    branch = loop.body[2]
    assert isinstance(branch, n.If) and branch.cond is loop.body[1]
    assert [type(i) for i in branch.then] == [n.Unary, n.Unary, n.Select, n.Set]
    assert [type(i) for i in branch.orelse] == [n.Unary, n.Trap]


def test_every_instruction_prints() -> None:
    assert set(FORMS) | {n.For, n.Repeat, n.If, n.Region} == set(n.INSTRUCTIONS)
    words = (
        EVERYTHING.replace("= add", "= binary")
        .replace("lt(", "compare(")
        .replace("neg", "unary")
        .replace("any", "vote")
    )
    for cls in n.INSTRUCTIONS:
        assert cls.__name__.lower() in words


@given(programs())
def test_print_parse_print(program: n.Program) -> None:
    text = to_text(program)
    again = parse(text)
    assert to_text(again) == text
    assert again.name == program.name
    assert fingerprint(again) == fingerprint(program)


@given(programs())
def test_random_programs_are_valid_and_mean_the_same_after_parsing(program: n.Program) -> None:
    assert problems(program) == []
    for got, want in zip(run_random(parse(to_text(program))), run_random(program), strict=True):
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.0, 0.1, 5e-324, 2.0**-149, 1e300, math.inf, -math.inf, math.nan]
)
def test_floats_survive_exactly(value: float, dtype: object) -> None:
    program = n.Program("c", (), (), (1, 1, 1), (n.Const(dtype, value),))  # type: ignore[arg-type]
    again = parse(to_text(program)).body[0]
    assert isinstance(again, n.Const) and type(again.value) is float and again.dtype is dtype
    assert np.float64(again.value).tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize(
    ("value", "dtype"), [(True, bool_), (False, bool_), (-(2**63), index), (2**32 - 1, u32)]
)
def test_other_literals_survive(value: int, dtype: object) -> None:
    again = parse(to_text(n.Program("c", (), (), (1, 1, 1), (n.Const(dtype, value),)))).body[0]  # type: ignore[arg-type]
    assert isinstance(again, n.Const) and type(again.value) is type(value) and again.value == value


def test_names_that_are_not_words_are_quoted() -> None:
    k = KernelBuilder('a "b"\n', workgroup=1)
    odd = k.buffer("x, %1", f32, "readwrite")
    k.store(odd, k.arg("n, m"), 1.0)
    text = to_text(k.finish())
    assert 'store("x, %1", %0, %1)' in text and 'args "n, m"' in text
    assert to_text(parse(text)) == text


def test_the_fingerprint_ignores_the_name_and_nothing_else() -> None:
    def program(name: str, text: str) -> n.Program:
        return parse(text.replace('"everything"', f'"{name}"'))

    base = fingerprint(everything())
    assert base == fingerprint(program("other", EVERYTHING)) and len(base) == 64
    for old, new in [
        ("step=4", "step=5"),
        ("zeroed", ""),
        ("fma(", "fma("),
        ("max=4096", "max=4097"),
        ('"loop"', '"l"'),
    ]:
        assert (fingerprint(program("x", EVERYTHING.replace(old, new))) == base) == (old == new)


def test_line_of_an_instruction() -> None:
    program = everything()
    assert line_of(program, program.body[4]) == "%4: f32 = fma(%2, %2, %3)"
    assert line_of(program, n.Barrier()) == "barrier"


def test_undefined_operands_print_and_numpy_numbers_too() -> None:
    ghost = n.Const(f32, 1.0)
    body = (n.Unary(f32, "neg", ghost), n.Const(f32, np.float64(2.5)), n.If(ghost, ()))
    text = to_text(n.Program("bad", (), (), (1, 1, 1), body))
    assert "%0: f32 = neg(%undefined)\n  %1: f32 = const(2.5)\n  if %undefined:\n" in text


def test_printing_300_instructions_takes_less_than_3_ms() -> None:
    k = KernelBuilder("long", workgroup=16)
    x = k.buffer("x", f32)
    v = k.load(x, k.lane())
    for i in range(100):
        v = k.fma(v, v, k.load(x, i))
    program = k.finish()
    assert len(program.body) >= 300
    times = []
    for _ in range(10):
        start = time.thread_time()
        to_text(program)
        times.append(time.thread_time() - start)
    assert min(times) < 0.003


# -- bad text --------------------------------------------------------------------------------------

HEAD = "workgroup 4 1 1\nargs n\nbuffer x: f32 readwrite\nbody:\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "line 1: expected body:"),
        ("body:\n", "line 1: expected a workgroup line"),
        ("hello\n", "line 1: expected kernel, workgroup"),
        ("workgroup 4 1\n", "line 1: expected kernel, workgroup"),
        ("buffer x: f33 read\n", "line 1: unknown dtype 'f33'"),
        ("buffer x: f32 peek\n", "line 1: expected an access"),
        ("buffer x: f32 read\nbuffer x: f32 read\n", "line 2: expected a new buffer name"),
        ("dim a max=3\ndim a max=4\n", "line 2: expected a new dim"),
        ("dim a max=0\n", "line 1: Dim a: max must be at least 1"),
        ("buffer x: f32 read count=seq\n", "line 1: expected an integer or a declared dim"),
        ("dim a max=3\nbuffer x: f32 read count=2*\n", "line 2: expected an integer or a "
"declared dim"),
        ("dim a max=3\nbuffer x: f32 read count=a)\n", "line 2: expected the end of the size"),
        ("dim a max=3\nbuffer x: f32 read count=ceil(a/0)\n", "line 2: expected ceil"),
        ("dim a max=3\nbuffer x: f32 read count=a%2\n", "line 2: expected a size such as"),
        (HEAD + "  nonsense\n", "line 5: expected an instruction"),
        (HEAD + "  %0: f32 = frobnicate(%1)\n", "line 5: expected an instruction"),
        (HEAD + "  %0: f32 = neg(%7)\n", "line 5: expected a value defined before, %7 is none"),
        (HEAD + "  neg(%7)\n", "line 5: expected %0: dtype = neg"),
        (HEAD + "  %0: f32 = barrier()\n", "line 5: expected barrier.* without a result"),
        (HEAD + "  %0: f99 = const(1)\n", "line 5: unknown dtype"),
        (HEAD + "  %0: f32 = const(1.0)\n  %0: f32 = const(1.0)\n", "line 6: expected a new "
"number"),
        (HEAD + "  %0: f32 = const()\n", "line 5: expected const.value: number"),
        (HEAD + "  %0: f32 = const(1.0, 2.0)\n", "line 5: expected const"),
        (HEAD + "  %0: f32 = const(1.0, )\n", "line 5: expected const"),
        (HEAD + "  %0: f32 = const(one)\n", "line 5: could not convert string to float"),
        (HEAD + f"  %0: i32 = const({'9' * 5000})\n", "line 5: Exceeds the limit"),
        (HEAD + "  %0: index = arg(n)\n", "line 5: Expecting value"),
        (HEAD + "  %0: index = arg(3)\n", "line 5: expected a string"),
        (HEAD + '  %0: index = id("local", 1.5)\n', "line 5: invalid literal for int"),
        (HEAD + "  %0: index = const(0)\n  %1: f32 = load(z, %0)\n", "line 6: expected a declared "
"buffer, "
"z is "
"none"),
        (HEAD + "  %0: index = const(0)\n  %1: f32 = const(1.0)\n"
"  store(x, %0, %1, hint=3)\n", "line 7: expected a s"),
        (HEAD + '  %0: index = const(0)\n  %1: f32 = load(x, %0, "stream")\n', "line 6: expected "
"load.buffer"),
        (HEAD + "  %0: index = const(0)\n  %1: f32 = load(x, at=%0)\n", "line 6: expected "
"load.buffer"),
        (HEAD + "  %0: index = const(0)\n  set(%0, %0)\n", "line 6: expected a local, %0 is "
"not one"),
        (HEAD + "  %0: index = const(0)\n  %1: index = shuffle(%0, %0, 3)\n", "line 6: expected "
"integers in "
"brackets"),
        (HEAD + "  else:\n", "line 5: expected for"),
        (HEAD + "  for i in range(3):\n", "line 5: expected for %1 in range"),
        (HEAD + "    barrier()\n", "line 5: expected an indentation of 2"),
        (HEAD + "barrier()\n", "line 5: expected an indentation of 2"),
        (HEAD + "".join("  " * (d + 1) + 'region "r":\n' for d in range(300)),
        "line 105: expected at "
"most "
"100 "
"nested"),
    ],
)  # fmt: skip
def test_bad_text(text: str, match: str) -> None:
    with pytest.raises(ParseError, match=match):
        parse(text)


@given(st.text(st.sampled_from('%01 fibn:=()[],"\\\n.-*x'), max_size=60))
def test_hostile_bodies_only_raise_parse_errors(text: str) -> None:
    try:
        parse(HEAD + "  " + text)
    except ParseError as error:
        assert str(error).startswith("line ")


@given(st.data())
def test_damaged_programs_only_raise_parse_errors(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(EVERYTHING) - 1))
    drop = data.draw(st.integers(0, 8))
    text = EVERYTHING[:at] + data.draw(st.text(max_size=4)) + EVERYTHING[at + drop :]
    try:
        to_text(parse(text))
    except ParseError as error:
        assert str(error).startswith("line ")


def test_comments_and_blank_lines_are_skipped() -> None:
    assert (
        to_text(parse("# a kernel\n\n" + EVERYTHING.replace("body:\n", "body:\n  # begin\n\n")))
        == EVERYTHING
    )


@pytest.mark.parametrize("space", ["global", "workgroup", "private"])
def test_the_space_of_a_buffer_is_in_the_text(space: str) -> None:
    access = "readwrite" if space == "global" else space
    text = f'kernel "spaces"\nworkgroup 16 1 1\nbuffer s: f32 {access} count=32\nbody:'
    (buffer,) = parse(text).buffers
    assert (buffer.space, buffer.is_scratch) == (space, space != "global")
    assert str(parse(text)).split("\n")[:3] == text.split("\n")[:3]
