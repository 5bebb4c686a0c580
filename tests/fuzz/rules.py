"""Every rewrite rule on operands of every kind: the examples of a rule in other element types and
with Dims for sizes.

`check(seed)` takes one rule and one way to change its example; None means that the rule, alone and
with all others, keeps types and meaning, or that no op of the example takes such operands. Rules
that fire on any constant also meet the bytes of quantised blocks, equal and not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graph.graphs import arg, close, random_inputs, same_bits
from tests.passes.examples import DIMS, EXAMPLES
from tetrad.compiler.pipeline import optimise
from tetrad.core.dtypes import (
    DType,
    bf16,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    u4,
    u8,
    u64,
)  # fmt: skip
from tetrad.core.errors import CompileError, TetradError
from tetrad.core.sizes import Dim, SizeExpr
from tetrad.core.types import ArrayType
from tetrad.graph.build import apply, constant, make_constant, make_graph, make_parameter, parameter
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph, Node
from tetrad.graph.verify import verify
from tetrad.ops.complex import join, part
from tetrad.ops.groups.op import dequantize_groups, reduce_groups
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import copy, stop_gradient, transpose
from tetrad.ops.quantized.op import dequantize, lowbit_rows, quantize_rows
from tetrad.passes.rewrite import Rule, Rules
from tetrad.passes.simplify import simplify
from tetrad.quant.format import format_named
from tetrad.quant.lanes import DTYPES, LANES

KINDS: tuple[DType, ...] = (f32, f64, f16, bf16, i8, i32, i64, u8, u64, bool_, c64, c128)
RULES: dict[str, Rule] = {rule.name: rule for rule in simplify.rules}
other = Dim("other", max=64)
SIZES = {**DIMS, "other": 3}
ROWS, COLUMNS = 32, 256


def check(seed: int) -> str | None:
    rng = np.random.default_rng(seed)
    name = list(RULES)[seed % len(RULES)]
    graph = varied(rng, name)
    return None if graph is None else broken(rng, RULES[name], graph, f"seed {seed}, rule {name}")


def varied(rng: np.random.Generator, name: str) -> Graph | None:
    """An example of the rule, changed; None where an op does not take what it would be given."""
    if name in GROUPS:
        return close(on_groups(rng, name))
    if name in BLOCKS or rng.random() < 0.15:
        return close(on_blocks(rng))
    examples = EXAMPLES[name] if name in EXAMPLES else [close(node) for node in PARTS[name]]
    graph = examples[rng.integers(len(examples))]
    dtype = None if rng.random() < 0.2 else KINDS[rng.integers(len(KINDS))]
    try:
        made = retyped(graph, dtype, by_dims(rng, graph))
        evaluate(made, random_inputs(made, 0, SIZES), SIZES)
    except (TetradError, TypeError, ValueError, OverflowError):
        return None
    return made


def broken(rng: np.random.Generator, rule: Rule, graph: Graph, place: str) -> str | None:
    """What is wrong with the graph that the rule alone, all rules, or all passes make of this
    one."""
    inputs = random_inputs(graph, int(rng.integers(1 << 30)), SIZES)
    want = evaluate(graph, inputs, SIZES)
    for name, run in (
        ("alone", only(rule).apply),
        ("with all", simplify.apply),
        ("all passes", optimise),
    ):
        try:
            made: Graph = run(graph)
            verify(made)
        except (CompileError, TypeError, ValueError, KeyError) as error:
            return f"{place}, {name}: {type(error).__name__}: {error}\n{graph}"
        if [o.type for o in made.outputs] != [o.type for o in graph.outputs]:
            return f"{place}, {name}: types differ\n{graph}\n->\n{made}"
        is_exact = rule.licence is None and not any(LICENSED & {n.op.name for n in graph.nodes()})
        found = evaluate(made, inputs, SIZES)
        same = is_close if any(map(is_complex_product, graph.nodes())) else same_bits
        if is_exact and not all(same(a, b) for a, b in zip(want, found, strict=True)):
            return f"{place}, {name}: {want} became {found} for {inputs}\n{graph}\n->\n{made}"
    return None


LICENSED = {"pow"}  # ops that a rule may make more exact


def is_complex_product(node: Node) -> bool:
    """NumPy adds up the parts of its sums in an order that depends on the shapes."""
    return node.op is matmul and node.type.dtype.is_complex


def is_close(a: np.ndarray, b: np.ndarray) -> bool:
    """Of numbers that are finite on both sides, as infinite parts meet in another order."""
    finite = np.isfinite(a) & np.isfinite(b)
    return a.shape == b.shape and np.allclose(a[finite], b[finite], rtol=1e-4, atol=1e-4)


def only(rule: Rule) -> Rules:
    alone = Rules("alone")
    alone.rule(*rule.patterns, licence=rule.licence)(rule.action)
    return alone


# -- other types -----------------------------------------------------------------------------------


def retyped(graph: Graph, dtype: DType | None, sizes: dict[int, SizeExpr]) -> Graph:
    """The graph with this element type in place of that of its inputs, and other sizes."""
    given = {p.type.dtype for p in graph.inputs} or {
        n.type.dtype for n in graph.nodes() if n.op is constant
    }
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        kind = dtype if dtype is not None and node.type.dtype in given else node.type.dtype
        done[node] = rebuilt(node, kind, sizes, [done[i] for i in node.inputs])
    return make_graph(graph.name, [done[p] for p in graph.inputs], [done[o] for o in graph.outputs])


def rebuilt(node: Node, dtype: DType, sizes: dict[int, SizeExpr], inputs: list[Node]) -> Node:
    if node.op is parameter:
        shape = tuple(sizes.get(n, n) for n in node.type.shape)  # type: ignore[call-overload]
        return make_parameter(ArrayType(dtype, shape), node.param("index"))
    if node.op is constant:
        with np.errstate(all="ignore"):
            return make_constant(node.param("value").held.astype(dtype.np))
    params = {name: resized(name, value, sizes) for name, value in node.params}
    made: Node = apply(node.op, inputs, params)
    return made


def by_dims(rng: np.random.Generator, graph: Graph) -> dict[int, SizeExpr]:
    """One of the sizes as a Dim."""
    known = sorted(
        {
            n
            for p in graph.inputs
            for n in p.type.shape
            if isinstance(n, int) and n == SIZES["other"]
        }
    )
    return {known[0]: other} if known and rng.random() < 0.5 else {}


def resized(name: str, value: Any, sizes: dict[int, SizeExpr]) -> Any:
    return tuple(sizes.get(n, n) for n in value) if name in ("shape", "sizes") else value


# -- kinds that the examples do not have -----------------------------------------------------------


def part_of_joined() -> list[Node]:
    re, im = arg(0, f32, 2, 3), arg(1, f32, 2, 3)
    return [part(join(re, im), which=which) for which in (0, 1)]


def joined_again() -> list[Node]:
    z = arg(0, c64, 2, 3)
    return [join(part(z, which=0), part(z, which=1))]


PARTS = {"parts.part_of_joined": part_of_joined(), "parts.joined_again": joined_again()}


def on_blocks(rng: np.random.Generator) -> Node:
    """An op on a constant of quantised blocks, all of whose bytes may be equal."""
    name = list(LANES)[rng.integers(len(LANES))]
    packed = format_named(name).packed_shape((ROWS, COLUMNS))
    raw = (
        np.full(packed, rng.choice([0, 1, 17]), np.uint8)
        if rng.random() < 0.6
        else small_bytes(rng, packed)
    )
    w = make_constant(LANES[name].interleave(raw), ArrayType(DTYPES[name], (ROWS, COLUMNS)))
    x = arg(0, f32, 3, COLUMNS)
    users = (
        lambda: matmul(x, transpose(dequantize(w), perm=(1, 0))),
        lambda: matmul(arg(0, f32, 3, ROWS), dequantize(w)),
        lambda: matmul(x, w, transposed=True),
        lambda: matmul(quantize_rows(x), w, transposed=True),
        lambda: dequantize(copy(w, which=0)),
        lambda: dequantize(stop_gradient(w)),
        lambda: lowbit_rows(w, make_constant(rng.integers(0, ROWS, 4).astype(np.int32))),
        lambda: w,
    )
    return users[rng.integers(len(users))]()


def small_bytes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Bytes below 64: as halves they are small numbers, never NaN."""
    return rng.integers(0, 64, shape).astype(np.uint8)


BLOCKS = ("quantized.read_weight_in_place", "quantized.read_columns_in_place")
GROUPS = {rule for rule in RULES if rule.startswith("groups.")}


def on_groups(rng: np.random.Generator, name: str) -> Node:
    """What a rule of weights in groups looks for: in groups that lie along rows, or do not."""
    group, rows, columns = (int(rng.choice(of)) for of in ((32, 64, 24), (3, 32), (64, 96)))
    count = -(-rows * columns // group)
    packed = rng.integers(0, 256, rows * columns // 2).astype(np.uint8)
    codes = make_constant(packed, ArrayType(u4, (rows, columns)))
    is_affine = "affine" in name
    scheme = "int4" if is_affine else str(rng.choice(["int4_symmetric", "nf4"]))
    zero = (make_constant(rng.integers(0, 16, count).astype(np.float32)),) if is_affine else ()
    if "read" in name:
        scale = make_constant(rng.random(count, dtype=np.float32))
        numbers = dequantize_groups(codes, scale, *zero, scheme=scheme, group=group, dtype=f32)
        return matmul(arg(0, f32, other, columns), transpose(numbers, perm=(1, 0)))
    a, b = arg(0, f32, rows, 5), arg(1, f32, 5, columns)
    product = matmul(a, b)
    if "transposed" in name:
        turned = [transpose(x, perm=(1, 0)) for x in (b, a)]
        product = transpose(matmul(*turned), perm=(1, 0))
    return reduce_groups(product, codes, *zero, scheme=scheme, group=group, lead=0)
