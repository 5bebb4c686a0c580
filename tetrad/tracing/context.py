"""Tracing, context: which function is being traced on this thread, what it takes from outside, and
names of axes.

A `Trace` is one run of one Python function on traced arrays. It owns the parameters, the constants
and the captured values of the graph under construction; traces nest when one jitted function calls
another.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_parameter
from tetrad.graph.nodes import Node

_serial = itertools.count()


class Trace:
    """One tracing. `captured` maps an outside value to the parameter that stands for it inside.

    `values` are those the parameters have in this run, if it is a run on values: a derivative taken
    outside `jit`; `changing` are the parameters by which it is taken. `known` are those of the
    arguments of a function with a rule of its own, called in such a run: Python may ask for them,
    but effects wait for the program. `seen`: copies of arrays that are not ours, in the outermost.
    `is_inner`: its graph will be part of another.
    """

    __slots__ = (
        "active",
        "captured",
        "changing",
        "constants",
        "effects",
        "is_inner",
        "known",
        "name",
        "named",
        "parent",
        "rows",
        "seen",
        "serial",
        "values",
    )

    def __init__(self, name: str, parent: Trace | None, is_inner: bool = False) -> None:
        self.name, self.parent, self.active = name, parent, True
        self.is_inner = is_inner or parent is not None
        self.serial = next(_serial)
        # id(view) -> (view, so that the id stays its own)
        self.constants: dict[int, tuple[Any, Node]] = {}
        self.captured: dict[int, tuple[Any, Node]] = {}
        self.values: dict[Node, Any] = {}
        self.known: dict[Node, Any] = {}
        self.seen: dict[Any, Any] = {}
        self.changing: set[Node] = set()
        # what the user calls the parameters, asked for by errors
        self.named: Callable[[], Mapping[Node, str]] = dict
        self.rows: dict[Node, Any] = {}  # of a batch: what the parameters are in all examples
        # what happens in it, in order (graph.effects)
        self.effects: dict[Node, None] = {}

    def parameters(self, kinds: Sequence[ArrayType]) -> list[Node]:
        return [make_parameter(kind, i, fresh=True) for i, kind in enumerate(kinds)]

    def capture(self, value: Any, key: int, kind: ArrayType) -> Node:
        """The parameter that stands for a value of an enclosing trace."""
        if key not in self.captured:
            self.captured[key] = (value, make_parameter(kind, -1, fresh=True))
        return self.captured[key][1]


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.axes: tuple[tuple[Any, Size], ...] = ()  # names that `vmap` has given, outermost first


stack = _Stack()


def current_trace() -> Trace | None:
    return stack.traces[-1] if stack.traces else None


@contextmanager
def with_axes(axes: tuple[tuple[Any, Size], ...]) -> Iterator[None]:
    """These names of axes, and no others, until the block ends."""
    before, stack.axes = stack.axes, axes
    try:
        yield
    finally:
        stack.axes = before


@contextmanager
def new_trace(name: str, is_inner: bool = False) -> Iterator[Trace]:
    """Trace until the block ends; afterwards values of this trace are leaked ones."""
    trace = Trace(name, current_trace(), is_inner)
    stack.traces.append(trace)
    try:
        yield trace
    finally:
        stack.traces.pop()
        trace.active = False
