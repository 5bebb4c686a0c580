"""Loop nests, reader: the value of any graph node at an index, inside a kernel under construction.

A node in memory is loaded. A node that the generator computes itself is provided. Any other node is
computed on the spot from its operands: that is fusion. Values are shared within a scope of the
kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.core.dtypes import DType, i4, index
from tetrad.core.errors import TetradError, UnsupportedError
from tetrad.core.sizes import Shape, Size, reach
from tetrad.core.types import row_strides
from tetrad.graph.build import constant
from tetrad.graph.nodes import Node, topological
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.complex import load_nibble, load_part
from tetrad.loopnest.index import Sizes, Space, Span, offset
from tetrad.loopnest.sign_analysis import sign
from tetrad.schedule.nodes import TrapSite

At = tuple[Val, ...]
DEEP = 64  # recursion depth at which operands are computed in advance
FIRST_TRAP = 16  # lower codes belong to the back end


class Reading:
    """Everything that a kernel under construction knows about graph nodes."""

    def __init__(self, k: KernelBuilder, sizes: Sizes) -> None:
        self.k, self.sizes = k, sizes
        self.buffers: dict[Node, Buffer] = {}
        self.provided: dict[Node, Callable[[At], Val]] = {}
        self.traps: dict[int, TrapSite] = {}
        self.depth = 0  # of the recursion

    def operand(self, node: Node) -> Operand:
        return Operand(self, node)

    def read(self, node: Node, at: At) -> Val:
        """The element of `node` at `at`, in the node's own dtype."""
        if node in self.provided:
            return self.provided[node](at)
        value = splat_value(node)
        if value is not None:
            return self.k.const(value, node.type.dtype)
        if node in self.buffers:
            where = offset(self.sizes, at, node.type.shape, row_strides(node.type.shape))
            if node.type.dtype.is_nibble:
                return load_nibble(self.k, self.buffers[node], where, node.type.dtype is i4)
            return self.k.load(self.buffers[node], where)
        return self.shared(node, at)

    def part(self, node: Node, at: At, which: int) -> Val:
        """The real (0) or imaginary (1) part of a complex node at `at`."""
        value = splat_value(node)
        if value is not None:
            return self.k.const(value.imag if which else value.real, node.type.dtype.real)
        if node not in self.buffers:
            is_joined = not node.inputs[0].type.dtype.is_complex  # its operands are its parts
            return (
                self.read(node.inputs[which], at)
                if is_joined
                else self.part(node.inputs[0], at, which)
            )
        where = offset(self.sizes, at, node.type.shape, row_strides(node.type.shape))
        return load_part(self.k, self.buffers[node], where, which)

    def wide(self, node: Node, at: At) -> Val:
        """The element in the dtype of arithmetic (f16 as f32, i8 as i32)."""
        return self.k.cast(self.read(node, at), node.type.dtype.computing)

    def shared(self, node: Node, at: At) -> Val:
        key = ("read", node, tuple(index_key(i) for i in at))
        found: Val | None = self.k.known(key)
        if found is not None:
            return found
        self.depth += 1
        if self.depth % DEEP == 0:
            self.read_ahead(node, at)
        value = self.compute(node, at)
        self.depth -= 1
        self.k.remember(key, value)
        return value

    def forget(self) -> None:
        """Drop the values read in this scope, because what is provided or in scratch changes."""
        self.k.forget("read")

    def read_ahead(self, node: Node, at: At) -> None:
        """Compute every elementwise node below this one, operands first: a thousand levels of
        recursion would overflow Python's stack."""
        order, seen = [node], {node}
        for user in order:
            fresh = [
                i
                for i in user.inputs
                if user.op.kind == "elementwise" and self.is_computed(i) and i not in seen
            ]
            order += fresh
            seen.update(fresh)
        for inner in topological(order[1:]):
            if inner in seen and inner is not node:
                self.read(inner, at)

    def is_computed(self, node: Node) -> bool:
        return node not in self.provided and node not in self.buffers and splat_value(node) is None

    def compute(self, node: Node, at: At) -> Val:
        params = dict(node.params)
        if node.op.read_rule is not None or node.op.kind == "movement":
            operands = [Operand(self, i, node) for i in node.inputs]
            return rule_of(node, "read_rule")(self.k, at, *operands, **params)  # type: ignore[no-any-return]
        if node.op.kind == "elementwise":
            values = [self.wide(i, at) for i in node.inputs]
            if node.op.refuse_rule is not None:
                self.refuse(node, node.op.refuse_rule(self.k, node.type.dtype, *values, **params))
            return self.k.cast(
                rule_of(node, elementwise_rule(node))(self.k, *values, **params), node.type.dtype
            )
        raise UnsupportedError(
            f"{node.op.name} cannot be computed inside another kernel", source=node.source
        )

    def reshaped(self, at: At, shape: Shape, inner: Shape) -> At:
        """The index in the operand of a reshape: axes of size 1 are added or dropped, others go
        through the flat position."""
        if [n for n in shape if n != 1] == [n for n in inner if n != 1]:
            kept = iter([i for i, n in zip(at, shape, strict=True) if n != 1])
            return tuple(next(kept) if n != 1 else self.k.index(0) for n in inner)
        flat = offset(self.sizes, at, shape, row_strides(shape))
        return Space(self.k, self.sizes, inner, flat).axes()

    def refuse(
        self, node: Node, found: tuple[Val, Val, Callable[[int], TetradError]] | None
    ) -> None:
        if found is None:
            return
        (bad, value, explain), code = found, FIRST_TRAP + len(self.traps)
        self.traps[code] = TrapSite(node.op.name, "", node.source, explain=explain)
        self.k.trap(bad, code, self.k.cast(value, index))

    def trap(self, node: Node, operand: Node, bad: Val, value: Val) -> None:
        code = FIRST_TRAP + len(self.traps)
        params = dict(node.params)
        axis, what = params.get("axis", 0), params.get("what", node.op.name)
        size = params["size"] if "what" in params else operand.type.shape[axis]
        message = f"{what}: index {{value}} is out of range for axis {axis} of size {size}"
        self.traps[code] = TrapSite(
            node.op.name, message, node.source, reach(size) if isinstance(size, int) else None
        )
        self.k.trap(bad, code, value)


class Operand:
    """An operand as a `read` rule sees it: x(at) is an element, x.shape the sizes."""

    def __init__(self, reading: Reading, node: Node, user: Node | None = None) -> None:
        self.reading, self.node, self.user = reading, node, user

    @property
    def shape(self) -> Shape:
        return self.node.type.shape

    @property
    def dtype(self) -> DType:
        return self.node.type.dtype

    def size(self, axis: int) -> Val:
        return self.reading.sizes.val(self.shape[axis])

    def value_of(self, size: Size) -> Val:
        return self.reading.sizes.val(size)

    def __call__(self, at: At) -> Val:
        return self.reading.read(self.node, at)

    def part(self, at: At, which: int) -> Val:
        """The real (0) or imaginary (1) part of a complex element."""
        return self.reading.part(self.node, at, which)

    def reshaped(self, at: At, shape: Shape) -> Val:
        """The element at an index into the operand seen in another shape."""
        return self.reading.read(self.node, self.reading.reshaped(at, shape, self.shape))

    def check(self, bad: Val, value: Val) -> None:
        """Stop the program with an IndexError where `bad` is true; `value` is the index to
        report."""
        if self.user is None:
            raise UnsupportedError("only ops check indices")
        self.reading.trap(self.user, self.node, bad, value)


def rule_of(node: Node, which: str) -> Callable[..., Any]:
    rule = getattr(node.op, which)
    if rule is None:
        raise UnsupportedError(
            f"{node.op.name} is not compiled yet", source=node.source, hint="call it outside jit"
        )
    return rule  # type: ignore[no-any-return]


def elementwise_rule(node: Node) -> str:
    is_special = node.op.nonpositive_rule is not None and sign(node.inputs[0]) == -1
    return "nonpositive_rule" if is_special else "lower_rule"


def splat_value(node: Node) -> Any:
    """The Python number that every element of a constant has, or None."""
    if node.op.spreads:
        return splat_value(node.inputs[0])
    if node.op is not constant:
        return None
    literal = node.param("value")
    return literal.splat.item() if literal.held.size == 1 else None


def index_key(at: Val) -> object:
    # The space itself, not its id: a key outlives the space of an unrolled vector, and ids recur.
    return (at.space, at.first, at.last) if isinstance(at, Span) else at.node
