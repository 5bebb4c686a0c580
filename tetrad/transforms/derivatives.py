"""Transforms, derivatives: `jvp`, `vjp`, `grad` and `linearize`, as in JAX; whole matrices of them
are in `transforms.jacobians`.

Receives functions of trees of arrays, returns functions. Each call traces the function, asks
`derive` for the graph of the derivative and runs that graph: with NumPy on concrete arrays, as part
of the enclosing trace on traced ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

import tetrad.transforms.branches
import tetrad.transforms.custom_rules
import tetrad.transforms.scans  # noqa: F401
from tetrad.core.errors import DtypeError, ShapeError, TraceError, an
from tetrad.core.floats import guarded
from tetrad.core.record import record
from tetrad.core.tracebacks import plain_tracebacks
from tetrad.core.tree import TreeDef, flatten, unflatten
from tetrad.graph.nodes import Graph
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, convert
from tetrad.tracing.run_graph import run_graph
from tetrad.tracing.signature import Arguments, check_function, signature_of
from tetrad.tracing.static_arguments import is_values, without_settings
from tetrad.tracing.trace import ArgumentKind, Traced, kinds_of, trace_function
from tetrad.transforms.forward import is_differentiable
from tetrad.transforms.jvp import Flags
from tetrad.transforms.jvp import jvp as jvp_graph
from tetrad.transforms.linear_functions import (
    LinearPart,
    linear_part,
    matching,
    pullback,
    pulled,
    pushforward,
    residuals,
    zeros_of,
)
from tetrad.transforms.linearize import linearize as linearize_graph

INTEGERS = "differentiate a float from which it is made; whole numbers jump"
HINTS = {
    tuple: "has_aux=True if it is (value, anything else)",
    type(None): "does it end with a return?",
}
Function = Callable[..., Any]
Argnums = int | Sequence[int]


@record
class Recorded:
    """A traced function with the arrays of this call: the arguments' leaves, then what it
    captured."""

    name: str
    traced: Traced
    arrays: tuple[Array, ...]
    arguments: Arguments
    names: tuple[str, ...]  # what the user calls each leaf

    @property
    def graph(self) -> Graph:
        return self.traced.graph

    def flags(self, marked: set[int]) -> Flags:
        """Which inputs of the graph change: the leaves marked."""
        return tuple(i in marked for i in range(len(self.arrays)))


def record_call(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    numbers: Sequence[int] | None = None,
) -> Recorded:
    """The function traced on the arguments of this call; `numbers` are those by which it will be
    differentiated."""
    signature = signature_of(function, (), ())
    arguments = signature.arguments(args, kwargs)
    try:
        kinds = kinds_of(signature, arguments)
    except TraceError as error:
        hint = "keep it out of the arguments that are differentiated: close over it"
        raise TraceError(error.message, source=error.source, hint=hint) from None
    leaves = [as_array(leaf) for leaf in arguments.leaves]
    strong = tuple(
        ArgumentKind(x.type) if k.weak is not None else k
        for k, x in zip(kinds, leaves, strict=True)
    )
    changing = [i for i, mark in enumerate(marked_leaves(arguments.tree, numbers)) if mark]
    traced = trace_function(signature, function, arguments, strong, leaves, changing)
    names = tuple(signature.leaf_names(arguments))
    return Recorded(signature.name, traced, (*leaves, *traced.captured), arguments, names)


def marked_leaves(call: TreeDef, numbers: Sequence[int] | None) -> list[bool]:
    """For each leaf of (args, kwargs): does it belong to an argument in `numbers`? None stands for
    all of args."""
    args, kwargs = call.parts
    count = len(args.parts)
    chosen = set(range(count)) if numbers is None else {n % count for n in numbers if count}
    marks = [i in chosen for i, child in enumerate(args.parts) for _ in range(child.num_leaves)]
    return marks + [False] * kwargs.num_leaves


def inputs_of_call(
    args: Sequence[Any], kwargs: dict[str, Any], numbers: Sequence[int]
) -> list[bool]:
    """Which leaves of a call are inputs of the graph: those differentiated, and arrays."""
    leaves, tree = flatten((tuple(args), kwargs))
    return [
        mark or is_values(leaf)
        for leaf, mark in zip(leaves, marked_leaves(tree, numbers), strict=True)
    ]


# -- which leaves change ---------------------------------------------------------------------------


def leaves_of(
    recorded: Recorded, argnums: Argnums, what: str
) -> tuple[list[list[int]], list[TreeDef]]:
    """The leaf numbers of each argument in argnums, and the trees of those arguments."""
    numbers = checked_numbers(argnums, what)
    children = recorded.arguments.tree.parts[0].parts
    starts = np.cumsum([0, *(c.num_leaves for c in children)])
    found, trees = [], []
    for number in numbers:
        if not -len(children) <= number < len(children):
            message = (
                f"{what}: argnums has {number}, {recorded.name} was called with {len(children)} "
                "arguments"
            )
            fail(ShapeError, message, "arguments passed by name are not differentiated")
        place = number % len(children)
        found.append(list(range(starts[place], starts[place + 1])))
        trees.append(children[place])
    return found, trees


def checked_numbers(argnums: Argnums, what: str) -> list[int]:
    numbers = list(argnums) if isinstance(argnums, tuple | list) else [argnums]
    if not numbers or not all(isinstance(n, int | np.integer) for n in numbers):
        fail(TraceError, f"{what}: argnums must be an int or several, got {argnums!r}")
    return numbers  # type: ignore[return-value]


def is_one(argnums: Argnums) -> bool:
    """Whether one argument is asked for, and not a tuple of arguments."""
    return not isinstance(argnums, tuple | list)


def check_leaf(recorded: Recorded, i: int, what: str, holomorphic: bool) -> None:
    """Only floats (complex numbers, when the function is holomorphic) have derivatives."""
    kind = recorded.arrays[i].type
    if holomorphic and not kind.dtype.is_complex:
        fail(
            DtypeError,
            f"{what}: holomorphic needs complex arguments, {recorded.names[i]} is {kind}",
        )
    if not is_differentiable(kind):
        message = (
            f"{what}: the argument {recorded.names[i]} is {kind}, only floats have derivatives"
        )
        fail(
            DtypeError,
            message,
            "convert it with astype, choose other argnums, or pass allow_int=True for zeros",
        )


# -- grad ------------------------------------------------------------------------------------------


def value_and_grad(
    fun: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Function:
    """A function that gives the value of `fun` and its gradient by the arguments in `argnums`.

    Of other arguments arrays are inputs too; anything else (numbers, names, functions) `fun` gets
    as it is.

    has_aux       `fun` returns (value, anything else), and so does the result: ((value, else),
                  gradient)
    holomorphic   `fun` is complex and holomorphic: the gradient is its complex derivative
    allow_int     integer arguments get zeros instead of an error

    >>> import tetrad as td
    >>> td.value_and_grad(lambda x: x * x)(3.0)
    (Array(9., float32), Array(6., float32))
    """
    check_function("grad", fun)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = checked_numbers(argnums, "grad")
        inputs = inputs_of_call(args, kwargs, numbers)
        recorded = record_call(*without_settings(fun, args, kwargs, inputs), numbers)
        groups, trees = leaves_of(recorded, argnums, "grad")
        marked = [i for group in groups for i in group]
        for i in marked:
            if not allow_int:
                check_leaf(recorded, i, "grad", holomorphic)
        check_scalar(recorded, has_aux, holomorphic)
        outputs, found = gradients(recorded, marked)
        each = iter([as_gradient(found, recorded, i) for i in marked])
        grads = tuple(
            unflatten(tree, [next(each) for _ in group])
            for tree, group in zip(trees, groups, strict=True)
        )
        value = unflatten(recorded.traced.tree, outputs)
        return value, grads[0] if is_one(argnums) else grads

    return named(wrapped, fun, "value_and_grad")


@guarded
def gradients(recorded: Recorded, marked: Sequence[int]) -> tuple[list[Array], dict[int, Array]]:
    """All outputs, and the cotangent of each marked leaf that the first output depends on."""
    changing = {i for i in marked if is_differentiable(recorded.arrays[i].type)}
    flags = recorded.flags(changing)
    linear = linearize_graph(recorded.graph, flags)
    results = run_graph(linear.primal, recorded.arrays)
    outputs = results[: len(linear.changes)]
    if not linear.changes[0]:
        return outputs, {}
    one = convert(1.0, outputs[0].dtype)
    seeds = [one, *(None for _ in outputs[1:])]
    kept = residuals(linear, recorded.arrays, results)
    return outputs, pulled(linear.tangent, linear.changes, kept, flags, seeds)


def as_gradient(found: dict[int, Array], recorded: Recorded, i: int) -> Array:
    return found[i] if i in found else zeros_of(recorded.arrays[i].type)


def came(tree: TreeDef, outputs: Sequence[Any]) -> str:
    """What a function returned, for an error."""
    if tree.container is None:
        return str(outputs[0].type)
    count = f" of {len(tree.parts)}" if tree.container in (tuple, list) else ""
    return f"{an(tree.container.__name__)}{count}"


def check_scalar(recorded: Recorded, has_aux: bool, holomorphic: bool) -> None:
    """grad follows one number: the output, or the first of two when there is something else beside
    it."""
    tree, outputs = recorded.traced.tree, recorded.graph.outputs
    if has_aux and (tree.container is not tuple or len(tree.parts) != 2):
        fail(
            TraceError,
            f"grad: has_aux is set, so {recorded.name} must return a pair (value, anything else), "
            f"it returns {came(tree, outputs)}",
            "drop has_aux, or return value, aux",
        )
    value = tree.parts[0] if has_aux else tree
    if value.container is not None:
        hint = HINTS.get(value.container, "return one of its numbers")
        fail(
            TraceError,
            f"grad: {recorded.name} must return one number, it returns "
            f"{an(value.container.__name__)}",
            hint,
        )
    kind = outputs[0].type
    if kind.shape:
        message = f"grad: {recorded.name} must return one number, it returns {kind}"
        fail(ShapeError, message, "sum it, or use td.vjp or td.jacrev")
    wanted = kind.dtype.is_complex if holomorphic else kind.dtype.is_float
    if not wanted:
        needed = "a complex number, since holomorphic is set" if holomorphic else "a float"
        hint = (
            "take the real part, or set holomorphic=True if it is holomorphic"
            if kind.dtype.is_complex
            else INTEGERS
        )
        fail(DtypeError, f"grad: {recorded.name} must return {needed}, it returns {kind}", hint)


def grad(
    fun: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Function:
    """The gradient of a function that returns one number. Arguments as in `value_and_grad`.

    >>> import tetrad as td
    >>> td.grad(lambda x: td.sum(x * x))(td.asarray([1.0, 2.0]))
    Array([2., 4.], float32)
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return named(wrapped, fun, "grad")


# -- vjp, jvp, linearize ---------------------------------------------------------------------------


@plain_tracebacks
@guarded
def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The value of a function, and a function from cotangents of the value to cotangents of the
    arguments: a tree, which may leave `jit`.

    >>> import tetrad as td
    >>> y, back = td.vjp(lambda x: td.sin(x), 0.0)
    >>> back(td.asarray(2.0))
    (Array(2., float32),)
    """
    return taken_apart(fun, primals, has_aux, "vjp", pullback)


def taken_apart(
    fun: Function,
    primals: Sequence[Any],
    has_aux: bool,
    what: str,
    made: Callable[[LinearPart, Sequence[Array]], Function],
) -> Any:
    """The value of a function, a function of its change, and what stands beside the value."""
    recorded = record_call(fun, primals, {})
    value_tree, count, aux = value_part(recorded, has_aux, what)
    flags = recorded.flags(differentiable_leaves(recorded))
    linear = linearize_graph(recorded.graph, flags)
    results = run_graph(linear.primal, recorded.arrays)
    leaves = len(recorded.arguments.leaves)
    arguments = recorded.arguments.tree.parts[0], [x.type for x in recorded.arrays[:leaves]]
    kinds = value_tree, [o.type for o in recorded.graph.outputs[:count]]
    part = linear_part(recorded.name, linear, flags[:leaves], arguments, kinds)
    change = made(part, residuals(linear, recorded.arrays, results))
    value = unflatten(value_tree, results[:count])
    if aux is None:
        return value, change
    return value, change, unflatten(aux, results[count : len(linear.changes)])


@plain_tracebacks
@guarded
def jvp(
    fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Any:
    """The value of a function and its change when the arguments change as `tangents` say.

    >>> import tetrad as td
    >>> td.jvp(td.sin, (0.0,), (2.0,))
    (Array(0., float32), Array(2., float32))
    """
    recorded = record_call(fun, checked_sequence("jvp: primals", primals), {})
    changes = tangent_leaves(recorded, checked_sequence("jvp: tangents", tangents), "jvp")
    forward = jvp_graph(recorded.graph, recorded.flags(set(changes)))
    results = run_graph(forward.graph, [*recorded.arrays, *changes.values()])
    value_tree, count, aux = value_part(recorded, has_aux, "jvp")
    total = len(forward.changes)
    rest = iter(results[total:])
    kinds = [o.type for o in recorded.graph.outputs]
    spread = [
        next(rest) if c else zeros_of(kind) for c, kind in zip(forward.changes, kinds, strict=True)
    ]
    both = unflatten(value_tree, results[:count]), unflatten(value_tree, spread[:count])
    return (*both, unflatten(aux, results[count:total])) if aux is not None else both


@plain_tracebacks
@guarded
def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The value of a function, and the linear function that gives its change: `jvp` with the value
    computed once.

    >>> import tetrad as td
    >>> y, change = td.linearize(td.sin, 0.0)
    >>> change(2.0)
    Array(2., float32)
    """
    return taken_apart(fun, primals, has_aux, "linearize", pushforward)


def value_part(recorded: Recorded, has_aux: bool, what: str) -> tuple[TreeDef, int, TreeDef | None]:
    """The tree of the value, its number of leaves, and the tree of what stands beside it."""
    tree = recorded.traced.tree
    if not has_aux:
        return tree, len(recorded.graph.outputs), None
    if tree.container is not tuple or len(tree.parts) != 2:
        fail(
            TraceError,
            f"{what}: has_aux is set, so {recorded.name} must return a pair (value, anything else)",
        )
    return tree.parts[0], tree.parts[0].num_leaves, tree.parts[1]


def differentiable_leaves(recorded: Recorded) -> set[int]:
    count = len(recorded.arguments.leaves)
    return {i for i in range(count) if is_differentiable(recorded.arrays[i].type)}


def tangent_leaves(recorded: Recorded, tangents: Sequence[Any], what: str) -> dict[int, Array]:
    """The tangent of each leaf that can change; integers take no part (any number may stand for
    them)."""
    kinds = [x.type for x in recorded.arrays[: len(recorded.arguments.leaves)]]
    leaves = matching(
        tuple(tangents),
        recorded.arguments.tree.parts[0],
        kinds,
        f"{what}: tangents",
        recorded.name,
    )
    return {
        i: t
        for i, (t, kind) in enumerate(zip(leaves, kinds, strict=True))
        if is_differentiable(kind)
    }


def checked_sequence(what: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        fail(
            TraceError,
            f"{what} must be a tuple with one entry for each argument, got "
            f"{an(type(value).__name__)}",
        )
    return tuple(value)


def named(wrapped: Function, fun: Function, what: str) -> Function:
    update_wrapper(wrapped, fun)
    wrapped.__name__ = f"{what}({getattr(fun, '__name__', 'function')})"
    return plain_tracebacks(wrapped)
