"""Tracing, trace: run a Python function on traced arrays and keep the graph that this records.

Receives a function and the types of its array arguments; returns a closed graph, the shape of the
tree it returns, and the outside values it used. `trace(f)(x)` shows the graph of any function.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, bool_, c128, f64, i64, python_dtypes
from tetrad.core.errors import TraceError, an
from tetrad.core.floats import own_floats
from tetrad.core.record import record
from tetrad.core.source import repeated_source
from tetrad.core.tree import TreeDef, flatten, unflatten
from tetrad.core.types import ArrayType
from tetrad.graph.build import apply, make_graph
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.convert import cast
from tetrad.tracing.array import Array, TracedArray, array_type, fail, node_of
from tetrad.tracing.context import Trace, current_trace, new_trace
from tetrad.tracing.effects import settled
from tetrad.tracing.operands import as_array, check_shape, dtype_of, is_operand, number_of, wrap
from tetrad.tracing.signature import Arguments, Signature, signature_of

# A Python number travels at full precision.
WIDE: dict[type, DType] = {bool: bool_, int: i64, float: f64, complex: c128}


@record
class Spec:
    """A shape and a dtype in place of an array, to trace with.

    >>> Spec((2, 3))
    Spec(f32[2,3])
    """

    type: ArrayType

    def __init__(self, shape: Any, dtype: Any = float) -> None:
        object.__setattr__(self, "type", array_type(dtype_of(dtype), check_shape("Spec", shape)))

    @staticmethod
    def like(x: Any) -> Spec:
        """That of an array, or of anything with a shape and a dtype."""
        return Spec(x.shape, x.dtype)

    @property
    def sharding(self) -> None:
        """Where JAX says how an array is spread over devices: there is one device."""
        return None

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"Spec({self.type})"


@record
class ArgumentKind:
    """What tracing knows of one argument: its type, and whether it is a Python number (then `weak`
    is its type)."""

    type: ArrayType
    weak: builtins.type | None = None


@record
class Traced:
    """A traced function. `captured` are values of enclosing traces, and large constants, that
    became extra inputs."""

    graph: Graph
    tree: TreeDef  # of what the function returns
    captured: tuple[Array, ...]


def kind_of_argument(name: str, where: str, leaf: Any) -> ArgumentKind:
    """What an argument is to a traced function, or the error that says what may be passed."""
    if isinstance(leaf, TracedArray) and leaf.wide is not None:
        return ArgumentKind(leaf.wide.type, leaf.weak)
    if isinstance(leaf, Array | Spec):
        return ArgumentKind(leaf.type)
    if type(leaf) in WIDE:
        return ArgumentKind(array_type(WIDE[type(leaf)], ()), type(leaf))
    if isinstance(leaf, np.generic) and type(number := number_of(leaf)) in WIDE:
        return ArgumentKind(array_type(WIDE[type(number)], ()), type(number))
    if is_operand(leaf):
        return ArgumentKind(wrap(np.asarray(leaf)).type)
    message = f"{name}: the argument {where} is {an(type(leaf).__name__)}, not an array or a number"
    fail(
        TraceError,
        message,
        "list it in static_argnums or static_argnames; td.tree.register adds containers",
    )


def kinds_of(signature: Signature, arguments: Arguments) -> tuple[ArgumentKind, ...]:
    leaves = arguments.leaves
    if all(type(leaf) is Array for leaf in leaves):
        return tuple([ArgumentKind(leaf.type) for leaf in leaves])
    names = signature.leaf_names(arguments)
    return tuple(
        kind_of_argument(signature.name, name, leaf)
        for name, leaf in zip(names, leaves, strict=True)
    )


def trace_function(
    signature: Signature,
    function: Callable[..., Any],
    arguments: Arguments,
    kinds: Sequence[ArgumentKind],
    values: Sequence[Array] = (),
    changing: Collection[int] = (),
    rows: Sequence[Array | None] = (),
    known: Sequence[Array] = (),
) -> Traced:
    """Record what the function does with arrays of these kinds. `values`: of the parameters, where
    Python may ask; `rows`: of the parameters of a batch, to be shown; `changing`: those by which a
    derivative is taken, of which it may not ask for arrays and floats; `known`: values of the
    arguments of a function with a rule of its own."""
    with own_floats(), too_deep(signature.name), new_trace(signature.name) as trace:
        parameters = trace.parameters([kind.type for kind in kinds])
        trace.named = lambda: dict(zip(parameters, signature.leaf_names(arguments), strict=False))
        trace.values.update(zip(parameters, values, strict=False))
        trace.known.update(zip(parameters, known, strict=False))
        trace.rows.update(zip(parameters, rows, strict=False))
        trace.changing.update(parameters[i] for i in changing)
        inputs = [
            _input(node, kind.weak, trace) for node, kind in zip(parameters, kinds, strict=True)
        ]
        args, kwargs = arguments.rebuild(inputs)
        leaves, tree = flatten(function(*args, **kwargs))
        outputs = settled(
            trace, [node_of(output_of(signature.name, leaf), trace) for leaf in leaves]
        )
    captured = list(trace.captured.values())
    graph = make_graph(signature.name, [*parameters, *(node for _, node in captured)], outputs)
    return Traced(graph, tree, tuple(value for value, _ in captured))


@contextmanager
def too_deep(name: str) -> Iterator[None]:
    """Calls that never end are an error at the user's line, not a page of our frames; said by the
    outermost trace."""
    is_outermost = current_trace() is None
    try:
        yield
    except RecursionError as error:
        if not is_outermost:
            raise
        message = (
            f"{name}: calls nest deeper than Python allows, which is {sys.getrecursionlimit()} "
            "frames"
        )
        hint = (
            "a function of arrays that calls itself never ends while it is traced: use td.cond, "
            "td.scan or td.while_loop; more room for deep nesting: sys.setrecursionlimit"
        )
        raise TraceError(message, source=repeated_source(error), hint=hint) from None


def _input(node: Node, weak: type | None, trace: Trace) -> TracedArray:
    if weak is None:
        return TracedArray.of(node, trace)
    dtype = python_dtypes()[weak]
    narrow = node if node.type.dtype is dtype else apply(cast, [node], {"dtype": dtype})
    made = TracedArray.of(narrow, trace)
    made.weak, made.wide = weak, node
    return made


def output_of(name: str, leaf: Any) -> Array:
    if not is_operand(leaf):
        message = (
            f"{name}: a traced function returns arrays and numbers, not {an(type(leaf).__name__)}"
        )
        fail(
            TraceError,
            message,
            "they may stand in tuples, lists and dicts; td.tree.register adds containers",
        )
    return as_array(leaf)


def trace(
    function: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[..., Graph]:
    """The graph of a function, for arguments given as arrays or as `Spec`.

    >>> import tetrad as td
    >>> graph = td.trace(lambda x: x + 1)(td.Spec((2, 3)))
    >>> [str(node.type) for node in graph.outputs]
    ['f32[2,3]']
    """
    if is_operand(function):
        message = f"trace: expected a function, got {as_array(function).type}"
        fail(TraceError, message, "td.linalg.trace adds up the diagonal of a matrix")
    signature = signature_of(function, static_argnums, static_argnames)

    def traced(*args: Any, **kwargs: Any) -> Graph:
        arguments = signature.arguments(args, kwargs)
        return trace_function(signature, function, arguments, kinds_of(signature, arguments)).graph

    return traced


def eval_shape(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a function returns, with a `Spec` in place of each array: it is traced, not run.

    >>> import tetrad as td
    >>> layer = lambda x, w: {"y": x @ w, "size": td.sum(x)}
    >>> td.eval_shape(layer, td.Spec((8, 64)), td.Spec((64, 10)))
    {'size': Spec(f32[]), 'y': Spec(f32[8,10])}
    """
    signature = signature_of(function, (), ())
    arguments = signature.arguments(args, kwargs)
    made = trace_function(signature, function, arguments, kinds_of(signature, arguments))
    return unflatten(
        made.tree, [Spec(node.type.shape, node.type.dtype) for node in made.graph.outputs]
    )
