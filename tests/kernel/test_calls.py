"""Calls of registered programs: what they compute, whom they name, what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.backends.llvm.machine import assert_same_as_evaluator
from tetrad.core.dtypes import f32, i32, u32
from tetrad.core.errors import VerifyError
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.calls import CALL_CODES, MAX_CALLS, building
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.verify import verify

LANES, SIZE = 16, 40
GRID = (3, 1, 1)


def scale(x: str = "x", y: str = "y", size: int = 8) -> n.Program:
    """y[i] = factor(arg) * x[i], who is beyond the end returns."""
    k = KernelBuilder("scale", LANES)
    source, goal = k.buffer(x, i32, count=size), k.buffer(y, i32, "write", size)
    factor, i = k.arg("factor"), k.global_id()
    with k.when(i >= size):
        k.return_()
    k.store(goal, i, k.load(source, i) * k.cast(factor, i32))
    return k.finish()


def turned(size: int = 8) -> n.Program:
    """Each workgroup of y turned round, through scratch."""
    k = KernelBuilder("turned", LANES)
    y, held = k.buffer("y", i32, "readwrite"), k.scratch("held", i32, LANES)
    i = k.global_id()
    with k.when(i < size):
        k.store(held, k.lane(), k.load(y, i))
    k.barrier()
    with k.when(i < size):
        k.store(
            y, i, k.load(held, k.min(LANES, k.index(size) - k.group_id() * LANES) - 1 - k.lane())
        )
    return k.finish()


def both(x: str = "x", y: str = "y", size: int = 8) -> n.Program:
    k = KernelBuilder("both", LANES)
    source, goal = k.buffer(x, i32, count=size), k.buffer(y, i32, "readwrite", size)
    k.call("test::calls::scale", source, goal, size, factor=3)
    k.barrier()
    k.call("test::calls::turned", goal, size)
    k.barrier()
    with k.when(k.global_id() < size):
        k.store(goal, k.global_id(), k.load(goal, k.global_id()) + 1)
    return k.finish()


def endless() -> n.Program:
    k = KernelBuilder("endless", LANES)
    k.call("test::calls::endless")
    return k.finish()


def zeros() -> n.Program:
    k = KernelBuilder("zeros", LANES)
    held, y = k.buffer("held", i32, "workgroup", LANES, zeroed=True), k.buffer("y", i32, "write")
    k.store(y, k.global_id(), k.load(held, k.lane()))
    return k.finish()


def plain() -> n.Program:
    """Looks at no workgroup: may be called from any."""
    k = KernelBuilder("plain", 1)
    x, y = k.buffer("x", i32, count=2), k.buffer("y", i32, "write", 2)
    k.store(y, 0, k.load(x, 1) - k.cast(k.length(x), i32))
    return k.finish()


PROGRAMS: tuple[Callable[..., n.Program], ...] = (scale, turned, both, endless, zeros, plain)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ids = [f"test::calls::{make.__name__}" for make in PROGRAMS]
    for id, make in zip(ids, PROGRAMS, strict=True):
        registry.register(id, category="math", grid=(1, 1, 1))(make)
    yield
    for id in ids:
        del registry._entries[id]


def run(program: n.Program, x: np.ndarray) -> np.ndarray:
    verify(program)
    y = np.zeros_like(x)
    evaluate(program, {"x": x, "y": y}, {}, GRID, races=True)
    assert_same_as_evaluator(program, {"x": x, "y": np.zeros_like(x)}, {}, GRID)
    return y


def test_a_called_program_does_what_it_does_alone() -> None:
    x = np.arange(SIZE, dtype=np.int32)
    parts = [part[::-1] * 3 + 1 for part in np.split(x, [LANES, 2 * LANES])]
    assert (run(both("x", "y", SIZE), x) == np.concatenate(parts)).all()


def test_a_return_of_the_called_program_leaves_only_that() -> None:
    k = KernelBuilder("after", LANES)
    x, y = k.buffer("x", i32, count=SIZE), k.buffer("y", i32, "readwrite", SIZE)
    k.call("test::calls::scale", x, y, 5, factor=2)
    k.barrier()
    with k.when(k.global_id() < SIZE):
        k.store(y, k.global_id(), k.load(y, k.global_id()) + 1)
    got = run(k.finish(), np.arange(SIZE, dtype=np.int32))
    assert got.tolist() == [1, 3, 5, 7, 9] + [1] * (SIZE - 5)


def test_a_program_without_workgroup_is_called_from_any_and_in_a_loop() -> None:
    k = KernelBuilder("any", LANES)
    x, y = k.buffer("x", i32, count=SIZE), k.buffer("y", i32, "readwrite", SIZE)
    with k.loop(2):
        k.call("test::calls::plain", x, y)
    program = k.finish()
    verify(program)
    y_array = np.zeros(SIZE, np.int32)
    evaluate(program, {"x": np.arange(SIZE, dtype=np.int32) + 5, "y": y_array}, {}, (1, 1, 1))
    assert y_array[0] == 6 - 2


def test_one_buffer_may_be_read_twice() -> None:
    k = KernelBuilder("square", LANES)
    x, y = k.buffer("x", f32, count=5), k.buffer("y", f32, "write", 5)
    k.call("tetrad::math::add", x, x, y, 5)
    y_array = np.zeros(5, np.float32)
    evaluate(k.finish(), {"x": np.arange(5, dtype=np.float32), "y": y_array}, {})
    assert y_array.tolist() == [0, 2, 4, 6, 8]


# -- who made it -----------------------------------------------------------------------------------


def regions(program: n.Program) -> list[tuple[str, str]]:
    return [(i.generator, i.source) for i in n.walk(program.body) if isinstance(i, n.Region)]


def test_a_child_keeps_its_generator_and_names_its_parent() -> None:
    found = regions(registry.entry("test::calls::both").build())
    assert found[0] == ("test::calls::both", "")
    assert {f for f in found[1:] if f[0] == "test::calls::turned"} == {
        ("test::calls::turned", "test::calls::both")
    }
    with building("test::calls::outer"):
        k = KernelBuilder("outer", LANES)
        x, y = k.buffer("x", i32, count=8), k.buffer("y", i32, "readwrite", 8)
        k.call("test::calls::both", x, y, 8)
    composed = regions(k.finish())
    assert ("test::calls::both", "test::calls::outer") in composed
    assert ("test::calls::turned", "test::calls::both") in composed


def test_a_pure_wrapper_leaves_the_primitive_on_top() -> None:
    def wrapper() -> n.Program:
        k = KernelBuilder("wrapper", LANES)
        k.call("test::calls::turned", k.buffer("y", i32, "readwrite"), 8)
        return k.finish()

    with building("test::calls::wrapper"):
        made = registry.in_region("test::calls::wrapper", wrapper())
    (top,) = made.body
    assert isinstance(top, n.Region)
    assert (top.generator, top.source) == ("test::calls::turned", "test::calls::wrapper")


def test_a_program_of_nobody_is_inline_of_its_parent() -> None:
    k = KernelBuilder("parent", LANES)
    x, y = k.buffer("x", i32, count=8), k.buffer("y", i32, "readwrite", 8)
    with k.region("mine"):
        k.call(scale(), x, y, factor=k.arg("n"))
    assert regions(k.finish())[:2] == [("mine", ""), ("inline::mine", "mine")]


def test_text_and_machine_code_carry_the_path() -> None:
    from tetrad.backends.llvm.module import emit_module

    program = registry.entry("test::calls::both").build()
    text = str(program)
    assert 'region "test::calls::turned" from "test::calls::both":' in text
    assert str(td.kernel.parse(text)) == text
    from tests.backends.llvm.machine import host

    path = '; region "test::calls::both/test::calls::turned" from "test::calls::both"'
    assert path in emit_module({"kernel": program}, host())


def test_errors_carry_the_path() -> None:
    k = KernelBuilder("wrong", LANES)
    with k.region("outer"), k.region("inner"), k.when(k.lane() < 3):
        k.barrier()
    with pytest.raises(VerifyError, match=r"V010(.|\n)*in region outer/inner"):
        verify(k.finish())


def test_the_composition_is_a_tree() -> None:
    lines = td.kernel.composition("test::calls::both").splitlines()
    assert lines[0].startswith("both: ") and lines[1].startswith("  test::calls::both: ")
    children = [line for line in lines if line.startswith("    test::calls::")]
    assert [line.split(": ")[0].strip() for line in children] == [
        "test::calls::scale",
        "test::calls::turned",
    ]
    assert all(line.endswith("called by test::calls::both") for line in children)
    whole = int(lines[0].split()[1])
    given = sum(int(line.split()[1]) for line in children)
    told = (
        f"{given} of {whole} nodes ({round(100 * given / whole)} %) come from registered programs"
    )
    assert lines[-1] == f"{told} that others call"
    assert 0 < given < whole


# -- what is refused -------------------------------------------------------------------------------


def calling(what: Any, *given: Any, workgroup: int = LANES, **args: Any) -> Callable[[], None]:
    def make() -> None:
        k = KernelBuilder("caller", workgroup)
        held = {
            "x": k.buffer("x", i32, count=8),
            "y": k.buffer("y", i32, "readwrite", 8),
            "u": k.buffer("u", u32, count=8),
            "short": k.buffer("short", i32, count=7),
            "lane": k.lane(),
        }
        if what == "test::calls::zeros" and "loop" in given:
            with k.loop(3):
                k.call(what, held["y"])
            return
        names = {"lane": held["lane"], "strange": n.Buffer("x", i32, count=8)}
        k.call(
            what, *((held | names).get(g, g) if isinstance(g, str) else g for g in given), **args
        )

    return make


SCALE, TURNED = "test::calls::scale", "test::calls::turned"
CASES: list[tuple[str, str, Callable[[], None], Callable[[], None]]] = [
    # code, words, broken, near miss
    (
        "V016",
        "no kernel 'test::calls::nothing'",
        calling("test::calls::nothing"),
        calling(TURNED, "y", 8),
    ),
    (
        "V017",
        f"more than {MAX_CALLS} calls",
        calling("test::calls::endless"),
        calling("test::calls::both", "x", "y", 8),
    ),
    (
        "V020",
        "y is a buffer, got 8; it is (x: ",
        calling(SCALE, "x", 8, factor=1),
        calling(SCALE, "x", "y", 8, factor=1),
    ),
    (
        "V020",
        "takes 1 buffers (y: i32 readwrite), got 2",
        calling(TURNED, "x", "y", 8),
        calling(TURNED, "y", 8),
    ),
    ("V020", "too many positional", calling(TURNED, "y", 8, 9), calling(TURNED, "y", 8)),
    (
        "V020",
        "takes the arguments factor, got none",
        calling(SCALE, "x", "y", 8),
        calling(SCALE, "x", "y", 8, factor=1),
    ),
    (
        "V020",
        "takes the arguments none, got factor",
        calling(TURNED, "y", 8, factor=1),
        calling(TURNED, "y", 8),
    ),
    (
        "V021",
        "neither a buffer nor a Python value",
        calling(SCALE, "x", "y", "lane", factor=1),
        calling(SCALE, "x", "y", 8, factor=1),
    ),
    (
        "V021",
        "an argument is an index, not 'many'",
        calling(SCALE, "x", "y", 8, factor="many"),
        calling(SCALE, "x", "y", 8, factor=1),
    ),
    ("V021", "takes buffers, got", calling(turned(), "y", 8), calling(turned(), "y")),
    (
        "V022",
        "buffer 0 is i32 read, u is u32",
        calling(SCALE, "u", "y", 8, factor=1),
        calling(SCALE, "x", "y", 8, factor=1),
    ),
    (
        "V022",
        "buffer 1 is i32 write, x is read",
        calling(SCALE, "y", "x", 8, factor=1),
        calling(SCALE, "x", "y", 8, factor=1),
    ),
    (
        "V022",
        "of 8 elements, short has 7",
        calling(SCALE, "short", "y", 8, factor=1),
        calling(SCALE, "short", "y", 7, factor=1),
    ),
    (
        "V022",
        "both are y",
        calling(SCALE, "y", "y", 8, factor=1),
        calling(SCALE, "x", "y", 8, factor=1),
    ),
    (
        "V022",
        "x is not the caller's",
        calling(SCALE, "strange", "y", 8, factor=1),
        calling(SCALE, "x", "y", 8, factor=1),
    ),
    (
        "V022",
        "has workgroups of (16, 1, 1), not (8, 1, 1)",
        calling(TURNED, "y", 8, workgroup=8),
        calling("test::calls::plain", "x", "y", workgroup=8),
    ),
    (
        "K015",
        "relies on zeros in held",
        calling("test::calls::zeros", "loop"),
        calling("test::calls::zeros", "y"),
    ),
]


@pytest.mark.parametrize(
    ("code", "words", "broken", "near_miss"),
    CASES,
    ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)],
)
def test_a_call_that_does_not_fit_is_refused(
    code: str, words: str, broken: Callable[[], None], near_miss: Callable[[], None]
) -> None:
    near_miss()
    with pytest.raises(VerifyError) as error:
        broken()
    assert error.value.code == code and words in str(error.value)
    assert "caller" in str(error.value) or "endless" in str(error.value)


def test_every_code_of_calls_has_a_case() -> None:
    assert {code for code, *_ in CASES} == set(CALL_CODES)
