"""What graph and pass tests share: inputs, closing nodes into a graph, bit-for-bit comparison, and
random graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tetrad.core.dtypes import DType, bool_, f16, f32, f64, i32, u8
from tetrad.core.op import REGISTRY
from tetrad.core.sizes import Size, bind
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_constant, make_graph, make_parameter, parameter
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.ops.cases import random_array
from tetrad.ops.compare import logical_not, where
from tetrad.ops.convert import cast
from tetrad.ops.movement import concat, expand, pad, reshape, slice_, transpose
from tetrad.ops.reduce import reduce_sum

DTYPES = (f32, f16, f64, i32, u8, bool_)
NUMERIC = ("add", "subtract", "multiply", "maximum", "minimum")
UNARY = ("negative", "abs", "square")
COMPARE = ("less", "equal", "greater_equal")


def arg(index: int, dtype: DType, *shape: Size) -> Node:
    return make_parameter(ArrayType(dtype, shape), index)


def close(*outputs: Node, name: str = "main") -> Graph:
    """The graph of these outputs; its inputs are the parameters found, which must be numbered from
    0 without gaps."""
    found = {n for n in topological(outputs) if n.op is parameter}
    inputs = sorted(found, key=lambda n: int(n.param("index")))
    assert [n.param("index") for n in inputs] == list(range(len(inputs)))
    return make_graph(name, inputs, outputs)


def random_inputs(graph: Graph, seed: int, dims: dict[str, int] | None = None) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [tuple(bind(size, dims or {}) for size in p.type.shape) for p in graph.inputs]
    return [
        random_array(rng, p.type.dtype, s, special=0.3)
        for p, s in zip(graph.inputs, shapes, strict=True)
    ]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit; the payload and sign of a NaN are free."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    nan = np.isnan(a) & np.isnan(b)
    bits = f"u{a.dtype.itemsize}"
    same = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    return bool((same.reshape(a.shape) | nan).all())


def assert_same_result(
    before: Graph, after: Graph, seed: int = 0, dims: dict[str, int] | None = None
) -> None:
    inputs = random_inputs(before, seed, dims)
    for old, new in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        assert same_bits(old, new), f"{before}\n->\n{after}\n{inputs}\n{old}\n{new}"


def count(graph: Graph, op: Any) -> int:
    return sum(node.op is op for node in graph.nodes())


# -- random graphs ---------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn, steps: int = 8) -> Graph:
    """A graph of movement and elementwise ops on a few inputs and constants, two outputs."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.sampled_from((0, 1, 1, 2, 3)), min_size=0, max_size=3)))
    nodes = [arg(0, dtype, *shape), arg(1, dtype, *shape), arg(2, f32, 2, 3)]
    for _ in range(draw(st.integers(1, steps))):
        nodes.append(draw(st.sampled_from(STEPS))(draw, nodes))
    outputs = [nodes[-1], draw(st.sampled_from(nodes))]
    return make_graph("random", nodes[:3], outputs)


def pick(draw: st.DrawFn, nodes: Sequence[Node], like: Node | None = None) -> Node:
    return draw(st.sampled_from([n for n in nodes if like is None or n.type == like.type]))


def grow_constant(draw: st.DrawFn, nodes: list[Node]) -> Node:
    kind = pick(draw, nodes).type
    value = draw(st.sampled_from((0, 1, 2, -1, -0.0, 0.5, 4, float("nan"), float("inf"))))
    if not kind.dtype.is_float:
        value = abs(int(value)) if np.isfinite(value) else 1
    scalar = make_constant(np.asarray(value, kind.dtype.np))
    if draw(st.booleans()):
        return expand(scalar, shape=kind.shape)
    rng = np.random.default_rng(draw(st.integers(0, 3)))
    return make_constant(random_array(rng, kind.dtype, kind.shape))


def grow_binary(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    y = pick(draw, nodes, x)
    if x.type.dtype is bool_:
        return REGISTRY[draw(st.sampled_from(("logical_and", "logical_or")))](x, y)
    names = (*NUMERIC, "divide") if x.type.dtype.is_float else NUMERIC
    return REGISTRY[draw(st.sampled_from(names))](x, y)


def grow_unary(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    if x.type.dtype is bool_:
        return logical_not(x)
    return REGISTRY[draw(st.sampled_from(UNARY))](x)


def grow_choice(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    y = pick(draw, nodes, x)
    test = x if x.type.dtype is bool_ else REGISTRY[draw(st.sampled_from(COMPARE))](x, y)
    return where(test, x, y)


def grow_cast(draw: st.DrawFn, nodes: list[Node]) -> Node:
    return cast(pick(draw, nodes), dtype=draw(st.sampled_from(DTYPES)))


def grow_transpose(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    return transpose(x, perm=tuple(draw(st.permutations(range(x.type.rank)))))


def grow_reshape(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    shapes = [
        (x.type.size,),
        (*x.type.shape, 1),
        (1, *x.type.shape),
        tuple(n for n in x.type.shape if n != 1),
    ]
    shapes.append(tuple(reversed(x.type.shape)))
    return reshape(x, shape=draw(st.sampled_from(shapes)))


def grow_expand(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    grown = tuple(draw(st.sampled_from((1, 2, 3))) if n == 1 else n for n in x.type.shape)
    return expand(
        x, shape=(*draw(st.sampled_from([(), (1,), (2,)] if x.type.rank < 4 else [()])), *grown)
    )


def grow_slice(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    cuts = [draw(cut(int(n))) for n in x.type.shape]  # type: ignore[arg-type]
    starts, sizes, steps = (tuple(c[i] for c in cuts) for i in range(3))
    return slice_(x, starts=starts, sizes=sizes, steps=steps)


def cut(size: int) -> st.SearchStrategy[tuple[int, int, int]]:
    whole = [(0, size, 1)]
    if size > 0:
        whole += [
            (size - 1, size, -1),
            (0, 1, 1),
            (size - 1, 1, 1),
            (0, -(-size // 2), 2),
            (0, size - 1, 1),
        ]
    return st.sampled_from(whole)


def grow_concat(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, [n for n in nodes if n.type.rank > 0])  # one of the inputs always is
    parts = [pick(draw, nodes, x) for _ in range(draw(st.integers(1, 3)))]
    return concat(*parts, axis=draw(st.integers(0, x.type.rank - 1)))


def grow_pad(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    low, high = (tuple(draw(st.integers(0, 1)) for _ in x.type.shape) for _ in range(2))
    return pad(x, low=low, high=high, value=draw(st.sampled_from((0, 1))))


def grow_sum(draw: st.DrawFn, nodes: list[Node]) -> Node:
    x = pick(draw, nodes)
    axes = tuple(axis for axis in range(x.type.rank) if draw(st.booleans()))
    return reduce_sum(x, axes=axes) if axes and x.type.dtype is not bool_ else x


STEPS = (
    grow_constant, grow_constant, grow_binary, grow_binary, grow_unary, grow_choice, grow_cast,
    grow_transpose,
    grow_reshape, grow_expand, grow_expand, grow_slice, grow_slice, grow_concat, grow_pad, grow_sum,
)  # fmt: skip
