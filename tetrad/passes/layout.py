"""Passes, layout: rules by which data movement composes, cancels or handles less data. Every rule
is bit-exact.

Receives and returns graphs through the rule engine. Broadcasts stay in place, because fusion reads
through them; they move only if that reduces the work behind them.
"""

# mypy: disable-error-code="no-any-return"
# Op functions return what their operands are: nodes, here.

from __future__ import annotations

from typing import Any

from tetrad.core.sizes import Shape, Size, SizeExpr
from tetrad.graph.nodes import Node
from tetrad.ops.movement import (
    checkpoint_name,
    concat,
    expand,
    pad,
    reshape,
    slice_,
    stop_gradient,
    transpose,
)
from tetrad.ops.rules import broadcast_shapes
from tetrad.passes.rewrite import Axes, Rules, var

layout = Rules("layout")
x, p, q, shape, inner, outer, value = map(var, ("x", "p", "q", "shape", "inner", "outer", "value"))
called = var("called")
starts, sizes, steps = var("starts"), var("sizes"), var("steps")
low, high, axis = var("low"), var("high"), var("axis")


@layout.rule(stop_gradient(x))
def nothing_to_stop(x: Node) -> Node:
    """stop_gradient(x)  ->  x: derivatives have been taken already."""
    return x


@layout.rule(checkpoint_name(x, called=called))
def nothing_to_name(x: Node, called: str) -> Node:
    """checkpoint_name(x, called)  ->  x: what derivatives keep has been decided already."""
    return x


# -- transpose -------------------------------------------------------------------------------------


@layout.rule(transpose(transpose(x, perm=p), perm=q))
def compose_transposes(x: Node, p: Axes, q: Axes) -> Node:
    """transpose(transpose(x, p), q)  ->  transpose(x, p∘q), or x when they cancel."""
    perm = tuple(p[axis] for axis in q)
    return x if perm == tuple(range(len(perm))) else transpose(x, perm=perm)


@layout.rule(transpose(x, perm=p))
def transpose_in_order(x: Node, p: Axes) -> Node | None:
    """transpose(x, p)  ->  x, or reshape(x) when only axes of size 1 change place."""
    if p == tuple(range(len(p))):
        return x
    moved = [axis for axis in p if x.type.shape[axis] != 1]
    return reshaped(x, tuple(x.type.shape[axis] for axis in p)) if moved == sorted(moved) else None


# -- reshape ---------------------------------------------------------------------------------------


def reshaped(x: Node, shape: Shape) -> Node:
    return x if x.type.shape == shape else reshape(x, shape=shape)


@layout.rule(reshape(reshape(x, shape=inner), shape=outer))
def compose_reshapes(x: Node, inner: Shape, outer: Shape) -> Node:
    """reshape(reshape(x, inner), outer)  ->  reshape(x, outer)."""
    return reshaped(x, outer)


@layout.rule(reshape(x, shape=shape))
def reshape_to_itself(x: Node, shape: Shape) -> Node | None:
    """reshape(x, x.shape)  ->  x."""
    return x if x.type.shape == shape else None


# -- expand ----------------------------------------------------------------------------------------


@layout.rule(expand(expand(x, shape=inner), shape=outer))
def compose_expands(x: Node, inner: Shape, outer: Shape) -> Node:
    """expand(expand(x, inner), outer)  ->  expand(x, outer)."""
    return expand(x, shape=outer)


@layout.rule(expand(x, shape=shape))
def expand_without_repeating(x: Node, shape: Shape) -> Node | None:
    """expand(x, shape)  ->  x, or reshape(x) when it only adds axes of size 1."""
    added = len(shape) - x.type.rank
    return reshaped(x, shape) if shape == (1,) * added + x.type.shape else None


@layout.rule(var("moved", ops=(reshape, transpose, slice_)))
def move_repeated_element(moved: Node) -> Node | None:
    """reshape(expand(scalar))  ->  expand(scalar); also transpose and slice."""
    repeated = moved.inputs[0]
    if repeated.op is not expand or repeated.inputs[0].type.shape != ():
        return None
    return expand(repeated.inputs[0], shape=moved.type.shape)


@layout.rule(reshape(expand(x, shape=inner), shape=outer))
def regroup_before_repeating(x: Node, inner: Shape, outer: Shape) -> Node | None:
    """reshape(expand(x))  ->  expand(reshape(x)), when leading axes are regrouped of which x has
    all or none."""
    split, kept = regrouped_axes(inner, outer)
    padded = (1,) * (len(inner) - x.type.rank) + x.type.shape
    if not kept or split == 0:
        return None
    if all(n == 1 for n in padded[:split]):
        return expand(reshaped(x, padded[split:]), shape=outer)
    if padded[:split] != inner[:split]:
        return None
    return expand(reshaped(x, outer[:-kept] + padded[split:]), shape=outer)


def regrouped_axes(before: Shape, after: Shape) -> tuple[int, int]:
    """Of a reshape: how many leading axes it regroups, and how many behind them it keeps."""
    kept = 0
    while kept < min(len(before), len(after)) and before[-1 - kept] == after[-1 - kept]:
        kept += 1
    return len(before) - kept, kept


# -- slice -----------------------------------------------------------------------------------------


@layout.rule(slice_(x, starts=starts, sizes=sizes, steps=steps))
def slice_everything(x: Node, starts: Shape, sizes: Shape, steps: Axes) -> Node | None:
    """slice(x, 0, x.shape, 1)  ->  x."""
    whole = (
        sizes == x.type.shape
        and all(start == 0 for start in starts)
        and all(step == 1 for step in steps)
    )
    return x if whole else None


@layout.rule(slice_(var("inner", ops=(slice_,)), starts=starts, sizes=sizes, steps=steps))
def compose_slices(inner: Node, starts: Shape, sizes: Shape, steps: Axes) -> Node:
    """slice(slice(x, ...), ...)  ->  slice(x, ...)."""
    strides = inner.param("steps")
    first = tuple(
        a + b * stride for a, b, stride in zip(inner.param("starts"), starts, strides, strict=True)
    )
    every = tuple(stride * step for stride, step in zip(strides, steps, strict=True))
    return slice_(inner.inputs[0], starts=first, sizes=sizes, steps=every)


@layout.rule(slice_(var("joined", ops=(concat,)), starts=starts, sizes=sizes, steps=steps))
def slice_one_piece(joined: Node, starts: Shape, sizes: Shape, steps: Axes) -> Node | None:
    """slice(concat(x, y))  ->  slice(x), when nothing of y is in it."""
    axis = joined.param("axis")
    read = span(starts, sizes, steps, axis)
    if read is None:
        return None
    offset = 0
    for piece in joined.inputs:
        length = piece.type.shape[axis]
        if not isinstance(length, int):
            return None
        if offset <= read[0] and read[1] < offset + length:
            moved = tuple(s - offset if a == axis else s for a, s in enumerate(starts))
            return slice_(piece, starts=moved, sizes=sizes, steps=steps)
        offset += length
    return None


@layout.rule(
    slice_(pad(x, low=low, high=high, value=value), starts=starts, sizes=sizes, steps=steps)
)
def slice_inside_padding(
    x: Node, low: Shape, high: Shape, value: Any, starts: Shape, sizes: Shape, steps: Axes
) -> Node | None:
    """slice(pad(x))  ->  slice(x), when no padding is in it."""
    for axis, (length, before) in enumerate(zip(x.type.shape, low, strict=True)):
        read = span(starts, sizes, steps, axis)
        untouched = before == 0 and high[axis] == 0
        if not untouched and (read is None or not is_within(read, before, length)):
            return None
    moved = tuple(start - before for start, before in zip(starts, low, strict=True))
    return slice_(x, starts=moved, sizes=sizes, steps=steps)


def is_within(read: tuple[int, int], before: Size, length: Size) -> bool:
    if isinstance(before, SizeExpr) or isinstance(length, SizeExpr):
        return False
    return before <= read[0] and read[1] < before + length


def span(starts: Shape, sizes: Shape, steps: Axes, axis: int) -> tuple[int, int] | None:
    """The lowest and the highest index that a slice reads along an axis; None if it reads nothing
    or a size is a Dim."""
    start, size = starts[axis], sizes[axis]
    if isinstance(start, SizeExpr) or isinstance(size, SizeExpr) or size == 0:
        return None
    last = start + (size - 1) * steps[axis]
    return min(start, last), max(start, last)


# -- concat, pad -----------------------------------------------------------------------------------


@layout.rule(var("joined", ops=(concat,)))
def concat_what_is_there(joined: Node) -> Node | None:
    """concat(x)  ->  x;  concat(x, empty, y)  ->  concat(x, y)."""
    axis = joined.param("axis")
    pieces = [i for i in joined.inputs if i.type.shape[axis] != 0] or list(joined.inputs[:1])
    if len(pieces) == 1:
        return pieces[0]
    return concat(*pieces, axis=axis) if len(pieces) < len(joined.inputs) else None


@layout.rule(pad(x, low=low, high=high, value=value))
def pad_with_nothing(x: Node, low: Shape, high: Shape, value: Any) -> Node | None:
    """pad(x, 0, 0)  ->  x."""
    return x if all(n == 0 for n in (*low, *high)) else None


# -- work before repeating -------------------------------------------------------------------------


def is_work_on_repeats(node: Node) -> bool:
    # parts of complex numbers are joined last
    is_elementwise = node.op.kind == "elementwise" and not node.type.dtype.is_complex
    return is_elementwise and all(i.op is expand for i in node.inputs)


@layout.rule(var("node", where=is_work_on_repeats))
def work_before_repeating(node: Node) -> Node | None:
    """op(expand(x), expand(y))  ->  expand(op(x, y)), when x and y together are smaller."""
    shape = node.type.shape
    parts = [i.inputs[0] for i in node.inputs]
    small = broadcast_shapes(node.op.name, *(part.type for part in parts))
    if not repeats(small, shape):
        return None
    operands = [part if part.type.shape == small else expand(part, shape=small) for part in parts]
    return expand(node.op(*operands, **dict(node.params)), shape=shape)


def repeats(small: Shape, large: Shape) -> bool:
    """Does broadcasting make more elements?"""
    padded = (1,) * (len(large) - len(small)) + small
    return 0 not in large and any(a == 1 and b != 1 for a, b in zip(padded, large, strict=True))
