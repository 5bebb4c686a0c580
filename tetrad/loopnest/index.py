"""Loop nests, index: the position of an element, as kernel values.

A `Space` is the index space that a kernel walks, given as one flat number. Asking for an axis, or a
run of axes (`span`), emits the division and remainder it needs. Nothing is emitted before: an
access that is contiguous over several axes costs one multiply-add.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.sizes import Shape, Size, SizeExpr, dims_of, product
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Value


class Sizes:
    """Sizes as kernel values: an int is a literal, a symbolic size an index argument of the
    program."""

    def __init__(self, k: KernelBuilder) -> None:
        self.k = k
        self.formulas: dict[str, Size] = {}  # argument name -> what the launch must pass
        self._names: dict[Size, str] = {}

    def val(self, size: Size) -> Val:
        if isinstance(size, int):
            return self.k.index(size)
        if size not in self._names:
            name = str(size) if str(size).isidentifier() else f"size_{len(self.formulas)}"
            self._names[size] = name
            self.formulas[name] = size
        return self.k.arg(self._names[size])

    def argument(self, size: Size) -> Val:
        """The same, but an int is an argument too, so that kernels that differ in it are one
        kernel."""
        name = f"size_{len(self.formulas)}"
        self.formulas[name] = size
        return self.k.arg(name)

    def need(self, size: Size) -> None:
        """Declare the Dims of a scratch count as arguments under their own names: counts refer to
        them by name."""
        for dim in sorted(dims_of(size), key=str):
            self.val(SizeExpr((((dim,), 1),)))


class Space:
    """Axes `shape` walked by one number: `flat` is the row-major position, a kernel value."""

    def __init__(self, k: KernelBuilder, sizes: Sizes, shape: Shape, flat: Val) -> None:
        self.k, self.sizes, self.shape, self.flat = k, sizes, shape, flat

    def span(self, first: int, last: int) -> Val:
        """The row-major position within axes first..last-1."""
        value = self.flat
        after, inside = product(self.shape[last:]), product(self.shape[first:last])
        if after != 1:
            value = value // self.sizes.val(after)
        if any(n != 1 for n in self.shape[:first]):
            value = value % self.sizes.val(inside)
        return value if inside != 1 else self.k.index(0)

    def axes(self) -> tuple[Val, ...]:
        return tuple(Span(self, i, i + 1) for i in range(len(self.shape)))


class Span(Val):
    """A run of axes of a space; its division and remainder are emitted when it is first used."""

    __slots__ = ("first", "last", "space")

    def __init__(self, space: Space, first: int, last: int) -> None:
        self.k, self.space, self.first, self.last = space.k, space, first, last

    @property
    def node(self) -> Value:  # type: ignore[override]
        return self.space.span(self.first, self.last).node

    @property
    def size(self) -> Size:
        return product(self.space.shape[self.first : self.last])

    def joins(self, other: Val) -> bool:
        return isinstance(other, Span) and other.space is self.space and other.first == self.last

    def join(self, other: Span) -> Span:
        return Span(self.space, self.first, other.last)


def offset(sizes: Sizes, at: Sequence[Val], shape: Shape, strides: Sequence[Size]) -> Val:
    """Sum of index * stride. Adjacent axes of one space with matching strides are joined first."""
    total: Val = sizes.k.index(0)
    axis = len(shape) - 1
    while axis >= 0:
        index, stride, extent = at[axis], strides[axis], shape[axis]
        while (
            axis > 0
            and _continues(at[axis - 1], index, extent)
            and strides[axis - 1] == stride * extent
        ):
            index = at[axis - 1].join(index)  # type: ignore[attr-defined]
            extent = extent * shape[axis - 1]
            axis -= 1
        total = index * sizes.val(stride) + total
        axis -= 1
    return total


def _continues(outer: Val, inner: Val, extent: Size) -> bool:
    """Do two indices form one longer run of their space? Only if the inner one covers the array's
    whole extent."""
    return (
        isinstance(outer, Span)
        and isinstance(inner, Span)
        and outer.joins(inner)
        and inner.size == extent
    )
