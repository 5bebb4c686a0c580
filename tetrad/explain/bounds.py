"""Explain, bounds: how far compiled code may lie from the reference evaluator, given what every op
states.

Receives nodes and the values of what they read; returns the value of each, and beside it, element
by element, the distance allowed: the op's own ULPs, the freedom of order in sums and products, and
what the operands' distances become.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tetrad.core.dtypes import DType, as_dtype, f64
from tetrad.core.op import Op
from tetrad.graph.build import call, constant, item
from tetrad.graph.evaluate import evaluate_node
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.ops.attention.op import attention
from tetrad.ops.fft.op import TRANSFORMS, scale_of
from tetrad.ops.matmul.op import is_plain, matmul
from tetrad.ops.reduce import reduce_prod, reduce_sum
from tetrad.ops.running.op import cumprod, cumsum

Dims = Mapping[str, int]
Pair = tuple[np.ndarray, np.ndarray]  # value, distance allowed (f64, inf: nothing is promised)
# additions an element passes in the canonical order of a sum: 256 in a chunk, then a tree
DEEPEST = 320


def bounded_graph(
    graph: Graph, arrays: Sequence[np.ndarray], dims: Dims, stated: bool = True
) -> list[Pair]:
    """The outputs and their distances; the inputs are exact. `stated` False: elementwise ops are
    exact as well."""
    known = {node: exact(array) for node, array in zip(graph.inputs, arrays, strict=True)}
    return bounded_nodes(graph.outputs, known, dims, stated)


def exact(array: np.ndarray) -> Pair:
    return array, np.zeros(array.shape)


def bounded_nodes(
    outputs: Sequence[Node], known: Mapping[Node, Pair], dims: Dims, stated: bool = True
) -> list[Pair]:
    held: dict[Node, list[Pair]] = {node: [pair] for node, pair in known.items()}
    for node in topological(outputs, known=known):
        operands = [held[i] for i in node.inputs]
        if node.op is call:
            inner: Graph = node.param("graph")
            given = dict(zip(inner.inputs, (pairs[0] for pairs in operands), strict=True))
            held[node] = bounded_nodes(inner.outputs, given, dims, stated)
        elif node.op is item:
            held[node] = [operands[0][node.param("index")]]
        elif has_own_results(node):
            held[node] = own_results(node, [pairs[0] for pairs in operands], dims)
        else:
            held[node] = [bounded_node(node, [pairs[0] for pairs in operands], dims, stated)]
    return [held[o][0] for o in outputs]


def has_own_results(node: Node) -> bool:
    """Loops, factors of matrices, several results: what their operands' distances become is not
    followed."""
    is_loop = node.op.kind == "structural" and node.op is not constant
    return is_loop or len(node.types) > 1 or math.inf in node.op.ulps.values()


def own_results(node: Node, operands: Sequence[Pair], dims: Dims) -> list[Pair]:
    """A loop repeats its body's distances until no bound is left that says anything: floats are
    looked at inside it. Of an op that states no distance not even integers are sure: rounding
    decides which pivot is the largest."""
    values = evaluate_node(node, [(array,) for array, _ in operands], dict(dims))
    is_free = math.inf in node.op.ulps.values()
    return [
        (v, np.full(v.shape, np.inf if is_free or is_rounded(t.dtype) else 0.0))
        for v, t in zip(values, node.types, strict=True)
    ]


def is_rounded(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_complex


def bounded_node(node: Node, operands: Sequence[Pair], dims: Dims, stated: bool) -> Pair:
    arrays = [array for array, _ in operands]
    (value,) = evaluate_node(node, [(a,) for a in arrays], dict(dims))
    moved = any(distance.any() for _, distance in operands)
    if not is_rounded(node.type.dtype):
        return value, inherited(node, operands, value, dims) if moved else np.zeros(value.shape)
    with np.errstate(all="ignore"):
        distance = own_distance(node, operands, value, dims, stated)
        if moved:
            distance = distance + passed_on(node, operands, value, dims)
    return value, np.where(np.isnan(distance), np.inf, distance)


# -- what an op adds of its own --------------------------------------------------------------------


def own_distance(
    node: Node, operands: Sequence[Pair], value: np.ndarray, dims: Dims, stated: bool
) -> np.ndarray:
    op, dtype = followed(node), node.type.dtype
    if op in TRANSFORMS:
        return line_distance(node, value)
    kinds = [dtype, *(as_dtype(a.dtype) for a, _ in operands if a.dtype.kind == "c")]
    # NumPy's own loops over complex numbers round as memory lies
    stated |= any(kind.is_complex for kind in kinds)
    units = max(node.op.ulps.get(kind, 0) for kind in kinds) if stated else 0
    if units == math.inf:
        return np.full(value.shape, np.inf)
    distance = units * spacing(value)
    if op in SUMS:
        depth, magnitude = SUMS[op](node, [np.abs(wide(a)) for a, _ in operands], dims)
        distance = distance + depth * terms(dtype) * epsilon(dtype) * magnitude
        # halves round once more at the end
        distance = distance + (spacing(value) if dtype.bits < 32 else 0)
    if op in (reduce_prod, cumprod):
        given = operands[0][0]
        count = (
            given.shape[node.param("axis")] if op is cumprod else given.size // max(value.size, 1)
        )
        distance = distance + 2 * count * terms(dtype) * epsilon(dtype) * np.abs(wide(value))
    return distance


def followed(node: Node) -> Op | None:
    """The op; of a product with a weight none, as its sums are not followed."""
    return None if node.op is matmul and not is_plain(node) else node.op


def terms(dtype: DType) -> int:
    """Products and sums of two complex numbers are several of their parts."""
    return 4 if dtype.is_complex else 1


def line_distance(node: Node, value: np.ndarray) -> np.ndarray:
    """A transform states the size of a line's error, and any element may have all of it; so may
    NumPy's."""
    axis, units = node.param("axis"), 2 * node.op.ulps[node.type.dtype]
    size = np.sqrt(np.sum(np.abs(wide(value)) ** 2, axis, keepdims=True))
    return np.asarray(np.broadcast_to(units * 2 * epsilon(node.type.dtype) * size, value.shape))


def sum_magnitude(node: Node, sizes: list[np.ndarray], dims: Dims) -> tuple[float, np.ndarray]:
    axes = node.param("axes")
    count = math.prod(sizes[0].shape[a] for a in axes)
    return min(count, DEEPEST) + count, np.sum(sizes[0], axes)  # ours, and NumPy's at its worst


def matmul_magnitude(node: Node, sizes: list[np.ndarray], dims: Dims) -> tuple[float, np.ndarray]:
    return 2.0 * sizes[0].shape[-1], np.asarray(np.matmul(*sizes))


def cumsum_magnitude(node: Node, sizes: list[np.ndarray], dims: Dims) -> tuple[float, np.ndarray]:
    axis = node.param("axis")
    return 2.0 * sizes[0].shape[axis], np.cumsum(sizes[0], axis)


def attention_magnitude(
    node: Node, sizes: list[np.ndarray], dims: Dims
) -> tuple[float, np.ndarray]:
    """A score is off by units of sum |q| |k|, its weight by as much of itself; weights add up to
    one."""
    q, k, v = sizes[:3]
    key_scale, value_scale = (np.max(scale) for scale in sizes[6:]) if sizes[6:] else (1.0, 1.0)
    score = np.max(np.sum(q, -1), initial=0.0) * np.max(k) * key_scale * abs(node.param("scale"))
    depth = 2 * (q.shape[-1] + 4) * score + v.shape[-2]
    return float(depth), np.full(q.shape, np.max(v) * value_scale)


# Ops that add in an order of their own: (additions an element passes, sum of what is added without
# signs).
SUMS = {
    reduce_sum: sum_magnitude,
    matmul: matmul_magnitude,
    cumsum: cumsum_magnitude,
    attention: attention_magnitude,
}


def epsilon(dtype: DType) -> float:
    """Of the type that accumulates: halves do so in f32."""
    return 2.0**-53 if dtype.real is f64 else 2.0**-24


def spacing(value: np.ndarray) -> np.ndarray:
    """One unit in the last place of each element; infinities and NaN have none."""
    units = np.spacing(np.abs(value)).astype(np.float64)
    return np.where(np.isfinite(units), units, 0.0)


def wide(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.complex128 if array.dtype.kind == "c" else np.float64)


# -- what the operands' distances become -----------------------------------------------------------


def passed_on(node: Node, operands: Sequence[Pair], value: np.ndarray, dims: Dims) -> np.ndarray:
    op = followed(node)
    (array, distance), rest = operands[0], operands[1:]
    if op is reduce_sum:
        return np.asarray(np.sum(distance, node.param("axes")))
    if op is cumsum:
        return np.asarray(np.cumsum(distance, node.param("axis")))
    if op in TRANSFORMS:
        return line_passed_on(node, distance, value)
    if op is matmul:
        (other, also), a = rest[0], np.abs(wide(array))
        b = np.abs(wide(other))
        return np.asarray(np.matmul(a, also) + np.matmul(distance, b) + np.matmul(distance, also))
    # a result that rounds the other way
    flips = spacing(value) if node.op.kind != "movement" else 0.0
    return inherited(node, operands, value, dims) + flips


def line_passed_on(node: Node, distance: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Every element of a line adds to every other; of half a spectrum twice."""
    params = dict(node.params)
    axis, n = params["axis"], params.get("n", distance.shape[params["axis"]])
    inverse = params.get("inverse", "n" in params)
    total = np.sum(distance, axis, keepdims=True) * scale_of(params["norm"], n, inverse=inverse)
    return np.asarray(np.broadcast_to(total * (2 if "n" in params else 1), value.shape))


def inherited(node: Node, operands: Sequence[Pair], value: np.ndarray, dims: Dims) -> np.ndarray:
    """How much the result changes when each operand goes to the ends of its distance, one operand
    after the other."""
    total = np.zeros(value.shape)
    for position, (array, distance) in enumerate(operands):
        if not distance.any():
            continue
        if array.dtype.kind in "iub":  # which value it would be instead is not known
            touched = distance > 0
            alike = node.op.kind == "elementwise" and touched.shape in (value.shape, ())
            return total + np.where(touched if alike else True, np.inf, 0.0)
        step = np.where(distance > 0, np.maximum(distance, spacing(array)), 0.0)
        steps = (step, -step, 1j * step, -1j * step) if array.dtype.kind == "c" else (step, -step)
        ends = [wide(array) + each for each in steps]
        arrays = [[a for a, _ in operands] for _ in ends]
        for given, end in zip(arrays, ends, strict=True):
            given[position] = end.astype(array.dtype)
        results = (evaluate_node(node, [(a,) for a in given], dict(dims))[0] for given in arrays)
        most = np.max([apart(result, value) for result in results], 0)
        total = total + (math.sqrt(2) * most if array.dtype.kind == "c" else most)
    return total


def apart(result: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Absolute distance; what changes between finite and not, or is no float, is infinitely far."""
    if value.dtype.kind in "iub":
        return np.where(result == value, 0.0, np.inf)
    a, b = wide(result), wide(value)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        return np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
