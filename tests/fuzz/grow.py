"""Growing random programs: a seed in, a `Program` out.

Elementwise ops and reductions are taken from the registry, so a new one is used on the day it is
written; ops with settings that depend on shapes have a grower here; any other op is fed with the
operands of its own cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import tetrad.ops  # noqa: F401  (fills the registry)
from tests.fuzz.program import Leaf, Program, Step, pruned
from tests.fuzz.transforms import TRANSFORMS
from tetrad.core.dtypes import (
    DType,
    as_dtype,
    bf16,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from tetrad.core.op import REGISTRY, Op
from tetrad.core.sizes import Dim, Shape, Size, SizeExpr, product
from tetrad.core.types import ArrayType
from tetrad.ops.cases import pick
from tetrad.ops.rules import ANY_NUMBERS, EVERY, INDICES, INTS

Rng = np.random.Generator
DTYPES = (f32,) * 10 + (
    f64, f64, i32, i32, i64, u8, u8, u32, u32, bool_, f16, bf16, i8, i16, u16, u64, u64, c64, c64,
    c128,
)  # fmt: skip
SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 11, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65)
LONG = (100, 127, 255, 256, 257, 300, 4095, 4096, 4097, 5000)
ROOM, WIDE_ROOM = 1500, 9000  # elements of an item, of one in a large program
TRANSFORMED = 0.1  # share of programs that are also differentiated or batched
LINE = 40  # steps the evaluator takes one after the other: running sums, contractions
# ops that refuse an empty axis
SETTLED = ("argmax", "argmin", "reduce_max", "reduce_min", "gather")
# of their last operand, also that of a NaN, which is nobody's promise
SHOW_SIGN = ("signbit", "copysign")
# The size of their code is many times that of other functions (huge arguments, tables), and so is
# the time to compile.
DEAR = {"tan": 40, "sin": 12, "cos": 12, "pow": 6, "erfc": 4, "remainder": 3, "floor_divide": 3}


def grow(seed: int) -> Program:
    rng = np.random.default_rng(seed)
    program = Grower(rng, seed).grow()
    return program


class Grower:
    """A program being grown: its items, their types, and what may become of them."""

    def __init__(self, rng: Rng, seed: int) -> None:
        self.rng, self.seed = rng, seed
        self.items: list[Leaf | Step] = []
        self.types: list[ArrayType] = []
        self.room = WIDE_ROOM if rng.random() < 0.04 else ROOM
        self.dim: SizeExpr | None = (
            Dim("n", max=int(pick(rng, (33, 64, 300)))) if rng.random() < 0.15 else None
        )
        self.home = pick(rng, DTYPES)
        self.in_line = False  # growers take the last item rather than any

    def grow(self) -> Program:
        for _ in range(int(self.rng.integers(1, 4))):
            self.leaf(self.dtype(), self.shape())
        wanted = (
            1
            + int(self.rng.integers(0, 4))
            + int(self.rng.integers(0, 8) * (self.rng.random() < 0.5))
        )
        tries = 0
        while sum(isinstance(i, Step) for i in self.items) < wanted and tries < 60:
            tries += 1
            before = len(self.items)
            pick(self.rng, GROWERS)(self)
            if any(self.weight(t.shape) > self.room for t in self.types[before:]):
                del self.items[before:], self.types[before:]
        return self.finished()

    def finished(self) -> Program:
        rng = self.rng
        steps = [i for i, item in enumerate(self.items) if isinstance(item, Step)]
        outputs = [steps[-1] if steps else len(self.items) - 1]
        while rng.random() < 0.4 and len(outputs) < 4:
            anything = not steps or rng.random() < 0.1
            outputs.append(int(rng.integers(len(self.items)) if anything else pick(rng, steps)))
        program = pruned(
            Program(
                tuple(self.items), tuple(outputs), seed=self.seed, via_jit=bool(rng.random() < 0.1)
            )
        )
        program = self.anchored(program)
        program = replace(program, bindings=self.bindings(program))
        program = self.grouped(program) if rng.random() < 0.2 else program
        return (
            replace(program, transform=pick(rng, TRANSFORMS))
            if rng.random() < TRANSFORMED
            else program
        )

    def anchored(self, program: Program) -> Program:
        """A Dim gets its value from an argument: where none that is needed has it, one more is
        returned as it is."""
        leaves = [item for item in program.items if isinstance(item, Leaf)]
        if self.dim is None or any(isinstance(n, SizeExpr) for leaf in leaves for n in leaf.shape):
            return program
        items = (*program.items, Leaf(f32, (self.dim,), self.seed % 1000))
        return replace(program, items=items, outputs=(*program.outputs, len(items) - 1))

    def bindings(self, program: Program) -> tuple[dict[str, int], ...]:
        if self.dim is None:
            return ({},)
        most = self.dim.max
        refuses = any(
            i.op in SETTLED if isinstance(i, Step) else i.below != 1 for i in program.items
        )
        sizes = [n for n in (1, 2, 3, 7, 16, 17, 31, 33, most) if n <= most] + (
            [] if refuses else [0]
        )
        first, second = (int(n) for n in self.rng.choice(sizes, 2, replace=False))
        return ({"n": first}, {"n": second})

    def grouped(self, program: Program) -> Program:
        """One or two runs of steps as sub-graphs that are called."""
        items = list(program.items)
        for group in range(1, 1 + int(self.rng.integers(1, 3))):
            start = int(self.rng.integers(len(items)))
            for i in range(start, min(len(items), start + int(self.rng.integers(2, 6)))):
                item = items[i]
                if isinstance(item, Step) and not item.group:
                    items[i] = replace(item, group=group)
        return replace(program, items=tuple(items))

    # -- choices -----------------------------------------------------------------------------------

    def dtype(self) -> DType:
        return self.home if self.rng.random() < 0.6 else pick(self.rng, DTYPES)

    def shape(self) -> Shape:
        """Rank 0 to 4, some sizes from the edges of vectors and chunks, few of them large,
        sometimes a Dim or 0."""
        rng, shape = self.rng, []
        for _ in range(int(rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))):
            sizes = LONG if rng.random() < 0.06 else SIZES
            fits = [n for n in sizes if n * self.weight(tuple(shape)) <= self.room]
            shape.append(int(pick(rng, fits)) if fits else 1)
        if shape and rng.random() < 0.03:
            shape[int(rng.integers(len(shape)))] = 0
        if shape and self.dim is not None and rng.random() < 0.7:
            axis = int(rng.integers(len(shape)))
            shape = [min(n, 4) if isinstance(n, int) else n for n in shape]
            shape[axis] = pick(rng, (self.dim, self.dim, self.dim * 2, self.dim + 1))
        return tuple(
            int(n) if not isinstance(n, SizeExpr) else n
            for n in rng.permutation(np.array(shape, object))
        )

    def weight(self, shape: Shape) -> int:
        """Elements, a Dim counted as the largest size it is run with."""
        total = product(shape)
        return total if isinstance(total, int) else total.max // 4

    def node(self, want: Callable[[ArrayType], bool] = lambda _: True) -> int | None:
        """An item, rather a late one."""
        fits = [i for i, t in enumerate(self.types) if want(t)]
        if not fits:
            return None
        if self.in_line and fits[-1] == len(self.types) - 1:
            return fits[-1]
        weights = np.array([1.0 + i for i in range(len(fits))])
        return int(self.rng.choice(fits, p=weights / weights.sum()))

    # -- items -------------------------------------------------------------------------------------

    def add(self, item: Leaf | Step, kind: ArrayType) -> int:
        self.items.append(item)
        self.types.append(kind)
        return len(self.items) - 1

    def leaf(self, dtype: DType, shape: Shape, **fields: Any) -> int:
        special = 0.2 if self.rng.random() < (1.0 if dtype.kind == "u" else 0.3) else 0.0
        wide = dtype in (f32, f64, i32, i64, u32, u64) and self.rng.random() < 0.05
        fill = {"fill": "ties"} if wide else {"special": special}
        settings = {"seed": int(self.rng.integers(1 << 30)), **fill, **fields}
        if (
            all(isinstance(n, int) for n in (*shape, fields.get("below", 1)))
            and self.rng.random() < 0.15
        ):
            settings["constant"] = True
        return self.add(Leaf(dtype, shape, **settings), ArrayType(dtype, shape))

    def step(self, op: Op | str, *operands: int, **params: Any) -> int:
        found = REGISTRY[op] if isinstance(op, str) else op
        kind = found.type(*(self.types[i] for i in operands), **params)
        return self.add(Step(found.name, tuple(operands), params), kind)

    def operand(self, dtype: DType, shape: Shape) -> int:
        """An item of this type: there, cast, broadcast, or new."""
        kind, roll = ArrayType(dtype, shape), self.rng.random()
        if roll < 0.55 and (found := self.node(lambda t: t == kind)) is not None:
            return found
        if roll < 0.75 and (found := self.node(lambda t: t.shape == shape)) is not None:
            return self.as_dtype(found, dtype)
        if roll < 0.85:
            return self.expanded(self.number(dtype), shape)
        small = self.smaller(shape)
        found = self.node(lambda t: t == ArrayType(dtype, small))
        return self.expanded(self.leaf(dtype, small) if found is None else found, shape)

    def number(self, dtype: DType) -> int:
        fields = {"seed": int(self.rng.integers(1 << 20)), "fill": "number", "constant": True}
        return self.add(Leaf(dtype, (), **fields), ArrayType(dtype, ()))  # type: ignore[arg-type]

    def expanded(self, i: int, shape: Shape) -> int:
        return i if self.types[i].shape == shape else self.step("expand", i, shape=shape)

    def as_dtype(self, i: int, dtype: DType) -> int:
        if self.types[i].dtype.is_complex and not (dtype.is_complex or dtype is bool_):
            i = self.step(pick(self.rng, ("real", "imag", "abs")), i)
        return i if self.types[i].dtype is dtype else self.step("cast", i, dtype=dtype)

    def reshaped(self, i: int, shape: Shape) -> int:
        return i if self.types[i].shape == shape else self.step("reshape", i, shape=shape)

    def smaller(self, shape: Shape) -> Shape:
        """A shape that broadcasts to `shape`."""
        if self.rng.random() < 0.4:
            return shape
        start = int(self.rng.integers(0, len(shape) + 1))
        return tuple(1 if self.rng.random() < 0.4 else n for n in shape[start:])


# -- growers ---------------------------------------------------------------------------------------


def elementwise(g: Grower) -> None:
    """An op of the registry with the dtypes of one of its cases, on items of one shape."""
    base = g.node()
    assert base is not None
    ops, weights = elementwise_ops()
    for _ in range(6):
        op = ops[int(g.rng.choice(len(ops), p=weights))]
        case = op.cases(g.rng)  # type: ignore[misc]
        dtypes = [as_dtype(a.dtype) for a in case.args]
        if g.types[base].dtype in dtypes:
            break
    # its error has no bound that holds for every exponent
    if op.name == "pow" and dtypes[0].is_complex:
        return
    first = True
    operands = []
    for dtype in dtypes:
        here = first and dtype is g.types[base].dtype
        first = first and not here
        operands.append(base if here else g.operand(dtype, g.types[base].shape))
    # x < x tells little
    if len(operands) > 1 and operands[-1] == operands[-2] and g.rng.random() < 0.8:
        operands[-1] = g.leaf(dtypes[-1], g.types[base].shape)
    if op.name == "pow" and dtypes[1] in INTS:  # a negative exponent is an error when eager
        operands[1] = g.step(
            "bitwise_and", operands[1], g.expanded(seven(g, dtypes[1]), g.types[base].shape)
        )
    if op.name in SHOW_SIGN and dtypes[-1].is_float:
        operands[-1] = without_nan(g, operands[-1])
    g.step(op, *operands, **case.params)


def without_nan(g: Grower, i: int) -> int:
    """1 for every NaN."""
    kind = g.types[i]
    one = g.add(Leaf(kind.dtype, (), 1, "number", constant=True), ArrayType(kind.dtype, ()))
    return g.step("where", g.step("isnan", i), g.expanded(one, kind.shape), i)


def seven(g: Grower, dtype: DType) -> int:
    return g.step(
        "cast", g.add(Leaf(f32, (), 7, "number", constant=True), ArrayType(f32, ())), dtype=dtype
    )


def elementwise_ops() -> tuple[list[Op], np.ndarray]:
    """Without those that refuse most operands a random program has."""
    found = (o for o in REGISTRY.values() if o.kind == "elementwise" and o.cases is not None)
    return weighted(tuple(o for o in found if o.may_fail is not True))


@cache
def weighted(ops: tuple[Op, ...]) -> tuple[list[Op], np.ndarray]:
    """Cheap ones more often: they compile quickly, and more of them fuse."""
    weights = np.array([1 / (1 + o.cost / 6) / DEAR.get(o.name, 1) for o in ops])
    return list(ops), weights / weights.sum()


def reduction(g: Grower) -> None:
    op = pick(g.rng, [o for o in REGISTRY.values() if o.kind == "reduce"])
    base = g.node(
        lambda t: t.rank > 0 and t.dtype in op.dtypes and (op.name not in SETTLED or t.size != 0)
    )
    if base is None:
        return
    rank = g.types[base].rank
    trailing = g.rng.random() < 0.5
    count = int(g.rng.integers(1, rank + 1))
    axes = (
        range(rank - count, rank) if trailing else sorted(g.rng.choice(rank, count, replace=False))
    )
    if len(axes) < rank and not trailing and math.prod(limited(g, base, axes)) > 600:
        return
    g.step(op, base, axes=tuple(int(a) for a in axes))


def limited(g: Grower, base: int, axes: Any) -> list[int]:
    return [n if isinstance(n, int) else n.max for n in (g.types[base].shape[a] for a in axes)]


def transpose(g: Grower) -> None:
    """Often of three or four axes: with fewer, a permutation is its own inverse. The last axis may
    stay: other code."""
    base = g.node(lambda t: t.rank > 1)
    if g.rng.random() < 0.3 and not g.in_line:
        base = block(g)
    if base is not None:
        rank = g.types[base].rank
        stay = (rank - 1,) if g.rng.random() < 0.4 else ()
        g.step(
            "transpose", base, perm=(*(int(p) for p in g.rng.permutation(rank - len(stay))), *stay)
        )


def block(g: Grower) -> int:
    """A small array with three or four axes, none of size 1."""
    return g.leaf(g.dtype(), tuple(int(n) for n in g.rng.integers(2, 8, int(g.rng.integers(3, 5)))))


def reshape(g: Grower) -> None:
    """Axes joined, split, dropped or added; symbolic ones only joined or moved along whole."""
    base = g.node()
    assert base is not None
    shape = list(g.types[base].shape)
    for _ in range(int(g.rng.integers(1, 4))):
        axis = int(g.rng.integers(len(shape))) if shape else 0
        roll = g.rng.random()
        if roll < 0.3 and axis + 1 < len(shape):
            shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        elif roll < 0.6 and shape and isinstance(shape[axis], int) and shape[axis] > 3:
            factor = next((f for f in (2, 3, 5, 7) if shape[axis] % f == 0), 1)
            split = [factor, shape[axis] // factor]
            shape[axis : axis + 1] = split if g.rng.random() < 0.5 else split[::-1]
        elif roll < 0.8 and len(shape) < 4:
            shape.insert(axis, 1)
        elif 1 in shape:
            shape.remove(1)
    if len(shape) <= 5:
        g.step("reshape", base, shape=tuple(shape))


def expand(g: Grower) -> None:
    base = g.node(lambda t: t.rank < 4)
    if base is None:
        return
    shape = tuple(int(pick(g.rng, SIZES)) if n == 1 else n for n in g.types[base].shape)
    extra = (int(pick(g.rng, (1, 2, 3, 7))),) if g.rng.random() < 0.5 else ()
    g.step("expand", base, shape=extra + shape)


def cut(g: Grower) -> None:
    base = g.node(lambda t: t.rank > 0)
    if base is None:
        return
    cuts = [random_cut(g.rng, n) for n in g.types[base].shape]
    starts, sizes, steps = (tuple(c[i] for c in cuts) for i in range(3))
    g.step("slice", base, starts=starts, sizes=sizes, steps=steps)


def random_cut(rng: Rng, n: Size) -> tuple[Size, Size, int]:
    if isinstance(n, SizeExpr):
        return (0, n, 1) if rng.random() < 0.7 else (n - 1, n, -1)
    if n == 0 or rng.random() < 0.3:
        return 0, n, 1
    step = int(pick(rng, (1, 1, 1, 2, 3, -1, -2)))
    start = int(rng.integers(0, n))
    most = 1 + ((n - 1 - start) // step if step > 0 else start // -step)
    return start, int(rng.integers(0 if rng.random() < 0.1 else 1, most + 1)), step


def concat(g: Grower) -> None:
    base = g.node(lambda t: t.rank > 0)
    if base is None:
        return
    kind = g.types[base]
    axis = int(g.rng.integers(kind.rank))
    parts = [base]
    for _ in range(int(g.rng.integers(1, 3))):
        size = pick(g.rng, (0, 1, 2, 5, 16, kind.shape[axis]))
        shape = (*kind.shape[:axis], size, *kind.shape[axis + 1 :])
        parts.append(g.operand(kind.dtype, shape))
    g.step("concat", *(int(p) for p in g.rng.permutation(parts)), axis=axis)


def pad(g: Grower) -> None:
    base = g.node()
    assert base is not None
    low, high = (tuple(int(n) for n in g.rng.integers(0, 3, g.types[base].rank)) for _ in range(2))
    dtype = g.types[base].dtype
    values = (
        (0, 1, -2.5, float("-inf"))
        if dtype.is_float
        else (0, 1, 2.5 - 1j)
        if dtype.is_complex
        else (0, 1)
    )
    g.step("pad", base, low=low, high=high, value=pick(g.rng, values))


def gather(g: Grower) -> None:
    base = g.node(lambda t: t.rank > 0 and t.size != 0)
    if base is None:
        return
    axis = int(g.rng.integers(g.types[base].rank))
    shape = pick(g.rng, ((), (1,), (3,), (16,), (17,), (2, 3), (0,)))
    indices = g.leaf(pick(g.rng, INDICES), shape, fill="index", below=below(g, base, axis))
    g.step("gather", base, indices, axis=axis)


def below(g: Grower, base: int, axis: int) -> Size:
    return g.types[base].shape[axis]


def scatter(g: Grower) -> None:
    base = g.node(
        lambda t: t.dtype in ANY_NUMBERS and t.rank > 0 and g.weight(t.shape[:1]) <= 4 * LINE
    )
    if base is None:
        return
    size = int(pick(g.rng, (1, 3, 7, 20)))
    indices = g.leaf(pick(g.rng, INDICES), g.types[base].shape[:1], fill="index", below=size)
    g.step("scatter_add", base, indices, size=size)


def along_axis(g: Grower) -> None:
    """cumsum, argmax, argmin: the evaluator takes as many steps as the axis is long."""
    name = pick(g.rng, ("cumsum", "argmax", "argmin"))
    base = g.node(lambda t: t.dtype in REGISTRY[name].dtypes and t.rank > 0 and t.size != 0)
    if base is None:
        return
    short = [
        a
        for a, n in enumerate(g.types[base].shape)
        if (n if isinstance(n, int) else n.max) <= 6 * LINE
    ]
    if short:
        extra = {"exclusive": bool(g.rng.integers(2))} if name == "cumsum" else {}
        g.step(name, base, axis=int(pick(g.rng, short)), **extra)


def matmul(g: Grower) -> None:
    """A right side for some item, as stored or transposed, with or without batch axes of its own;
    at times a bias."""
    base = g.node(lambda t: t.dtype in EVERY and t.rank >= 1)
    if base is None:
        return
    if g.types[base].rank == 1:
        base = g.step("reshape", base, shape=(1, *g.types[base].shape))
    *batch, _, inner = g.types[base].shape
    depth = inner if isinstance(inner, int) else inner.max
    if depth > LINE and g.rng.random() < 0.9 or depth > 1100:
        return
    width = int(pick(g.rng, (1, 2, 5, 16, 17, 33, 64, 65)))
    shared = tuple(1 if g.rng.random() < 0.5 else n for n in batch)
    dtype = g.types[base].dtype
    if g.rng.random() < 0.4:
        rank = len(batch) + 2
        turned = g.operand(dtype, (*shared, width, inner))
        right = g.step("transpose", turned, perm=(*range(rank - 2), rank - 1, rank - 2))
    else:
        right = g.operand(dtype, (*shared, inner, width))
    made = g.step("matmul", base, right)
    if g.rng.random() < 0.5:
        kind = g.types[made]
        bias = "add" if kind.dtype is not bool_ else "logical_or"
        g.step(bias, made, g.expanded(g.leaf(kind.dtype, (width,)), kind.shape))


def softmax(g: Grower) -> None:
    """Reductions of a row with work on the same row between them."""
    base = g.node(lambda t: t.dtype.is_float and t.rank > 0 and t.size != 0)
    if base is None:
        return
    shape = g.types[base].shape
    ones = (*shape[:-1], 1)

    def spread(i: int) -> int:
        return g.expanded(g.reshaped(i, ones), shape)

    last = (len(shape) - 1,)
    shifted = g.step("subtract", base, spread(g.step("reduce_max", base, axes=last)))
    powers = g.step(pick(g.rng, ("exp", "square", "abs")), shifted)
    total = spread(g.step("reduce_sum", powers, axes=last))
    g.step(pick(g.rng, ("divide", "subtract")), powers, total)


def in_line(g: Grower) -> None:
    """Two or three changes of one array, one after the other: what rewriting joins."""
    first = pick(g.rng, (transpose, transpose, cut, cut, reshape, cast, expand, pad, elementwise))
    if g.rng.random() < 0.5:
        block(g)
    g.in_line = True
    for _ in range(int(g.rng.integers(2, 4))):
        (
            first
            if g.rng.random() < 0.7
            else pick(g.rng, (transpose, cut, reshape, cast, elementwise))
        )(g)
    g.in_line = False


def cast(g: Grower) -> None:
    base = g.node()
    assert base is not None
    g.as_dtype(base, pick(g.rng, DTYPES))


def from_case(g: Grower) -> None:
    """Any op, on operands of one of its own cases."""
    ops = [o for o in REGISTRY.values() if o.cases is not None and o.kind != "structural"]
    op = pick(g.rng, [o for o in ops if o.kind != "elementwise"])
    seed = int(g.rng.integers(1 << 30))
    case = op.cases(np.random.default_rng(seed))
    sizes = [int(a.size) for a in case.args]
    if max(sizes) > g.room or (
        op.kind == "special" and max(n for a in case.args for n in (0, *a.shape)) > LINE
    ):
        return
    if isinstance(
        op.type(*(ArrayType(as_dtype(a.dtype), a.shape) for a in case.args), **case.params), tuple
    ):
        return  # an item has one result
    leaves = []
    for i, array in enumerate(case.args):
        dtype, shape = as_dtype(array.dtype), tuple(array.shape)
        leaves.append(
            g.add(Leaf(dtype, shape, seed, f"case:{op.name}:{i}"), ArrayType(dtype, shape))
        )
    g.step(op, *leaves, **case.params)


GROWERS: tuple[Callable[[Grower], None], ...] = (
    *(elementwise,) * 12, *(reduction,) * 3, *(transpose,) * 2, *(reshape,) * 2, *(expand,) * 2,
    *(cut,) * 2, concat,
    pad, gather, scatter, along_axis, *(matmul,) * 2, *(softmax,) * 2, *(in_line,) * 4, from_case,
)  # fmt: skip
