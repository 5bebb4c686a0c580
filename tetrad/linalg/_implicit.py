"""Linear algebra, implicit: solutions found by any means, with derivatives from what they solve.

Receives functions of trees, which may use values of the enclosing trace; returns trees. The
derivative of a solution is one more linear system, which is found in the same way, so neither mode
looks into iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tetrad.core.tree import flatten, tree_map, unflatten
from tetrad.core.types import ArrayType
from tetrad.graph.custom import make_linear
from tetrad.tracing.array import Array, TracedArray, node_of
from tetrad.tracing.context import current_trace
from tetrad.tracing.operands import apply, as_array, traced
from tetrad.tracing.run_graph import run_graph
from tetrad.transforms.custom import custom_jvp, stop_gradient, trace_leaves
from tetrad.transforms.derivatives import jvp
from tetrad.transforms.forward import is_differentiable
from tetrad.transforms.linear_transpose import linear_transpose

Tree = Any
Function = Callable[..., Any]


def arrays_of(tree: Tree) -> Tree:
    return tree_map(as_array, tree)


class Closed:
    """A function with what it found outside as arguments: those that may have derivatives, and
    others."""

    def __init__(self, name: str, function: Function, *examples: Tree) -> None:
        leaves, self.tree = flatten(examples)
        kinds = [as_array(x).type for x in leaves]
        tree = self.tree
        self.made = trace_leaves(name, lambda *xs: function(*unflatten(tree, list(xs))), kinds)
        captured = [traced(x) for x in self.made.captured]
        self.moves = [is_differentiable(x.type) for x in captured]
        self.moving = [x for x, flag in zip(captured, self.moves, strict=True) if flag]
        self.others = [x for x, flag in zip(captured, self.moves, strict=True) if not flag]

    def __call__(self, moving: Sequence[Array], others: Sequence[Array], *args: Tree) -> Tree:
        first, second = iter(moving), iter(others)
        held = [next(first) if flag else next(second) for flag in self.moves]
        found = run_graph(self.made.graph, [*(as_array(x) for x in flatten(args)[0]), *held])
        return unflatten(self.made.tree, found)


def minus(one: Tree, other: Tree) -> Tree:
    return tree_map(lambda a, b: apply("subtract", a, b), one, other)


def negative(tree: Tree) -> Tree:
    return tree_map(lambda a: apply("negative", a), tree)


def change_in(function: Function, at: list[Array], by: list[Array], like: Tree) -> Tree:
    """The change of a function of a list of arrays, which may be empty."""
    if not at:
        return tree_map(lambda x: apply("multiply", x, 0), like)
    return jvp(function, (at,), (by,))[1]


# -- linear systems --------------------------------------------------------------------------------


def linear_in_last(forward: Function, backward: Function, fixed: Tree, v: Tree) -> Tree:
    """forward(*fixed, v), a linear function of v whose transpose is backward(*fixed, v)."""
    arrays, held = flatten(fixed)
    leaves, tree = flatten(v)

    def on_leaves(function: Function) -> Callable[..., list[Array]]:
        def called(*xs: Array) -> list[Array]:
            given, last = list(xs[: len(arrays)]), list(xs[len(arrays) :])
            return flatten(function(*unflatten(held, given), unflatten(tree, last)))[0]

        return called

    return unflatten(tree, linear(on_leaves(forward), on_leaves(backward), arrays, leaves))


def custom_linear_solve(
    matvec: Function,
    b: Tree,
    solve: Function,
    transpose_solve: Function | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Tree:
    """x with matvec(x) = b, found by `solve(matvec, b)`; forward and reverse derivatives solve such
    systems again.

    matvec           a linear function of trees like b
    transpose_solve  what solves transposed systems, in reverse mode; `solve` if it is symmetric.
                     Without one `solve` itself is transposed, which loops are not
    has_aux          whether solve returns (x, more); what is more has no derivative

    >>> import tetrad as td
    >>> solve = lambda matvec, b: b / 4.0
    >>> td.grad(lambda b: td.custom_linear_solve(lambda x: 4.0 * x, b, solve, solve))(8.0)
    Array(0.25, float32)
    """
    right = arrays_of(b)
    if current_trace() is None:
        return solve(matvec, right)
    backward = transpose_solve or (solve if symmetric else None)
    product = Closed("matvec", matvec, right)
    search = Closed("solve", lambda v: solve(matvec, v), right)

    def x_of(found: Tree) -> Tree:
        return found[0] if has_aux else found

    @custom_jvp
    def solved(moving: Any, others: Any, used: Any, also: Any, v: Tree) -> Tree:
        return search(used, also, v)

    @solved.defjvp
    def _solved_jvp(primals: Any, tangents: Any) -> Any:
        moving, others, used, also, v = primals
        found = solved(*primals)
        moved = change_in(lambda m: product(m, others, x_of(found)), moving, tangents[0], v)
        change = again((moving, others, used, also), minus(tangents[4], moved))
        if not has_aux:
            return found, change
        return found, (change, tree_map(lambda a: apply("multiply", a, 0), found[1]))

    def again(fixed: Any, v: Tree) -> Tree:
        if backward is None:  # the search itself is transposed, if that can be done
            return x_of(search(*fixed[2:], v))
        return linear_in_last(lambda *given: x_of(solved(*given)), transposed, fixed, v)

    def transposed(moving: Any, others: Any, used: Any, also: Any, v: Tree) -> Tree:
        turned = linear_transpose(lambda x: product(moving, others, x), v)
        settings = backward or solve, solve, symmetric, has_aux
        return x_of(custom_linear_solve(lambda y: turned(y)[0], v, *settings))

    return solved(product.moving, product.others, *still(search), right)


def still(search: Closed) -> tuple[Any, Any]:
    """What a search found outside: how it searches has no derivative."""
    return stop_gradient(search.moving), search.others


def linear(
    forwards: Function, backwards: Function, fixed: Sequence[Array], moving: Sequence[Array]
) -> list[Array]:
    """A call that is linear in `moving` and knows its transpose."""
    trace = current_trace()
    if trace is None:
        return list(forwards(*fixed, *moving))
    kinds: list[ArrayType] = [x.type for x in (*fixed, *moving)]
    ahead, back = (trace_leaves("solve", f, kinds).graph for f in (forwards, backwards))
    first, second = ([node_of(x, trace) for x in part] for part in (fixed, moving))
    gives = tuple(x.type for x in moving)
    return [TracedArray.of(node, trace) for node in make_linear(ahead, back, first, second, gives)]


# -- roots -----------------------------------------------------------------------------------------


def custom_root(
    f: Function,
    initial_guess: Tree,
    solve: Function,
    tangent_solve: Function,
    has_aux: bool = False,
) -> Tree:
    """x with f(x) = 0, found by `solve(f, initial_guess)`; its derivative in what f uses follows
    from f alone (the implicit function theorem).

    tangent_solve  tangent_solve(g, y) gives x with g(x) = y for a linear g, in a way that can be
                   differentiated: by division, or by `custom_linear_solve`

    >>> import tetrad as td
    >>> newton = lambda f, x: td.fori_loop(0, 8, lambda i, x: x - f(x) / td.grad(f)(x), x)
    >>> root = lambda a: td.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> td.grad(root)(4.0)
    Array(0.25, float32)
    """
    guess = arrays_of(initial_guess)
    if current_trace() is None:
        return solve(f, guess)
    value = Closed("f", f, guess)
    search = Closed("solve", lambda x: solve(f, x), guess)

    @custom_jvp
    def rooted(moving: Any, others: Any, used: Any, also: Any, start: Tree) -> Tree:
        return search(used, also, start)

    @rooted.defjvp
    def _rooted_jvp(primals: Any, tangents: Any) -> Any:
        moving, others = primals[:2]
        found = rooted(*primals)
        x = found[0] if has_aux else found
        right = change_in(lambda m: value(m, others, x), moving, tangents[0], x)
        slope = lambda y: jvp(lambda z: value(moving, others, z), (x,), (arrays_of(y),))[1]  # noqa: E731
        change = negative(tangent_solve(slope, right))
        if has_aux:
            return found, (change, tree_map(lambda a: apply("multiply", a, 0), found[1]))
        return found, change

    return rooted(value.moving, value.others, *still(search), stop_gradient(guess))
