"""Passes, rewrite: the rule engine. A rewrite is a pattern and a function that returns the better
node.

Receives a node or a graph, returns it with the rules applied bottom-up until none fires. A pattern
is written with the op functions that users call, applied to variables. A rule that is not bit-exact
names its licence.

    layout = Rules("layout")
    x, p, q = var("x"), var("p"), var("q")

    @layout.rule(transpose(transpose(x, perm=p), perm=q))
    def compose_transposes(x: Node, p: Axes, q: Axes) -> Node:
        ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from tetrad.core.errors import CompileError
from tetrad.core.op import Op
from tetrad.core.record import field, record
from tetrad.core.source import taken_from
from tetrad.core.types import ArrayType
from tetrad.graph.build import constant, make_constant, make_graph, with_inputs
from tetrad.graph.constants import Number, constant_value
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.ops.arithmetic import add, multiply, negative, subtract
from tetrad.ops.movement import expand
from tetrad.ops.quotients import divide

Axes = tuple[int, ...]
Bindings = dict[str, Any]
FIRINGS_PER_NODE = 50  # more on average: rules that do not terminate


# -- patterns --------------------------------------------------------------------------------------


class Pattern:
    """A shape of expression to match. Python's operators build patterns of their ops."""

    __slots__ = ()

    @staticmethod
    def __tetrad_op__(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Applied:
        return Applied(op, args, tuple(sorted(params.items())))

    def __add__(self, other: Any) -> Applied:
        return Applied(add, (self, other))

    def __radd__(self, other: Any) -> Applied:
        return Applied(add, (other, self))

    def __sub__(self, other: Any) -> Applied:
        return Applied(subtract, (self, other))

    def __rsub__(self, other: Any) -> Applied:
        return Applied(subtract, (other, self))

    def __mul__(self, other: Any) -> Applied:
        return Applied(multiply, (self, other))

    def __rmul__(self, other: Any) -> Applied:
        return Applied(multiply, (other, self))

    def __truediv__(self, other: Any) -> Applied:
        return Applied(divide, (self, other))

    def __rtruediv__(self, other: Any) -> Applied:
        return Applied(divide, (other, self))

    def __neg__(self) -> Applied:
        return Applied(negative, (self,))


@record(eq=False)
class Var(Pattern):
    """Matches any node (or the value of a param). If it occurs twice, both must be the same."""

    name: str
    ops: tuple[Op, ...] = ()  # none given: any node
    where: Callable[[Any], bool] | None = None


@record(eq=False)
class Applied(Pattern):
    """Matches a node of one op: operands by pattern, a plain number by a constant of that value,
    params by value."""

    op: Op
    args: tuple[Any, ...]
    params: tuple[tuple[str, Any], ...] = ()


def var(name: str, *, ops: tuple[Op, ...] = (), where: Callable[[Any], bool] | None = None) -> Var:
    """A variable of a pattern; `ops` and `where` restrict what it matches."""
    return Var(name, ops, where)


def match(pattern: Any, found: Any) -> Bindings | None:
    """The values of the variables if `found` matches the pattern, else None."""
    bindings: Bindings = {}
    return bindings if _match(pattern, found, bindings) else None


def _match(pattern: Any, found: Any, bindings: Bindings) -> bool:
    if isinstance(pattern, Var):
        if pattern.name in bindings:
            known = bindings[pattern.name]
            return known is found if isinstance(found, Node) else bool(known == found)
        bindings[pattern.name] = found
        fits = not pattern.ops or (isinstance(found, Node) and found.op in pattern.ops)
        return fits and (pattern.where is None or pattern.where(found))
    if isinstance(pattern, Applied):
        return isinstance(found, Node) and _match_node(pattern, found, bindings)
    if isinstance(found, Node):
        return is_number(constant_value(found), pattern)
    return bool(pattern == found)


def _match_node(pattern: Applied, node: Node, bindings: Bindings) -> bool:
    if (
        node.op is not pattern.op
        or len(node.inputs) != len(pattern.args)
        or len(node.params) != len(pattern.params)
    ):
        return False
    pairs = zip(pattern.params, node.params, strict=True)
    if not all(
        name == other and _match(want, value, bindings) for (name, want), (other, value) in pairs
    ):
        return False
    return all(
        _match(arg, operand, bindings)
        for arg, operand in zip(pattern.args, node.inputs, strict=True)
    )


# -- constants in patterns and rules ---------------------------------------------------------------


def is_number(value: Number | None, wanted: Any) -> bool:
    """Equal, including the sign of zero: `x + 0` in a pattern means +0.0 for floats."""
    if value is None or isinstance(value, bool) != isinstance(wanted, bool) or value != wanted:
        return False
    return math.copysign(1, value) == math.copysign(1, wanted)


def full(value: Number, kind: ArrayType) -> Node:
    """A constant with one value, broadcast to a type."""
    scalar = make_constant(np.asarray(value, kind.dtype.np))
    result: Node = scalar if kind.shape == () else expand(scalar, shape=kind.shape)
    return result


# -- rules -----------------------------------------------------------------------------------------

Action = Callable[..., Node | None]


@record(eq=False)
class Rule:
    """One rewrite: any of its patterns, and the function that builds the replacement."""

    name: str  # layout.compose_transposes
    patterns: tuple[Pattern, ...]
    action: Action
    licence: str | None

    @property
    def sentence(self) -> str:
        """before -> after, from the docstring."""
        return (self.action.__doc__ or "").strip().splitlines()[0]


@record(eq=False)
class Fired:
    """A rule replaced one node by another."""

    rule: Rule
    before: Node
    after: Node

    def __str__(self) -> str:
        place = "" if self.before.source is None else f"   # {self.before.source}"
        return (
            f"{self.rule.name}: {self.before.op.name} {self.before.type} -> "
            f"{self.after.op.name}{place}"
        )


@record(frozen=False)
class RuleLog:
    """The rules that fired, in order."""

    fired: list[Fired] = field(default_factory=list)


@record(eq=False)
class _Candidate:
    """A pattern, with the quick test that most nodes fail: the ops of its operands."""

    pattern: Pattern
    rule: Rule
    operand_ops: tuple[tuple[int, frozenset[Op]], ...]

    def may_match(self, node: Node) -> bool:
        inputs = node.inputs
        for position, ops in self.operand_ops:
            if position >= len(inputs) or inputs[position].op not in ops:
                return False
        return True


class Rules:
    """A named list of rules. The first rule that matches a node fires; the result is examined
    again."""

    def __init__(self, name: str, *parts: Rules) -> None:
        self.name = name
        self.rules: list[Rule] = []
        self._by_op: dict[Op | None, list[_Candidate]] = {}
        for part in parts:
            for rule in part.rules:
                self._include(rule)

    def rule(self, *patterns: Pattern, licence: str | None = None) -> Callable[[Action], Action]:
        """Add a rule. Its function receives the values of the variables by name and returns the new
        node, or None for "not here"."""

        def include(action: Action) -> Action:
            self._include(Rule(f"{self.name}.{action.__name__}", patterns, action, licence))
            return action

        return include

    def _include(self, rule: Rule) -> None:
        self.rules.append(rule)
        for pattern in rule.patterns:
            for root in _roots(pattern):
                self._by_op.setdefault(root, []).append(
                    _Candidate(pattern, rule, _operand_ops(pattern))
                )

    @overload
    def apply(self, target: Node, trace: RuleLog | None = None) -> Node: ...
    @overload
    def apply(self, target: Graph, trace: RuleLog | None = None) -> Graph: ...

    def apply(self, target: Node | Graph, trace: RuleLog | None = None) -> Node | Graph:
        """The node or graph with no rule left to fire. Nested graphs are left to the pipeline."""
        if isinstance(target, Node):
            return self._rewrite([target], trace)[0]
        return make_graph(target.name, target.inputs, self._rewrite(target.outputs, trace))

    def _rewrite(self, roots: Sequence[Node], trace: RuleLog | None) -> list[Node]:
        """Bottom-up with an explicit stack: operands first, then the node, then its replacement."""
        final: dict[Node, Node] = {}
        became: dict[Node, Node] = {}  # rewritten, its replacement not yet final
        log: list[Fired] = []
        limit = FIRINGS_PER_NODE * sum(1 for _ in topological(roots)) + 1000
        stack = list(reversed(roots))
        while stack:
            node = stack[-1]
            waiting = [
                n for n in ((became[node],) if node in became else node.inputs) if n not in final
            ]
            if node in final:
                stack.pop()
            elif waiting:
                stack.extend(reversed(waiting))
            elif node in became:
                final[node] = final[became[node]]
            else:
                moved = with_inputs(node, tuple(final[i] for i in node.inputs))
                better = final[moved] if moved in final else self._fire(moved, log)
                if better is moved:  # no rule fits, and its operands are final
                    final[node] = final[moved] = moved
                elif len(log) > limit or any(
                    n in became and n not in final for n in (moved, better)
                ):
                    raise _restless(log)
                else:
                    became[node] = better
        if trace is not None:
            trace.fired.extend(log)
        return [final[root] for root in roots]

    def _fire(self, node: Node, log: list[Fired]) -> Node:
        """The node after the first rule that fits, or the node itself."""
        for candidate in (*self._by_op.get(node.op, ()), *self._by_op.get(None, ())):
            bindings = match(candidate.pattern, node) if candidate.may_match(node) else None
            if bindings is None:
                continue
            rule = candidate.rule
            with taken_from(node.source):
                better: Node | None = rule.action(**bindings)
            if better is None or better is node:
                continue
            if better.types != node.types:
                raise CompileError(
                    f"rule {rule.name} turned {node.types} into {better.types}", source=node.source
                )
            log.append(Fired(rule, node, better))
            return better
        return node


def _roots(pattern: Pattern) -> tuple[Op | None, ...]:
    """The ops that the root of a pattern can have; None if any."""
    if isinstance(pattern, Applied):
        return (pattern.op,)
    return (pattern.ops or (None,)) if isinstance(pattern, Var) else ()


def _operand_ops(pattern: Pattern) -> tuple[tuple[int, frozenset[Op]], ...]:
    """For each operand that is no free variable, the ops it can have. A number is a constant, maybe
    broadcast."""
    if not isinstance(pattern, Applied):
        return ()
    roots = [
        _roots(arg) if isinstance(arg, Pattern) else (constant, expand) for arg in pattern.args
    ]
    return tuple(
        (i, frozenset(filter(None, ops))) for i, ops in enumerate(roots) if None not in ops
    )


def _restless(log: Sequence[Fired]) -> CompileError:
    """The error for rules that do not terminate: they undo each other, or fire for ever."""
    names = ", ".join(dict.fromkeys(f.rule.name for f in log[-10:]))
    return CompileError(
        f"rewrite rules do not come to rest: {names}", hint="one of them undoes another"
    )
