"""callback, effect: a function of the user's, on arrays of NumPy, as an op. A callback is pure, an
effect happens: once a step, in order.

The function is a setting, so a program with it lives in this process only. What it returns is
checked against what was promised. `tracing.callbacks` has the public functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core.dtypes import DType, as_dtype
from tetrad.core.errors import DtypeError, ShapeError, TetradError, TraceError
from tetrad.core.op import op
from tetrad.core.record import record
from tetrad.core.sizes import Shape
from tetrad.core.source import Source
from tetrad.core.tree import TreeDef, flatten, unflatten
from tetrad.core.types import ArrayType
from tetrad.graph.effects import TOKEN
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import expand, run
from tetrad.ops.movement import At, Reader
from tetrad.ops.rules import Array

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

Batched = tuple[bool, ...]
METHODS = ("sequential", "expand_dims", "broadcast_all")


@record
class HostFunction:
    """A function of Python's with the trees of its arguments and of its result."""

    function: Callable[..., Any]
    given: TreeDef  # positional arguments, and those by name
    gives: TreeDef
    dtypes: tuple[DType, ...]
    what: str = "callback"  # the public function, for errors

    @property
    def name(self) -> str:
        inner = getattr(self.function, "func", self.function)  # of a functools.partial
        return str(getattr(inner, "__name__", type(inner).__name__))

    def __str__(self) -> str:
        return self.name

    def __call__(
        self, arrays: Sequence[Array], shapes: Sequence[Shape], source: Source | None = None
    ) -> tuple[Array, ...]:
        """Run it, and check what it returns. `source`: the user's line, for errors of ours; what
        the function raises stays as it is."""
        positional, named = unflatten(self.given, list(arrays))
        made = self.function(*positional, **named)
        try:
            return self.results(made, shapes)
        except TetradError as error:
            raise error.located(source) from None

    def results(self, made: Any, shapes: Sequence[Shape]) -> tuple[Array, ...]:
        leaves, tree = flatten(made)
        if tree != self.gives:
            wanted, came = (", ".join(t.leaf_names("result")) for t in (self.gives, tree))
            raise TraceError(
                f"{self.what}: {self.name} returned {came or 'nothing'}, promised was {wanted}",
                hint=f"td.{self.what}(f, result, ...): result has the tree of what f returns",
            )
        names = self.gives.leaf_names("result")
        rows = zip(leaves, shapes, self.dtypes, names, strict=True)
        return tuple(self.checked(*row) for row in rows)

    def checked(self, leaf: Any, shape: Shape, dtype: DType, name: str) -> Array:
        found = np.asarray(leaf)
        wanted = ArrayType(dtype, shape)
        if found.shape != shape:
            raise ShapeError(
                f"{self.what}: {self.name} returned {name} of shape {list(found.shape)}, promised "
                f"was {wanted}"
            )
        if isinstance(leaf, bool | int | float | complex):
            return found.astype(dtype.np)
        if known(found) is not dtype:
            raise DtypeError(
                f"{self.what}: {self.name} returned {name} of {found.dtype}, promised was {wanted}",
                hint=f"return it as {dtype.name}, or promise what it is",
            )
        return found


def known(array: Array) -> DType | None:
    try:
        return as_dtype(array.dtype)
    except TetradError:
        return None


def callback_type(
    *operands: ArrayType, function: HostFunction, shapes: tuple[Shape, ...], vmap_method: str
) -> ArrayType | tuple[ArrayType, ...]:
    kinds = [ArrayType(dtype, shape) for dtype, shape in zip(function.dtypes, shapes, strict=True)]
    return kinds[0] if len(kinds) == 1 else tuple(kinds)


@op(type=callback_type, kind="special", public=False, foldable=False, portable=False)
def callback(
    *operands: Array, function: HostFunction, shapes: tuple[Shape, ...], vmap_method: str
) -> Array | tuple[Array, ...]:
    """function(operands), of copies, so that it cannot change what it is given; copies of what it
    returns, so that it cannot change that later.

    >>> given, gives = flatten(((0,), {}))[1], flatten(0)[1]
    >>> turned = HostFunction(np.flip, given, gives, (as_dtype("int64"),))
    >>> callback(np.arange(3), function=turned, shapes=((3,),), vmap_method="sequential")
    array([2, 1, 0])
    """
    made = tuple(np.array(x) for x in function([np.array(x) for x in operands], shapes))
    return made[0] if len(made) == 1 else made


def effect_type(
    *operands: ArrayType,
    function: HostFunction,
    shapes: tuple[Shape, ...],
    vmap_method: str,
    count: int,
    serial: int,
) -> ArrayType | tuple[ArrayType, ...]:
    kinds = [ArrayType(dtype, shape) for dtype, shape in zip(function.dtypes, shapes, strict=True)]
    return (*kinds, TOKEN) if kinds else TOKEN


@op(
    type=effect_type,
    kind="special",
    public=False,
    foldable=False,
    portable=False,
    effectful=True,
)
def effect(
    *operands: Array,
    function: HostFunction,
    shapes: tuple[Shape, ...],
    vmap_method: str,
    count: int,
    serial: int,
) -> Array | tuple[Array, ...]:
    """As `callback`, of the first `count` operands; the others are what it waits for, and a token
    is its last result. `serial` makes every call a node of its own.

    >>> given, gives = flatten(((0,), {}))[1], flatten(None)[1]
    >>> shown = HostFunction(lambda x: print(x), given, gives, ())
    >>> effect(np.arange(3), function=shown, shapes=(), vmap_method="", count=1, serial=0)
    [0 1 2]
    array(0, dtype=uint8)
    """
    made = function([np.array(x) for x in operands[:count]], shapes)
    done = np.zeros((), np.uint8)
    return (*map(np.array, made), done) if made else done


effect.not_differentiable("what happens has no derivative; td.stop_gradient makes it a constant")


@effect.batch
def effect_batch(
    batched: Batched,
    *operands: Node,
    function: HostFunction,
    shapes: tuple[Shape, ...],
    vmap_method: str,
    count: int,
    serial: int,
) -> Any:
    """As that of `callback`; it waits for all rows of what it waits for."""
    if vmap_method == "sequential":
        return None
    rows, size = rows_of(batched[:count], operands[:count], vmap_method)
    whole = tuple((size, *shape) for shape in shapes)
    found = effect(
        *rows, *operands[count:], function=function, shapes=whole, vmap_method=vmap_method,
        count=count, serial=serial,
    )  # fmt: skip
    *results, token = found if isinstance(found, tuple) else (found,)
    made = (*results, expand(token, (size,)))
    return made if results else made[0]


def tie_type(x: ArrayType, *before: ArrayType) -> ArrayType:
    return x


@op(type=tie_type, kind="movement", public=False, foldable=False)
def tie(x: Array, *before: Array) -> Array:
    """x, once the other operands have been computed.

    >>> tie(np.array([1, 2]), np.uint8(0))
    array([1, 2])
    """
    return x


@tie.read
def tie_read(k: KernelBuilder, at: At, x: Reader, *before: Reader) -> Val:
    return x(at)


tie.jvp_of_all(lambda tangents, y, x, *before: tangents[0])
tie.split(lambda x, *before: (tie(x[0], *before), tie(x[1], *before)))


callback.not_differentiable("nobody knows what the function computes; td.custom_vjp gives a rule")


@callback.batch
def callback_batch(
    batched: Batched,
    *operands: Node,
    function: HostFunction,
    shapes: tuple[Shape, ...],
    vmap_method: str,
) -> Any:
    """All rows at once, where the function takes a leading axis; else one after the other."""
    if vmap_method == "sequential":
        return None
    rows, size = rows_of(batched, operands, vmap_method)
    whole = tuple((size, *shape) for shape in shapes)
    return callback(*rows, function=function, shapes=whole, vmap_method=vmap_method)


def rows_of(batched: Batched, operands: Sequence[Node], method: str) -> tuple[list[Node], Any]:
    """All operands with a leading axis, and the size of the batch."""
    size = next(x.type.shape[0] for x, flag in zip(operands, batched, strict=True) if flag)
    wide = 1 if method == "expand_dims" else size
    rows = [
        x if flag else expand(run("reshape", x, shape=(1, *x.type.shape)), (wide, *x.type.shape))
        for x, flag in zip(operands, batched, strict=True)
    ]
    return rows, size
