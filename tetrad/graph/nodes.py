"""Graph language, nodes: an immutable, hash-consed, typed graph of ops.

A `Node` is one op applied to nodes. Equal nodes are one object (interned by op, inputs and params),
so common subexpressions are shared by construction, and comparison is identity. A `Graph` is inputs
and outputs; it is closed: every parameter it uses is among its inputs. `graph.build` makes nodes,
`graph.text` prints and parses, `graph.verify` checks, `graph.evaluate` computes with NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.op import REGISTRY, Op
from tetrad.core.record import record
from tetrad.core.source import Source
from tetrad.core.types import ArrayType

ParamItems = tuple[tuple[str, Any], ...]


@record(eq=False, weakref_slot=True)
class Node:
    """One op applied to inputs. `types` has one entry per result; `item` selects one of several."""

    op: Op
    inputs: tuple[Node, ...]
    params: ParamItems  # sorted by name, hashable
    types: tuple[ArrayType, ...]
    source: Source | None

    @property
    def type(self) -> ArrayType:
        return self.types[0]

    def param(self, name: str) -> Any:
        return dict(self.params)[name]

    @staticmethod
    def __tetrad_op__(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        from tetrad.graph.build import apply  # building lives beside the nodes

        return apply(op, args, params)

    # Operators: rules of derivatives and batching read as formulas. A number takes the node's type.

    def __add__(self, other: Any) -> Any:
        return REGISTRY["add"](self, other)

    def __sub__(self, other: Any) -> Any:
        return REGISTRY["subtract"](self, other)

    def __rsub__(self, other: Any) -> Any:
        return REGISTRY["subtract"](other, self)

    def __mul__(self, other: Any) -> Any:
        return REGISTRY["multiply"](self, other)

    def __truediv__(self, other: Any) -> Any:
        return REGISTRY["divide"](self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return REGISTRY["divide"](other, self)

    def __neg__(self) -> Any:
        return REGISTRY["negative"](self)

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return f"<{self.op.name}: {', '.join(map(str, self.types))}>"


@record(eq=False, weakref_slot=True)
class Graph:
    """Inputs (parameter nodes) and outputs. Interned: equal graphs are one object."""

    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    def nodes(self) -> tuple[Node, ...]:
        """Every node the outputs need, operands first."""
        return tuple(topological(self.outputs))

    def __str__(self) -> str:
        from tetrad.graph.text import to_text  # printing lives with parsing

        return to_text(self)

    def _repr_html_(self) -> str:
        """The same text in a notebook; names in it are the user's."""
        return f"<pre>{lazy.module('html').escape(str(self))}</pre>"


class Literal:
    """A constant array as a param. Small ones compare by content, large ones (weights) by identity.

    The content never changes. A small array is copied; for a large one the caller promises that
    nobody writes to its memory (`core.owners.lasting` copies if somebody may).

    A program kept on disk serves any content of its large constants, so it must not depend on that
    content. Reading `array` sets `is_read`; `held` is for callers that pass the array on or ask for
    its type. A literal with the bytes of another in another shape has that one as `origin`.
    """

    SMALL = 4096
    __slots__ = ("__weakref__", "_origin", "held", "is_read", "key")

    def __init__(self, array: np.ndarray, origin: Literal | None = None) -> None:
        self._origin = origin
        self.is_read = False
        content: object = id(self)
        # equal small literals are one object, so the array can live in the bytes of the key
        if array.nbytes <= self.SMALL:
            content = data = array.tobytes()
            self.held: np.ndarray = np.ndarray(array.shape, array.dtype, data)
        else:
            self.held = np.ascontiguousarray(array)
        self.key = (self.held.dtype, self.held.shape, content)

    @property
    def array(self) -> np.ndarray:
        self.is_read = self.origin.is_read = True
        return self.held

    @property
    def origin(self) -> Literal:
        return self._origin or self

    def reshaped(self, shape: tuple[int, ...]) -> Literal:
        return Literal(self.held.reshape(shape), self.origin)

    @property
    def is_small(self) -> bool:
        return self.held.nbytes <= self.SMALL

    @property
    def splat(self) -> np.ndarray | None:
        """The element that equals all others bit for bit, as an array without axes; part of the key
        of a program."""
        return splat_of(self.held)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key


HEAD, PIECE = 16, 4096  # elements compared at a time


def splat_of(array: np.ndarray) -> np.ndarray | None:
    """The element of an array that equals all others bit for bit, as an array without axes."""
    flat = array.reshape(-1)
    head = flat[:HEAD].tobytes()
    # quick exit: weights differ within the first few elements
    if head[flat.itemsize :] != head[: -flat.itemsize]:
        return None
    if flat.size > 1:
        bits = flat.view(f"u{min(flat.itemsize, 8)}").reshape(flat.size, -1)
        pieces = (bits[i : i + PIECE] for i in range(0, flat.size, PIECE))
        if not all((piece == bits[0]).all() for piece in pieces):
            return None
    return flat[:1].reshape(()) if flat.size else None


def topological(
    roots: Iterable[Node],
    waits: Mapping[Node, Sequence[Node]] | None = None,
    known: Iterable[Node] = (),
) -> Iterator[Node]:
    """Nodes with operands before users, in a stable order; iterative, so deep graphs do not
    overflow the stack.

    `waits`: nodes that must come before a node although it does not read them. `known`: nodes to
    leave out, with everything that only they need.
    """
    waits = waits or {}
    seen = set(known)
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(tuple(roots))]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            before = (*node.inputs, *waits[node]) if node in waits else node.inputs
            stack.extend((i, False) for i in reversed(before) if i not in seen)


def uses(graph: Graph) -> dict[Node, int]:
    """How often each node is used, graph outputs included."""
    counts: dict[Node, int] = {}
    for node in graph.nodes():
        counts.setdefault(node, 0)
        for operand in node.inputs:
            counts[operand] = counts.get(operand, 0) + 1
    for output in graph.outputs:
        counts[output] += 1
    return counts
