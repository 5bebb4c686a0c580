"""Ops: data movement. Each says which operand element stands at an output index (`read`); nothing
is computed.

In a `read` rule `at` is a tuple of index values, one per output axis; an operand is a `Reader`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tetrad.core.dtypes import DType, bool_
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.sizes import Shape, Size, product
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled
from tetrad.graph.nodes import Node
from tetrad.ops import signs
from tetrad.ops.calculus import Batched, batched_as_is, batched_axis, sliced, sum_to
from tetrad.ops.calculus import reshape as reshaped
from tetrad.ops.calculus import transpose as transposed
from tetrad.ops.cases import Rng, pick, random_array, random_shape
from tetrad.ops.rules import EVERY, Array, check_axis, check_dtype, lowest

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, LocalVar, Val

At = tuple["Val", ...]
Ints = tuple[int, ...]  # references see sizes that are known


class Reader(Protocol):
    """An operand as a `read` rule sees it."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> DType: ...

    def __call__(self, at: At) -> Val:
        """The element at an index tuple, in the operand's own dtype."""

    def reshaped(self, at: At, shape: Shape) -> Val:
        """The element at an index into the operand seen in another shape."""

    def part(self, at: At, which: int) -> Val:
        """The real (0) or imaginary (1) part of a complex element."""

    def size(self, axis: int) -> Val:
        """The size of an axis as an index value."""

    def value_of(self, size: Size) -> Val:
        """Any size as an index value."""

    def check(self, bad: Val, value: Val) -> None:
        """Stop with an IndexError that names `value` where `bad` holds."""


def shown(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"


def replace(at: At, axis: int, index: Val) -> At:
    return (*at[:axis], index, *at[axis + 1 :])


def _any_array(rng: Rng, min_rank: int = 0) -> Array:
    return random_array(rng, pick(rng, EVERY), random_shape(rng, min_rank=min_rank))


# -- axes: transpose, reshape, expand --------------------------------------------------------------


def transpose_type(x: ArrayType, *, perm: Ints) -> ArrayType:
    check_dtype("transpose", x.dtype, EVERY)
    if sorted(perm) != list(range(x.rank)):
        raise ShapeError(
            f"transpose: perm {list(perm)} is not a permutation of the {x.rank} axes of {x}"
        )
    return x.with_shape(tuple(x.shape[p] for p in perm))


def _transpose_cases(rng: Rng) -> Case:
    x = _any_array(rng)
    return Case((x,), {"perm": tuple(int(p) for p in rng.permutation(x.ndim))})


@op(
    type=transpose_type,
    kind="movement",
    cases=_transpose_cases,
    dtypes=EVERY,
    public=False,
    strided=True,
    sign=signs.as_operand,
)
def transpose(x: Array, *, perm: Ints) -> Array:
    """Axes in another order: output axis i is input axis perm[i].

    >>> transpose(np.array([[1, 2, 3], [4, 5, 6]]), perm=(1, 0))
    array([[1, 4],
           [2, 5],
           [3, 6]])
    """
    return np.transpose(x, perm)


@transpose.read
def transpose_read(k: KernelBuilder, at: At, x: Reader, *, perm: Ints) -> Val:
    return x(tuple(at[perm.index(axis)] for axis in range(len(perm))))


transpose.transpose(lambda ct, x, *, perm: transposed(ct, np.argsort(perm).tolist()))


@transpose.batch
def transpose_batch(batched: Batched, x: Node, *, perm: Ints) -> Node:
    return transposed(x, (0, *(p + 1 for p in perm)))


def reshape_type(x: ArrayType, *, shape: Shape) -> ArrayType:
    check_dtype("reshape", x.dtype, EVERY)
    if any(isinstance(n, int) and n < 0 for n in shape):
        raise ShapeError(f"reshape: sizes must not be negative, got {shown(shape)} for {x}")
    if product(shape) != x.size:
        raise ShapeError(f"reshape: {x} has {x.size} elements, {shown(shape)} has {product(shape)}")
    return x.with_shape(shape)


def _reshape_cases(rng: Rng) -> Case:
    """Sizes shuffled, some split off as ones, sometimes all joined."""
    x = _any_array(rng)
    shape = [int(n) for n in rng.permutation(np.array(x.shape, int))]
    shape.insert(int(rng.integers(0, len(shape) + 1)), 1)
    return Case((x,), {"shape": pick(rng, [tuple(shape), (x.size,)])})


@op(
    type=reshape_type,
    kind="movement",
    cases=_reshape_cases,
    dtypes=EVERY,
    public=False,
    view=True,
    sized=True,
    sign=signs.as_operand,
)
def reshape(x: Array, *, shape: Ints) -> Array:
    """The same elements in row-major order, in another shape.

    >>> reshape(np.array([[1, 2, 3], [4, 5, 6]]), shape=(3, 2))
    array([[1, 2],
           [3, 4],
           [5, 6]])
    """
    return np.reshape(x, shape)


@reshape.read
def reshape_read(k: KernelBuilder, at: At, x: Reader, *, shape: Shape) -> Val:
    return x.reshaped(at, shape)


reshape.transpose(lambda ct, x, *, shape: reshaped(ct, x.type.shape))


@reshape.batch
def reshape_batch(batched: Batched, x: Node, *, shape: Shape) -> Node:
    return reshaped(x, (x.type.shape[0], *shape))


def expand_type(x: ArrayType, *, shape: Shape) -> ArrayType:
    check_dtype("expand", x.dtype, EVERY)
    new = len(shape) - x.rank
    if new < 0 or any(a not in (1, b) for a, b in zip(x.shape, shape[new:], strict=True)):
        raise ShapeError(
            f"expand: {x} does not broadcast to {shown(shape)}", hint="sizes must be equal, or 1"
        )
    return x.with_shape(shape)


def _expand_cases(rng: Rng) -> Case:
    shape = random_shape(rng)
    inner = tuple(pick(rng, (1, n)) for n in shape[int(rng.integers(0, len(shape) + 1)) :])
    return Case((random_array(rng, pick(rng, EVERY), inner),), {"shape": shape})


@op(
    type=expand_type,
    kind="movement",
    cases=_expand_cases,
    dtypes=EVERY,
    public=False,
    strided=True,
    spreads=True,
    sized=True,
    sign=signs.as_operand,
)
def expand(x: Array, *, shape: Ints) -> Array:
    """Repeat along axes of size 1 and new leading axes.

    >>> expand(np.array([[1], [2]]), shape=(2, 3))
    array([[1, 1, 1],
           [2, 2, 2]])
    """
    return np.broadcast_to(x, shape)


@expand.read
def expand_read(k: KernelBuilder, at: At, x: Reader, *, shape: Shape) -> Val:
    inner = at[len(shape) - len(x.shape) :]
    return x(tuple(k.index(0) if size == 1 else i for i, size in zip(inner, x.shape, strict=True)))


expand.transpose(lambda ct, x, *, shape: sum_to(ct, x.type.shape))


@expand.batch
def expand_batch(batched: Batched, x: Node, *, shape: Shape) -> Node:
    """New axes come after that of the batch."""
    size, *inner = x.type.shape
    aligned = reshaped(x, (size, *(1,) * (len(shape) - len(inner)), *inner))
    result: Node = expand(aligned, shape=(size, *shape))
    return result


# -- parts: slice, concat, pad ---------------------------------------------------------------------


def slice_type(x: ArrayType, *, starts: Shape, sizes: Shape, steps: Ints) -> ArrayType:
    check_dtype("slice", x.dtype, EVERY)
    if not len(starts) == len(sizes) == len(steps) == x.rank:
        counts = f"{len(starts)} starts, {len(sizes)} sizes, {len(steps)} steps"
        raise ShapeError(
            f"slice: {x} needs one start, size and step for each of its {x.rank} axes, got {counts}"
        )
    for axis, cut in enumerate(zip(starts, sizes, steps, strict=True)):
        _check_cut(x, axis, *cut)
    return x.with_shape(sizes)


def _check_cut(x: ArrayType, axis: int, start: Size, size: Size, step: int) -> None:
    """First and last element lie inside; for symbolic sizes, whatever the Dims are."""
    cut = f"{size} elements from {start} in steps of {step}"
    if step == 0 or (isinstance(size, int) and size < 0):
        raise ShapeError(
            f"slice: {cut} along axis {axis} of {x}: steps must not be 0, sizes not negative"
        )
    if size == 0:
        return
    last = start + (size - 1) * step
    low, high = (start, last) if step > 0 else (last, start)
    if lowest(low) < 0 or lowest(x.shape[axis] - 1 - high) < 0:
        raise ShapeError(
            f"slice: {cut} leave axis {axis} of {x}",
            hint="it must lie inside for every value of a Dim",
        )


def _slice_cases(rng: Rng) -> Case:
    x = _any_array(rng)
    cuts = [_random_cut(rng, n) for n in x.shape]
    starts, sizes, steps = zip(*cuts, strict=True) if cuts else ((), (), ())
    return Case((x,), {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)})


def _random_cut(rng: Rng, n: int) -> tuple[int, int, int]:
    step = pick(rng, (1, 1, 1, 2, 3, -1, -2))
    if n == 0:
        return 0, 0, step
    start = int(rng.integers(0, n))
    room = (n - 1 - start) // step if step > 0 else start // -step
    return start, int(rng.integers(0, room + 2)), step


@op(
    type=slice_type,
    kind="movement",
    cases=_slice_cases,
    dtypes=EVERY,
    public=False,
    strided=True,
    sized=True,
    sign=signs.as_operand,
)
def slice_(x: Array, *, starts: Ints, sizes: Ints, steps: Ints) -> Array:
    """Along each axis `size` elements, the first at `start`, `step` apart; steps may be negative.

    >>> slice_(np.array([10, 20, 30, 40]), starts=(3,), sizes=(2,), steps=(-2,))
    array([40, 20])
    """
    picked = [
        start + np.arange(size) * step
        for start, size, step in zip(starts, sizes, steps, strict=True)
    ]
    return np.asarray(x)[np.ix_(*picked)] if picked else np.asarray(x)


@slice_.read
def slice_read(
    k: KernelBuilder, at: At, x: Reader, *, starts: Shape, sizes: Shape, steps: Ints
) -> Val:
    cuts = zip(at, starts, steps, strict=True)
    return x(tuple(i * step + x.value_of(start) for i, start, step in cuts))


def _slice_back(ct: Node, x: Node, *, starts: Shape, sizes: Shape, steps: Ints) -> Node:
    """Zeros of the operand's shape with the slice put back."""
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        ct = _line_back(ct, axis, start, size, step, x.type.shape[axis])
    return ct


def _line_back(ct: Node, axis: int, start: Size, size: Size, step: int, total: Size) -> Node:
    if size == 0:
        return filled(0, ct.type.with_shape(replaced(ct.type.shape, axis, total)))
    if step < 0:
        return _line_back(flipped(ct, axis), axis, start + (size - 1) * step, size, -step, total)
    if step > 1:  # each element, followed by step - 1 zeros
        shape = ct.type.shape
        apart = padded(
            reshaped(ct, (*shape[: axis + 1], 1, *shape[axis + 1 :])), axis + 1, 0, step - 1
        )
        ct = sliced(
            reshaped(apart, replaced(shape, axis, size * step)), axis, 0, (size - 1) * step + 1
        )
    return padded(ct, axis, start, total - start - ct.type.shape[axis])


def replaced(shape: Shape, axis: int, size: Size) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def flipped(x: Node, axis: int) -> Node:
    """The elements along an axis, last first."""
    shape, rank = x.type.shape, x.type.rank
    starts = replaced((0,) * rank, axis, shape[axis] - 1) if shape[axis] != 0 else (0,) * rank
    steps = tuple(-1 if a == axis else 1 for a in range(rank))
    result: Node = slice_(x, starts=starts, sizes=shape, steps=steps)
    return result


def padded(x: Node, axis: int, low: Size, high: Size) -> Node:
    """Zeros before and after, along one axis."""
    if low == 0 and high == 0:
        return x
    none = (0,) * x.type.rank
    result: Node = pad(x, low=replaced(none, axis, low), high=replaced(none, axis, high), value=0)
    return result


slice_.transpose(_slice_back)


@slice_.batch
def slice_batch(batched: Batched, x: Node, *, starts: Shape, sizes: Shape, steps: Ints) -> Node:
    result: Node = slice_(
        x, starts=(0, *starts), sizes=(x.type.shape[0], *sizes), steps=(1, *steps)
    )
    return result


def concat_type(*xs: ArrayType, axis: int) -> ArrayType:
    if not xs:
        raise ShapeError("concat: needs at least one array")
    check_dtype("concat", xs[0].dtype, EVERY)
    check_axis("concat", axis, xs[0])
    listed = ", ".join(map(str, xs))
    if any(x.dtype is not xs[0].dtype for x in xs):
        raise DtypeError(
            f"concat: operands have different dtypes: {listed}", hint="convert with astype"
        )
    rest = {(x.rank, x.shape[:axis], x.shape[axis + 1 :]) for x in xs}
    if len(rest) > 1:
        raise ShapeError(f"concat: sizes must be equal except along axis {axis}, got {listed}")
    total = sum((x.shape[axis] for x in xs), start=0)
    return xs[0].with_shape((*xs[0].shape[:axis], total, *xs[0].shape[axis + 1 :]))


def _concat_cases(rng: Rng) -> Case:
    dtype, shape = pick(rng, EVERY), list(random_shape(rng, min_rank=1))
    axis, parts = int(rng.integers(len(shape))), []
    for _ in range(int(rng.integers(1, 4))):
        shape[axis] = pick(rng, (0, 1, 2, 7, 16))
        parts.append(random_array(rng, dtype, tuple(shape)))
    return Case(tuple(parts), {"axis": axis})


@op(type=concat_type, kind="movement", cases=_concat_cases, dtypes=EVERY, public=False)
def concat(*xs: Array, axis: int) -> Array:
    """Arrays one after the other along an axis.

    >>> concat(np.array([[1, 2], [3, 4]]), np.array([[5], [6]]), axis=1)
    array([[1, 2, 5],
           [3, 4, 6]])
    """
    return np.concatenate(xs, axis)


PARTS = 8  # of a concat that are looked through one by one; of more, each holds several


@concat.read
def concat_read(k: KernelBuilder, at: At, *xs: Reader, axis: int) -> Val:
    """Each part is read only by the lanes that are in it."""
    value = k.local(0, xs[0].dtype)
    ends = list(accumulate((x.shape[axis] for x in xs), initial=0))
    read_parts(k, at, axis, list(zip(xs, ends[:-1], ends[1:], strict=True)), value)
    return value.get()


def read_parts(
    k: KernelBuilder, at: At, axis: int, parts: Sequence[tuple[Reader, Size, Size]], value: LocalVar
) -> None:
    """value = the element at `at`; parts are (operand, start, end). Lanes look where they are, not
    everywhere."""
    several = -(-len(parts) // PARTS)
    for i in range(0, len(parts), several):
        some = parts[i : i + several]
        x, start, end = some[0][0], some[0][1], some[-1][2]
        if start == end:
            continue
        with k.when(k.binary("and", at[axis] >= x.value_of(start), at[axis] < x.value_of(end))):
            if len(some) > 1:
                read_parts(k, at, axis, some, value)
            else:
                value.set(x(replace(at, axis, at[axis] - x.value_of(start))))


@concat.jvp_of_all
def concat_jvp(tangents: tuple[Node | None, ...], y: Node, *xs: Node, axis: int) -> Node:
    parts = (filled(0, x.type) if t is None else t for t, x in zip(tangents, xs, strict=True))
    result: Node = concat(*parts, axis=axis)
    return result


@concat.transpose_of_all
def concat_transpose(ct: Node, is_linear: tuple[bool, ...], *xs: Node, axis: int) -> list[Node]:
    ends = list(accumulate((x.type.shape[axis] for x in xs), initial=0))
    return [sliced(ct, axis, start, x.type.shape[axis]) for start, x in zip(ends, xs, strict=False)]


concat.batch(batched_axis(concat, axis=1))


def pad_type(x: ArrayType, *, low: Shape, high: Shape, value: float) -> ArrayType:
    check_dtype("pad", x.dtype, EVERY)
    if not len(low) == len(high) == x.rank:
        raise ShapeError(
            f"pad: {x} needs widths for {x.rank} axes, got {len(low)} before and {len(high)} after"
        )
    if any(lowest(n) < 0 for n in (*low, *high)):
        raise ShapeError(
            f"pad: widths must not be negative, got {shown(low)} and {shown(high)}",
            hint="slice cuts off",
        )
    _check_fill(x.dtype, value)
    return x.with_shape(tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True)))


def _check_fill(dtype: DType, value: float) -> None:
    if dtype.is_float or dtype.is_complex:
        return
    low, high = (0, 1) if dtype is bool_ else (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
    if not (low <= value <= high and value == int(value)):
        raise DtypeError(f"pad: the value {value!r} is not one of {dtype}")


def _pad_cases(rng: Rng) -> Case:
    x = _any_array(rng)
    low, high = (tuple(int(n) for n in rng.integers(0, 4, x.ndim)) for _ in range(2))
    return Case((x,), {"low": low, "high": high, "value": 1})


@op(type=pad_type, kind="movement", cases=_pad_cases, dtypes=EVERY, public=False)
def pad(x: Array, *, low: Ints, high: Ints, value: float) -> Array:
    """`value` around the array: `low` elements before and `high` after, along each axis.

    >>> pad(np.array([1, 2]), low=(1,), high=(2,), value=9)
    array([9, 1, 2, 9, 9])
    """
    array = np.asarray(x)
    shape = [a + n + b for a, n, b in zip(low, array.shape, high, strict=True)]
    result = np.full(shape, value, array.dtype)
    result[tuple(slice(a, a + n) for a, n in zip(low, array.shape, strict=True))] = array
    return result


@pad.read
def pad_read(k: KernelBuilder, at: At, x: Reader, *, low: Shape, high: Shape, value: float) -> Val:
    """Only lanes inside the operand read it."""
    fill = k.const(x.dtype.np.type(value).item(), x.dtype)
    if product(x.shape) == 0:
        return fill
    filled = k.local(fill)
    inner = tuple(i - x.value_of(n) for i, n in zip(at, low, strict=True))
    inside = k.const(True, bool_)
    for axis, i in enumerate(inner):
        inside = k.binary("and", inside, k.binary("and", i >= 0, i < x.size(axis)))
    with k.when(inside):
        filled.set(x(inner))
    return filled.get()


def _pad_change(t: Node, y: Node, x: Node, *, low: Shape, high: Shape, value: float) -> Node:
    result: Node = pad(t, low=low, high=high, value=0)
    return result


def _pad_back(ct: Node, x: Node, *, low: Shape, high: Shape, value: float) -> Node:
    result: Node = slice_(ct, starts=low, sizes=x.type.shape, steps=(1,) * x.type.rank)
    return result


pad.jvp(_pad_change)
pad.transpose(_pad_back)


@pad.batch
def pad_batch(batched: Batched, x: Node, *, low: Shape, high: Shape, value: float) -> Node:
    result: Node = pad(x, low=(0, *low), high=(0, *high), value=value)
    return result


# -- the same elements: copy, after, stop_gradient -------------------------------------------------


def copy_type(x: ArrayType, *, which: int = 0) -> ArrayType:
    return x


@op(
    type=copy_type,
    kind="movement",
    cases=lambda rng: Case((_any_array(rng),)),
    dtypes=EVERY,
    public=False,
)
def copy(x: Array, *, which: int = 0) -> Array:
    """The same values in memory of their own; `which` tells copies of one array apart.

    >>> copy(np.array([1, 2]))
    array([1, 2])
    """
    return x.copy()


@copy.read
def copy_read(k: KernelBuilder, at: At, x: Reader, *, which: int = 0) -> Val:
    return x(at)


copy.transpose(lambda ct, x, *, which=0: ct)
copy.batch(batched_as_is(copy))


@op(
    type=lambda x, *, called="": x,
    kind="movement",
    cases=lambda rng: Case((_any_array(rng),), {"called": "kept"}),
    dtypes=EVERY,
    public=False,
)
def checkpoint_name(x: Array, *, called: str = "") -> Array:
    """The operand, under a name that policies of `td.checkpoint` ask for. Programs are compiled
    without it.

    >>> checkpoint_name(np.array([1, 2]), called="kept")
    array([1, 2])
    """
    return x


@checkpoint_name.read
def checkpoint_name_read(k: KernelBuilder, at: At, x: Reader, *, called: str = "") -> Val:
    return x(at)


checkpoint_name.transpose(lambda ct, x, *, called="": ct)
checkpoint_name.batch(batched_as_is(checkpoint_name))


def after_type(x: ArrayType, *before: ArrayType) -> ArrayType:
    return x


@op(type=after_type, kind="special", in_place=True, public=False)
def after(x: Array, *before: Array) -> Array:
    """x where it lies, once the other operands have been computed: those that read it before it is
    changed.

    >>> after(np.array([1, 2]), np.array([3]))
    array([1, 2])
    """
    return x


after.kernel(lambda frame, group: [])  # its place in the order is all there is to it
after.not_differentiable("lowering puts it in front of updates, after derivatives were taken")


@op(
    type=lambda x: x,
    kind="movement",
    cases=lambda rng: Case((_any_array(rng),)),
    dtypes=EVERY,
    public=False,
    stops_gradient=True,
)
def stop_gradient(x: Array) -> Array:
    """The operand, which no derivative sees change. Programs are compiled without it.

    >>> stop_gradient(np.array([1, 2]))
    array([1, 2])
    """
    return x


@stop_gradient.read
def stop_gradient_read(k: KernelBuilder, at: At, x: Reader) -> Val:
    return x(at)


stop_gradient.jvp_of_all(lambda tangents, y, x: None)
stop_gradient.batch(batched_as_is(stop_gradient))
