"""Transforms, custom: functions that bring their own derivative, or have none.

Receives Python functions and the rules users write for them; inside a trace a call becomes a node
of `graph.custom`, outside it just runs. A rule is traced when a derivative asks for it. Names and
arguments are JAX's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce, update_wrapper
from itertools import zip_longest
from operator import add
from typing import Any, NoReturn

from tetrad.arrays.creation import zeros_like
from tetrad.core.errors import TraceError
from tetrad.core.record import record
from tetrad.core.sizes import Size
from tetrad.core.source import Source, user_source
from tetrad.core.tree import LEAF, NODES, TreeDef, flatten, sketch, take, tree_map, unflatten
from tetrad.core.types import ArrayType
from tetrad.graph.build import (
    filled,
    fresh_like,
    make_constant,
    make_graph,
    make_parameter,
    rebuild,
    spliced,
)
from tetrad.graph.custom import make_custom
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.movement import stop_gradient as stop_op
from tetrad.tracing.array import Array, TracedArray, fail, node_of, noun_of
from tetrad.tracing.context import Trace, current_trace, stack, with_axes
from tetrad.tracing.effects import note
from tetrad.tracing.operands import as_array, convert, traced
from tetrad.tracing.signature import Arguments, Signature, check_function, chosen, signature_of
from tetrad.tracing.trace import ArgumentKind, Traced, kinds_of, trace_function
from tetrad.transforms.custom_rules import JvpRule, Rule, VjpRule
from tetrad.transforms.forward import is_differentiable

Function = Callable[..., Any]
Positions = int | Sequence[int]
Names = str | Sequence[str]
ASTYPE = "convert it with astype"
TURNED = "td.sum over axes that were broadcast, td.broadcast_to over those that were summed"


def stop_gradient(x: Any) -> Any:
    """The same values, which no derivative sees change.

    >>> import tetrad as td
    >>> td.grad(lambda x: x * td.stop_gradient(x))(3.0)
    Array(3., float32)
    """
    leaves, shape = flatten(x)
    return unflatten(shape, [stop_op(as_array(leaf)) for leaf in leaves])


@record
class Site:
    """One call of a function inside a trace."""

    name: str
    traced: Traced
    arguments: Arguments
    kinds: tuple[ArrayType, ...]
    source: Source | None
    axes: tuple[tuple[Any, Size], ...]  # names that `vmap` had given there
    known: tuple[TracedArray, ...] = ()  # what it was called with, where Python may ask for it

    @property
    def tree(self) -> TreeDef:
        """Of the positional arguments."""
        return self.arguments.tree.parts[0]


def record_site(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    hint: str = "list it in static_argnums",
    asked: Trace | None = None,
) -> tuple[Site, list[Array]]:
    """The call traced; `hint`: what to do with an argument that is no array; `asked`: where values
    of the arguments are, which Python may ask for."""
    signature = signature_of(function, (), ())
    arguments = signature.arguments(args, kwargs)
    try:
        kinds_of(signature, arguments)
    except TraceError as error:
        raise TraceError(error.message, source=error.source, hint=hint) from None
    leaves = [as_array(leaf) for leaf in arguments.leaves]
    known = known_in(asked, leaves)
    kinds = tuple(x.type for x in leaves)
    made = trace_function(
        signature, function, arguments, list(map(ArgumentKind, kinds)), known=known
    )
    known += known_in(asked, made.captured)
    site = Site(signature.name, made, arguments, kinds, user_source(), stack.axes, known)
    return site, [*leaves, *made.captured]


def known_in(trace: Trace | None, arrays: Iterable[Array]) -> tuple[TracedArray, ...]:
    """The arrays as they are now, in a trace that runs on values."""
    if trace is None or not (trace.values or trace.known):
        return ()
    return tuple(TracedArray.of(node_of(x, trace), trace) for x in arrays)


def returned(site: Site, nodes: Sequence[Any]) -> Any:
    outer = current_trace()
    if outer is None:
        fail(TraceError, f"{site.name}: the enclosing trace has ended")
    note(outer, nodes)
    return take(site.traced.tree, (TracedArray.of(node, outer) for node in nodes))


def without(fun: Function, args: Sequence[Any], fixed: Iterable[int]) -> tuple[Function, list[Any]]:
    """The function of the arguments that are not fixed, and those arguments."""
    places = {p for p in fixed if p < len(args)}  # what is not passed has a default

    def inner(*rest: Any, **kwargs: Any) -> Any:
        values = iter(rest)
        return fun(*(a if i in places else next(values) for i, a in enumerate(args)), **kwargs)

    if not places:
        return fun, list(args)
    inner.__name__ = getattr(fun, "__name__", "function")
    return inner, [a for i, a in enumerate(args) if i not in places]


# -- custom rules ----------------------------------------------------------------------------------


class _Custom:
    """What functions with custom rules share: where a trace is active, a call is a node that knows
    its rule."""

    kind = ""

    def __init__(
        self, fun: Function, nondiff_argnums: Positions = (), nondiff_argnames: Names = ()
    ) -> None:
        check_function(self.kind, fun)
        update_wrapper(self, fun)
        self.fun = fun
        self.fixed = tuple(sorted(chosen(fun, nondiff_argnums, nondiff_argnames, "nondiff")[0]))
        self.ahead = False  # a rule is being traced early

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.check_rule()
        outer = current_trace()
        if outer is None:
            return self.fun(*args, **kwargs)
        args = self.positional(args, kwargs)
        inner, arrays = without(self.fun, args, self.fixed)
        site, operands = record_site(
            inner, arrays, {}, "list it in nondiff_argnums or nondiff_argnames", outer
        )
        fixed = [args[i] for i in self.fixed]
        nodes = [node_of(x, outer) for x in operands]
        rule = self.rule(site, fixed)
        if any(isinstance(value, TracedArray) for value in site.traced.captured):
            self.look_ahead(rule)
        return returned(site, make_custom(site.traced.graph, nodes, rule, site.source))

    def look_ahead(self, rule: Rule) -> None:
        """Traces the rule now, as long as the traces live whose values it uses; not what it calls
        itself, again."""
        if self.ahead:
            return
        self.ahead = True
        try:
            rule.derivative() if isinstance(rule, JvpRule) else rule.backward()
        finally:
            self.ahead = False

    def positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments in their places, defaults too: rules know places only."""
        try:
            signature = inspect.signature(self.fun)
        except ValueError:  # built-in functions without a signature
            return args
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if named := ", ".join(name for name in bound.kwargs if name in kwargs):
            self.wrong(
                f"{named} cannot be passed by name here, it has no place",
                "rules know arguments by position",
            )
        return bound.args

    def with_held(self, site: Site, made: Traced) -> tuple[Traced, list[Node]]:
        """A rule that takes what the function found outside as parameters of its own; all else is a
        constant."""
        held = [make_parameter(value.type, -1, fresh=True) for value in site.traced.captured]
        places = {identity(value): p for value, p in zip(site.traced.captured, held, strict=True)}
        count = len(made.graph.inputs) - len(made.captured)
        own, extra = made.graph.inputs[:count], made.graph.inputs[count:]
        pairs = zip(extra, made.captured, strict=True)
        known = {
            p: places[identity(v)] if identity(v) in places else self.constant(site, v)
            for p, v in pairs
        }
        return Traced(
            make_graph(made.graph.name, own, rebuild(made.graph.outputs, known)), made.tree, ()
        ), held

    def constant(self, site: Site, value: Array) -> Node:
        if isinstance(value, TracedArray):
            message = (
                f"{self.kind}: the rule of {site.name} uses a traced value from outside, "
                f"{site.name} does not"
            )
            raise TraceError(message, source=site.source, hint="pass it as an argument")
        return make_constant(value.memory, value.type)

    def check_rule(self) -> None:
        raise NotImplementedError

    def rule(self, site: Site, fixed: list[Any]) -> Rule:
        raise NotImplementedError

    def wrong(self, what: str, hint: str | None = None) -> NoReturn:
        fail(TraceError, f"{self.kind}: {what}", hint)


class custom_jvp(_Custom):
    """A function with a forward derivative of its own, from which the reverse one follows.

    >>> import tetrad as td
    >>> @td.custom_jvp
    ... def double(x):
    ...     return x + x
    >>> @double.defjvp
    ... def double_jvp(primals, tangents):
    ...     return double(*primals), 2.5 * tangents[0]
    >>> td.grad(double)(1.0)
    Array(2.5, float32)
    """

    kind = "custom_jvp"

    def __init__(
        self, fun: Function, nondiff_argnums: Positions = (), nondiff_argnames: Names = ()
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Function | None = None

    def defjvp(self, jvp: Function, symbolic_zeros: bool = False) -> Function:
        """Give the rule: jvp(*nondiff arguments, primals, tangents) -> (value, change of the
        value).

        With `symbolic_zeros` too all tangents are arrays: a rule that asks which of them are zero
        finds none.
        """
        self.jvp = jvp
        return jvp

    def defjvps(self, *jvps: Function | None) -> None:
        """Give one rule for each argument: jvp(tangent, value, *arguments) -> what it adds to the
        change."""

        def whole(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
            if len(jvps) != len(primals):
                name = getattr(self.fun, "__name__", "the function")
                self.wrong(
                    f"defjvps got {len(jvps)} rules, {name} was called with {len(primals)} "
                    "arguments"
                )
            value = self(*primals)
            parts = [
                rule(t, value, *primals)
                for rule, t in zip(jvps, tangents, strict=True)
                if rule is not None
            ]
            return value, tree_map(total_change, value, *parts)

        self.jvp = whole

    def check_rule(self) -> None:
        if self.jvp is None:
            self.wrong(
                f"{getattr(self.fun, '__name__', 'the function')} has no rule yet",
                "give one with defjvp",
            )

    def rule(self, site: Site, fixed: list[Any]) -> Rule:
        return JvpRule(
            site.name, len(site.kinds), _once(lambda: self.derivative(site, fixed), site)
        )

    def derivative(self, site: Site, fixed: list[Any]) -> Graph:
        """operands..., tangents... -> results..., tangents of the results."""
        count = len(site.kinds)

        def both(*leaves: Any) -> Any:
            given = unflatten(site.tree, leaves[:count]), unflatten(site.tree, leaves[count:])
            found = self.jvp(*fixed, *given)  # type: ignore[misc]
            if not isinstance(found, tuple | list) or len(found) != 2:
                self.wrong(
                    f"the rule of {site.name} must return a pair (value, tangent), it returned "
                    f"{count_of(found)}",
                    "return value, tangent; both have the tree and the types of the result",
                )
            changes, shape = flatten(found[1])
            kinds = [o.type for o in site.traced.graph.outputs]
            return found[0], unflatten(
                shape, [as_kind(x, k) for x, k in zip_longest(changes, kinds[: len(changes)])]
            )

        kinds = [*site.kinds, *site.kinds]
        made, held = self.with_held(
            site, trace_leaves(f"{site.name}.jvp", both, kinds, site.known[:count])
        )
        wanted = [o.type for o in site.traced.graph.outputs]
        came = [o.type for o in made.graph.outputs]
        halves = came[: len(wanted)], came[len(wanted) :]
        for tree, types, what in zip(made.tree.parts, halves, ("value", "tangent"), strict=True):
            check_leaves(self, tree, site, types, wanted, what)
        own = made.graph.inputs
        inputs = [*own[:count], *held, *own[count:], *fresh_like(held)]
        return make_graph(made.graph.name, inputs, made.graph.outputs)


def total_change(value: Any, *changes: Any) -> Any:
    return reduce(add, changes) if changes else zeros_like(as_array(value))


@record(eq=False)
class Primal:
    """An argument leaf as a forward rule with `symbolic_zeros` sees it."""

    value: Array
    perturbed: bool


class custom_vjp(_Custom):
    """A function with a reverse derivative of its own.

    >>> import tetrad as td
    >>> @td.custom_vjp
    ... def clip_gradient(x):
    ...     return x
    >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, ct: (td.clip(ct, -1, 1),))
    >>> td.grad(lambda x: 10 * clip_gradient(x))(1.0)
    Array(1., float32)
    """

    kind = "custom_vjp"

    def __init__(
        self, fun: Function, nondiff_argnums: Positions = (), nondiff_argnames: Names = ()
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Function | None = None
        self.bwd: Function | None = None
        self.wraps = False

    def defvjp(
        self,
        fwd: Function,
        bwd: Function,
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Give the rule: fwd(*arguments) -> (value, kept); bwd(*nondiff, kept, cotangent) -> one
        for each argument.

        With `symbolic_zeros` fwd gets leaves with a `value` and `perturbed`, which is true of all
        that can change.
        """
        self.fwd, self.bwd, self.wraps = fwd, bwd, symbolic_zeros

    def check_rule(self) -> None:
        if self.fwd is None or self.bwd is None:
            self.wrong(
                f"{getattr(self.fun, '__name__', 'the function')} has no rule yet",
                "give one with defvjp",
            )

    def rule(self, site: Site, fixed: list[Any]) -> Rule:
        forward = _once(lambda: self.forward(site, fixed), site)
        backward = _once(lambda: self.backward(site, fixed, forward()), site)
        return VjpRule(site.name, len(site.kinds), lambda: forward().graph, backward)

    def forward(self, site: Site, fixed: list[Any]) -> Traced:
        """operands... -> results..., residuals..., what the function found outside."""

        def run(*leaves: Any) -> Any:
            given = [Primal(x, is_differentiable(x.type)) for x in leaves] if self.wraps else leaves
            rest = iter(unflatten(site.tree, given))
            total = len(fixed) + len(site.tree.parts)
            held = iter(fixed)
            args = [next(held) if i in self.fixed else next(rest) for i in range(total)]
            found = self.fwd(*args)  # type: ignore[misc]
            if not isinstance(found, tuple) or len(found) != 2:
                wanted = "a pair (value, what the backward rule needs)"
                message = (
                    f"the forward rule of {site.name} must return {wanted}, it returned "
                    f"{count_of(found)}"
                )
                self.wrong(message, "return value, None if it needs nothing")
            return found

        made, held = self.with_held(
            site, trace_leaves(f"{site.name}.fwd", run, site.kinds, site.known)
        )
        kinds = [o.type for o in site.traced.graph.outputs]
        found = [o.type for o in made.graph.outputs[: len(kinds)]]
        check_leaves(self, made.tree.parts[0], site, found, kinds, "value")
        graph = make_graph(
            made.graph.name, [*made.graph.inputs, *held], [*made.graph.outputs, *held]
        )
        return Traced(graph, made.tree, ())

    def backward(self, site: Site, fixed: list[Any], forward: Traced) -> Graph:
        """residuals..., cotangents of the results that are floats -> a cotangent for each
        operand."""
        results = [o.type for o in site.traced.graph.outputs]
        outside = len(site.traced.captured)
        residuals = [
            o.type
            for o in forward.graph.outputs[len(results) : len(forward.graph.outputs) - outside]
        ]
        seeds = [kind for kind in results if is_differentiable(kind)]

        def run(*leaves: Any) -> Any:
            kept = unflatten(forward.tree.parts[1], leaves[: len(residuals)])
            rest = iter(leaves[len(residuals) :])
            given = [next(rest) if is_differentiable(kind) else None for kind in results]
            found = self.bwd(*fixed, kept, unflatten(site.traced.tree, given))  # type: ignore[misc]
            return self.cotangents(site, found)

        values = known_outputs(site, forward.graph)[len(results) :][: len(residuals)]
        made, held = self.with_held(
            site, trace_leaves(f"{site.name}.bwd", run, [*residuals, *seeds], values)
        )
        own, count = made.graph.inputs, len(residuals)
        none = [filled(0, p.type) for p in held]  # of what is fixed nobody asks for a cotangent
        inputs = [*own[:count], *held, *own[count:]]
        return make_graph(made.graph.name, inputs, [*made.graph.outputs, *none])

    def cotangents(self, site: Site, found: Any) -> list[Any]:
        """One for each operand leaf, of its type; None stands for zeros."""
        if not isinstance(found, tuple | list) or len(found) != len(site.tree.parts):
            wanted = f"a tuple of {len(site.tree.parts)}, one for each argument"
            message = (
                f"the backward rule of {site.name} must return {wanted}, it returned "
                f"{count_of(found)}"
            )
            self.wrong(message, "(g,) for one")
        leaves: list[Any] = []
        for number, (part, tree) in enumerate(zip(found, site.tree.parts, strict=True)):
            given = leaves_below(tree, part)
            if given is None:
                wanted = (
                    f"the tree of argument {number}, {sketch(tree)}, it returned "
                    f"{sketch(flatten(part)[1])}"
                )
                self.wrong(
                    f"the backward rule of {site.name} must return {wanted}",
                    "None stands for zeros",
                )
            leaves += given
        return [self.cotangent(site, i, leaf) for i, leaf in enumerate(leaves)]

    def cotangent(self, site: Site, i: int, leaf: Any) -> Array:
        kind = site.kinds[i]
        if leaf is None or not is_differentiable(kind):
            return zeros_in_trace(kind)
        array = as_array(as_kind(leaf, kind))
        if array.type != kind:
            message = (
                f"the backward rule of {site.name} returned {array.type} for an argument leaf that "
                f"is {kind}"
            )
            self.wrong(message, ASTYPE if array.shape == kind.shape else TURNED)
        return array


def count_of(found: Any) -> str:
    """What a rule gave, where a tuple was wanted."""
    if isinstance(found, tuple):
        return str(len(found))
    return f"a list of {len(found)}" if isinstance(found, list) else noun_of(found)


def leaves_below(tree: TreeDef, part: Any) -> list[Any] | None:
    """The leaves of a tree that must have this shape, where None may stand for any part of it; None
    if it has not."""
    if part is None:
        return [None] * tree.num_leaves
    if tree.container is not type(part):
        return [part] if tree.container is None and flatten(part)[1] is LEAF else None
    children, data = NODES[type(part)].flatten(part)
    if data != tree.data or len(children) != len(tree.parts):
        return None
    below = [leaves_below(shape, child) for shape, child in zip(tree.parts, children, strict=True)]
    return None if None in below else [leaf for leaves in below for leaf in leaves or ()]


def as_kind(x: Any, kind: ArrayType | None) -> Any:
    """A number of Python takes the dtype of what it stands for."""
    is_number = type(x) in (int, float) and kind is not None and is_differentiable(kind)
    return convert(x, kind.dtype) if is_number and kind is not None else x


def zeros_in_trace(kind: ArrayType) -> Array:
    zero = traced(as_array(0)).astype(kind.dtype)
    return zero if not kind.shape else zero._call("broadcast_to", kind.shape)


def _once(make: Callable[[], Any], site: Site) -> Callable[[], Any]:
    """The same result for every call, made by the first, with the names of axes that are known at
    the site."""
    found: list[Any] = []

    def get() -> Any:
        if not found:
            with with_axes(site.axes):
                found.append(make())
        return found[0]

    return get


def identity(x: Array) -> Hashable:
    """Of a traced array its node, of any other its memory."""
    if isinstance(x, TracedArray):
        return id(x.node)
    return x.memory.__array_interface__["data"][0], x.memory.strides, x.type


def known_outputs(site: Site, graph: Graph) -> list[TracedArray]:
    """What a graph of the operands gives there, if Python may ask for it."""
    if not site.known:
        return []
    home = site.known[0].home_trace
    return [TracedArray.of(node, home) for node in spliced(graph, [x.node for x in site.known])]


def trace_leaves(
    name: str, function: Function, kinds: Sequence[ArrayType], known: Sequence[Array] = ()
) -> Traced:
    """A function of plain arrays, traced; `known`: values of the first, which Python may ask
    for."""
    signature = Signature(name, (), frozenset(), frozenset())
    leaves, tree = flatten((tuple(kinds), {}))
    arguments = Arguments(leaves, tree, (), ())
    return trace_function(
        signature, function, arguments, [ArgumentKind(kind) for kind in kinds], known=known
    )


def check_leaves(
    custom: _Custom,
    tree: TreeDef,
    site: Site,
    found: Sequence[ArrayType],
    wanted: Sequence[ArrayType],
    what: str,
) -> None:
    if tree != site.traced.tree:
        trees = f"{sketch(site.traced.tree)}, it returned {sketch(tree)}"
        message = (
            f"the rule of {site.name} must return a {what} with the tree of what {site.name} "
            f"returns, {trees}"
        )
        custom.wrong(message, "same containers, same keys")
    for came, kind in zip(found, wanted, strict=True):
        if came != kind and is_differentiable(kind):
            hint = (
                ASTYPE
                if came.shape == kind.shape
                else f"a {what} has the shape of what {site.name} returns"
            )
            custom.wrong(
                f"the rule of {site.name} returned a {what} of {came}, it must be {kind}", hint
            )
