"""graph.text: printing then parsing gives the same object; bad text is refused with its line."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import arg, close, graphs
from tetrad.core.dtypes import ARRAY_DTYPES, DType, bf16, f16, f32, f64, i32
from tetrad.core.errors import ParseError
from tetrad.core.op import REGISTRY, Op
from tetrad.core.sizes import Dim
from tetrad.core.source import Source, taken_from
from tetrad.core.types import ArrayType
from tetrad.graph.build import apply, intern, make_call, make_constant, make_graph, make_item
from tetrad.graph.nodes import Graph, Literal
from tetrad.graph.text import diff, literals, parse, structural_hash, to_text
from tetrad.ops.arithmetic import add, multiply, negative
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import expand, pad, reshape, transpose

seq, batch = Dim("seq", max=4096), Dim("batch", max=8)


@pytest.fixture
def anything() -> Any:
    """An op that takes any settings, to print and parse them."""
    REGISTRY["anything"] = Op("anything", "special", lambda x, **params: x, lambda x, **params: x)
    yield REGISTRY["anything"]
    del REGISTRY["anything"]


def layer() -> Graph:
    with taken_from(Source("/home/someone/model.py", 41, "layer")):
        product = matmul(arg(0, f32, seq, 16), arg(1, f32, 16, 4))
        zero = expand(make_constant(np.float32(-0.0)), shape=(seq, 4))
        return make_graph(
            "layer", [arg(0, f32, seq, 16), arg(1, f32, 16, 4)], [product, add(product, zero)]
        )


LAYER = """\
dim seq max=4096
graph layer(%0: f32[seq,16], %1: f32[16,4]):
  %2: f32[seq,4] = matmul(%0, %1)   # model.py:41
  %3: f32[] = constant(-0.0)
  %4: f32[seq,4] = expand(%3, shape=(seq, 4))   # model.py:41
  %5: f32[seq,4] = add(%2, %4)   # model.py:41
  return %2, %5
"""


def test_the_text_of_a_graph() -> None:
    assert to_text(layer()) == str(layer()) == LAYER
    assert to_text(layer(), sources=False) == LAYER.replace("   # model.py:41", "")


def test_nested_graphs_come_first_and_once() -> None:
    x, w = arg(0, f32, seq, 16), arg(1, f32, 16, 4)
    first, second = (make_call(layer(), [value, w]) for value in (x, negative(x)))
    outer = close(*(make_item(node, i) for node in (first, second) for i in range(2)))
    text = to_text(outer)
    assert text.count("graph layer(") == 1
    assert text.index("graph layer(") < text.index("graph main(")
    assert "(f32[seq,4], f32[seq,4]) = call(%0, %1, graph=@layer)" in text
    assert parse(text) is outer


def test_different_graphs_of_one_name_are_told_apart() -> None:
    x = arg(0, f32, 2)
    inner = [make_graph("same", [x], [op(x, x)]) for op in (add, multiply)]
    quoted = make_graph('two words "here"', [x], [x])
    outer = close(*(make_item(make_call(g, [x]), 0) for g in (*inner, quoted)))
    text = to_text(outer)
    assert "graph=@same)" in text and "graph=@same#1)" in text
    assert parse(text) is outer


@settings(max_examples=100)
@given(graph=graphs())
def test_random_graphs_come_back(graph: Graph) -> None:
    assert parse(to_text(graph), literals(graph)) is graph


def test_comments_and_blank_lines_are_skipped() -> None:
    assert parse("# a graph\n\n" + LAYER.replace("\n  %3", "\n\n  # here\n  %3")) is layer()


# -- settings and constants ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (-(2**63), "-9223372036854775808"),
        (True, "true"),
        (None, "none"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (5e-324, "5e-324"),
        (-0.0, "-0.0"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (complex(1, -0.0), "1.0-0.0j"),
        (complex("nan-infj"), "nan-infj"),
        (complex(-1e300, 5e-324), "-1e+300+5e-324j"),
        ('a "b" # c, ) \n', '"a \\"b\\" # c, ) \\n"'),
        ((), "()"),
        ((1,), "(1,)"),
        ((1, (2.0, "x"), ()), '(1, (2.0, "x"), ())'),
        (f32, "f32"),
        (ArrayType(i32, (2, seq)), "i32[2,seq]"),
        (seq, "seq"),
        (3 * seq * batch - 1, "-1+3*batch*seq"),
        (-2 * seq + batch, "batch-2*seq"),
        (Dim("nan"), "size(nan)"),
        (Dim("f32") + 1, "size(1+f32)"),
        (Literal(np.array([[1, 2]], np.int32)), "literal(i32[1,2], [1, 2])"),
    ],
)
def test_every_kind_of_setting(anything: Op, value: Any, text: str) -> None:
    x = arg(0, f32, seq, batch, Dim("nan"), Dim("f32"))
    node = apply(anything, [x], {"setting": value})
    printed = to_text(close(node))
    assert f"anything(%0, setting={text})" in printed
    parsed = parse(printed).outputs[0]
    assert parsed is node
    assert type(parsed.param("setting")) is type(value)


def test_what_python_calls_equal_is_not_one_node(anything: Op) -> None:
    x = arg(0, f32)
    nodes = [
        apply(anything, [x], {"setting": v}) for v in (0, False, 0.0, -0.0, 0j, -0j, (0,), (0.0,))
    ]
    assert len(set(nodes)) == len(nodes)
    padded = [pad(arg(0, f32, 2), low=(1,), high=(0,), value=v) for v in (0.0, -0.0)]
    assert padded[0] is not padded[1]


@pytest.mark.parametrize("dtype", ARRAY_DTYPES, ids=str)
def test_constants_are_exact(dtype: DType) -> None:
    bits = np.random.default_rng(0).integers(0, 256, 64 * dtype.nbytes).astype(np.uint8)
    array = (bits > 127) if dtype.short_name == "bool" else bits.view(dtype.np)
    for shape in ((64,), (4, 16), (2, 32, 1)):
        graph = close(make_constant(array.reshape(shape)))
        assert parse(to_text(graph)) is graph


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64], ids=str)
def test_special_floats_in_constants(dtype: DType) -> None:
    array = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, 0.1], dtype.np)
    # a NaN with every bit of its payload
    array = np.append(array, np.frombuffer(b"\xff" * dtype.nbytes, dtype.np))
    graph = close(make_constant(array))
    assert parse(to_text(graph)) is graph
    assert "[0.0, -0.0, inf, -inf, nan, 0x" in to_text(graph)


def test_complex_constants() -> None:
    graph = close(make_constant(np.array([1 - 2j, complex(-0.0, np.inf)], np.complex64)))
    assert "c64[2] = constant([1.0-2.0j, -0.0+infj])" in to_text(graph)
    assert parse(to_text(graph)) is graph
    with pytest.raises(
        ParseError, match=r"expected a complex number such as 1\.0-2\.0j, got '1\.0'"
    ):
        parse(to_text(graph).replace("1.0-2.0j", "1.0"))


def test_a_constant_of_one_value_prints_it_once() -> None:
    graph = close(
        make_constant(np.full((4, 4), 2.5, np.float32)), make_constant(np.zeros((0, 3), np.int32))
    )
    assert "f32[4,4] = constant(2.5)" in to_text(graph)
    assert "i32[0,3] = constant([])" in to_text(graph)
    assert parse(to_text(graph)) is graph


def test_large_constants_are_handed_over() -> None:
    array = np.arange(5000, dtype=np.float32)
    graph = close(make_constant(array))
    text = to_text(graph)
    assert "f32[5000] = constant(#0)" in text
    with pytest.raises(
        ParseError,
        match=r"line 2: the constant #0 of type f32\[5000\] is not in the text\n.*hand it",
    ):
        parse(text)
    assert parse(text, literals(graph)) is graph
    # an array is a new constant: large ones are compared by identity
    assert parse(text, {"#0": array}) is not graph
    with pytest.raises(ParseError, match=r"a literal of type f64\[5000\]"):
        parse(text, {"#0": array.astype(np.float64)})


# -- structural hash -------------------------------------------------------------------------------


def test_the_hash_sees_what_is_computed() -> None:
    x, y = arg(0, f32, 2), arg(1, f32, 2)
    different = [
        close(add(x, y)), close(add(y, x)), close(multiply(x, y)), close(add(x, y), x),
        close(add(arg(0, f64, 2), arg(1, f64, 2))), make_graph("main", [x, y], [add(x, x)]),
        close(add(x, x)),
        close(make_constant(np.float32(0.0))), close(make_constant(np.float32(-0.0))),
        close(arg(0, f32, seq)), close(arg(0, f32, Dim("seq", max=8))),
    ]  # fmt: skip
    assert len({structural_hash(g) for g in different}) == len(different)


def test_the_hash_does_not_see_names_lines_and_weights() -> None:
    def program(name: str, weights: np.ndarray, line: int) -> Graph:
        with taken_from(Source("model.py", line, "f")):
            x = arg(0, f32, 5000)
            inner = make_graph(name, [x], [add(x, make_constant(weights))])
            return make_graph(name, [x], [make_item(make_call(inner, [x]), 0)])

    first = program("a", np.arange(5000, dtype=np.float32), 1)
    second = program("b", np.ones(5000, np.float32), 2)
    assert structural_hash(first) == structural_hash(second)


def test_calling_equal_graphs_of_different_names_hashes_as_calling_one() -> None:
    x = arg(0, f32, 2)
    one, other = (make_graph(name, [x], [negative(x)]) for name in ("one", "other"))
    twice = [close(*(make_item(make_call(g, [v]), 0) for g, v in zip(gs, (x, add(x, x)),
    strict=True)))
             for gs in ((one, one), (one, other))]  # fmt: skip
    assert structural_hash(twice[0]) == structural_hash(twice[1])


# -- a diff ----------------------------------------------------------------------------------------


def test_a_diff_keeps_the_numbers_of_what_stays() -> None:
    x = arg(0, f32, 2, 3)
    kept = add(x, x)
    before = close(negative(transpose(transpose(kept, perm=(1, 0)), perm=(1, 0))))
    lines = [
        line
        for line in diff(before, close(negative(kept))).splitlines()
        if line[0] in "+-" and line[1] == " "
    ]
    assert [line.partition("   #")[0] for line in lines] == [
        "-  %2: f32[3,2] = transpose(%1, perm=(1, 0))",
        "-  %3: f32[2,3] = transpose(%2, perm=(1, 0))",
        "-  %4: f32[2,3] = negative(%3)",
        "-  return %4",
        "+  %5: f32[2,3] = negative(%1)",
        "+  return %5",
    ]


# -- refusals --------------------------------------------------------------------------------------


def changed(old: str, new: str) -> str:
    assert old in LAYER
    return LAYER.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a graph, got the end"),
        ("nonsense", "line 1: expected dim NAME max=N or graph"),
        (changed("  return %2, %5\n", ""), "expected return, got the end"),
        (changed("max=4096", "max=0"), "line 1: Dim seq: max must be"),
        (
            changed("dim seq max=4096\n", ""),
            "line 1: expected an integer or a declared dim, not 'seq'",
        ),
        (changed("dim seq", "dim seq max=1\ndim seq"), "line 2: expected a new dim"),
        (changed("%1: f32[16,4]", "%0: f32[16,4]"), "line 2: expected inputs such as"),
        (changed("f32[16,4]", "q32[16,4]"), "line 2: unknown dtype 'q32'"),
        (changed("f32[16,4]", "f32[16,]"), "line 2: expected a size such as|an integer"),
        (changed("f32[16,4]", "f32[16,*4]"), "line 2: expected an integer"),
        (changed("matmul(", "matnul("), "line 3: unknown op matnul"),
        (
            changed("matmul(%0, %1)", "matmul(%0, %7)"),
            "line 3: expected a node defined before, %7 is none",
        ),
        (changed("matmul(%0, %1)", "matmul(%0)"), "line 3: "),
        (changed("matmul(%0, %1)", "matmul(%1, %0)"), "line 3: matmul: inner sizes differ"),
        (changed("matmul(%0, %1)", "matmul(%0, %1, way=2)"), "line 3: .*way"),
        (changed("matmul(%0, %1)", "matmul(%0, %1"), "line 3: expected operands in parentheses"),
        (changed("matmul(%0, %1)", "matmul(%0 %1)"), "line 3: expected ',' among"),
        (changed("matmul(%0, %1)", "matmul(%0, %1) %3"), "line 3: expected nothing but a comment"),
        (changed("matmul(%0, %1)", "parameter(index=0, serial=-1)"), "line 3: structural nodes"),
        (changed("matmul(%0, %1)", "call(%0, %1)"), "line 3: "),
        (changed("matmul(%0, %1)", "call(%0, %1, graph=3)"), "line 3: "),
        (
            changed("matmul(%0, %1)", "call(%0, %1, graph=@other)"),
            "line 3: expected a graph defined before",
        ),
        (changed("matmul(%0, %1)", "item(%0, index=4)"), "line 3: "),
        (
            changed("%2: f32[seq,4] =", "%2: f32[seq,5] ="),
            r"line 3: expected the type f32\[seq,4\] that matmul gives",
        ),
        (changed("%3: f32[]", "%2: f32[]"), "line 4: expected a new number"),
        (changed("constant(-0.0)", "constant(zero)"), "line 4: expected a float"),
        (changed("constant(-0.0)", "constant(1)"), "line 4: expected a float"),
        (changed("constant(-0.0)", "constant([1.0, 2.0])"), "line 4: expected 1 numbers"),
        (changed("f32[] = constant", "i32[] = constant"), "line 4: invalid literal for int"),
        (changed("f32[] = constant(-0.0)", "u8[] = constant(256)"), "line 4: "),
        (
            changed("f32[] = constant(-0.0)", "bool[] = constant(1)"),
            "line 4: expected true or false",
        ),
        (
            changed("f32[] = constant(-0.0)", "f32[seq] = constant(-0.0)"),
            "line 4: expected a constant of static",
        ),
        (
            changed("f32[] = constant(-0.0)", "f32[99999999999] = constant(-0.0)"),
            "line 4: expected the name of",
        ),
        (
            changed("f32[] = constant(-0.0)", "f32[999999999999999999,9] = constant(-0.0)"),
            "line 4: .*2\\*\\*48",
        ),
        (
            changed("shape=(seq, 4)", "shape=" + "(" * 50 + ")" * 50),
            "line 5: expected at most 20 nested",
        ),
        (
            changed("shape=(seq, 4)", "shape=(seq, 4), shape=(seq, 4)"),
            "line 5: expected operands such as",
        ),
        (
            changed("shape=(seq, 4)", "shape=(other, 4)"),
            "line 5: expected an integer or a declared dim",
        ),
        (changed("shape=(seq, 4)", "shape=(seq; 4)"), "line 5: expected operands in parentheses"),
        (changed("shape=(seq, 4)", "shape="), "line 5: "),
        (
            changed("f32[] = constant(-0.0)", "f32[-3] = constant(-0.0)"),
            "line 4: expected sizes of at least 0",
        ),
        (changed("return %2, %5", "return %9"), "line 7: expected a node defined before"),
        (LAYER + LAYER.partition("\n")[2], "line 8: expected a new graph name"),
    ],
)
def test_bad_text_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(text)


@settings(max_examples=200)
@given(
    at=st.integers(0, len(LAYER) - 1), junk=st.text(alphabet='%()[],=:#@"\\ 0e-x*+\n', max_size=3)
)
def test_damaged_text_is_refused_or_read(at: int, junk: str) -> None:
    """Nothing but a ParseError, whatever the damage."""
    with contextlib.suppress(ParseError):
        parse(LAYER[:at] + junk + LAYER[at + 1 :])


# -- size ------------------------------------------------------------------------------------------


def test_ten_thousand_nodes() -> None:
    value = x = arg(0, f32, 4)
    for _ in range(10_000):
        value = add(value, x)
    graph = close(reshape(value, shape=(2, 2)))
    limit = sys.getrecursionlimit()
    start = time.perf_counter()
    assert parse(to_text(graph)) is graph
    structural_hash(graph)
    assert time.perf_counter() - start < 10  # about half a second on an idle machine
    assert sys.getrecursionlimit() == limit


def test_a_node_that_is_no_ones_input_still_prints() -> None:
    stray = (
        close(arg(0, f32, 2)),
        intern(REGISTRY["negative"], (arg(5, f32, 2),), (), (arg(5, f32, 2).type,), None),
    )
    text = to_text(Graph("open", stray[0].inputs, (stray[1],)))
    assert "parameter(index=5, serial=-1)" in text
