"""Graph language, culprit: the node where a bad number (nan, or an infinity) first came from.

Receives a graph and arrays for which an output holds one. Every node is computed with NumPy; from
the bad output the way goes back to the node whose operands are still good, and into the loops,
branches and calls on that way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import as_dtype
from tetrad.core.record import record, replace
from tetrad.core.types import ArrayType
from tetrad.graph.build import call, item, parameter
from tetrad.graph.evaluate import Values, bind_dims, evaluate, evaluate_node
from tetrad.graph.loops import scan, switch, while_loop
from tetrad.graph.nested import graphs_in
from tetrad.graph.nodes import Graph, Node

HINT = (
    "td.where before the op, as in td.log(td.where(x > 0, x, 1.0)), keeps both value and "
    "gradient finite; td.debug.print shows values"
)
TESTS: dict[str, Callable[[Any], Any]] = {"nan": np.isnan, "inf": np.isinf}


@record
class Culprit:
    """The node, what it was given and what it made of it; `steps`: of the loops around it. The node
    is a parameter where the bad number came from outside."""

    node: Node
    operands: tuple[np.ndarray, ...]
    results: Values
    steps: tuple[str, ...] = ()


def bad_number(array: np.ndarray, wanted: Sequence[str]) -> str | None:
    """Which of the wanted numbers is in the array, if one is."""
    if array.dtype.kind not in "fc" and array.dtype.name not in ("bfloat16", "float16"):
        return None
    return next((name for name in wanted if bool(np.any(TESTS[name](array)))), None)


def find(
    graph: Graph,
    arrays: Sequence[np.ndarray],
    wanted: Sequence[str],
    dims: Mapping[str, int] | None = None,
) -> Culprit | None:
    """The culprit, or None if no output of the graph is bad."""
    arrays = [np.asarray(a) for a in arrays]
    known = bind_dims(graph, arrays, dims or {})
    values: dict[Node, Values] = {p: (a,) for p, a in zip(graph.inputs, arrays, strict=True)}
    for node in graph.nodes():
        if node not in values:
            values[node] = evaluate_node(node, [values[i] for i in node.inputs], known)

    def is_bad(node: Node) -> bool:
        return any(bad_number(value, wanted) for value in values[node])

    bad = next((o for o in graph.outputs if is_bad(o)), None)
    while bad is not None:
        node = bad
        before = next((i for i in node.inputs if is_bad(i)), None)
        if node.op is item:  # one result of several: the others do not matter
            before = node.inputs[0]
        if before is None:
            operands = tuple(values[i][0] for i in node.inputs)
            found = Culprit(node, operands, values[node])
            return inside(node, operands, wanted, known) or found
        bad = before
    return None


def inside(
    node: Node, operands: Sequence[np.ndarray], wanted: Sequence[str], dims: Mapping[str, int]
) -> Culprit | None:
    """The culprit among the nodes of the graphs that a node holds."""
    if node.op is scan:
        return in_scan(node, operands, wanted, dims)
    if node.op is while_loop:
        return in_while(node, operands, wanted, dims)
    if node.op is switch:
        branches = node.param("branches")
        chosen = branches[min(max(int(operands[0]), 0), len(branches) - 1)]
        return find(chosen, operands[1:], wanted, dims)
    held = [g for _, value in node.params for g in graphs_in(value)]
    fits = [g for g in held if len(g.inputs) == len(operands)]
    return find(fits[0], operands, wanted, dims) if fits or node.op is call else None


def in_scan(
    node: Node, operands: Sequence[np.ndarray], wanted: Sequence[str], dims: Mapping[str, int]
) -> Culprit | None:
    body, fixed = node.param("body"), node.param("consts")
    end = fixed + node.param("carries")
    state, count = (
        list(operands[fixed:end]),
        int(operands[end].shape[0]) if operands[end:] else None,
    )
    length = node.param("length") if count is None else count
    steps = range(length - 1, -1, -1) if node.param("reverse") else range(length)
    for t in steps:
        given = [*operands[:fixed], *state, *(np.asarray(x[t]) for x in operands[end:])]
        made = evaluate(body, given, dims)
        if any(bad_number(x, wanted) for x in made):
            return in_step(find(body, given, wanted, dims), f"step {t} of the loop")
        state = made[: end - fixed]
    return None


def in_while(
    node: Node, operands: Sequence[np.ndarray], wanted: Sequence[str], dims: Mapping[str, int]
) -> Culprit | None:
    asked = node.param("condition_consts")
    end = asked + node.param("body_consts")
    state, t = list(operands[end:]), 0
    while evaluate(node.param("condition"), [*operands[:asked], *state], dims)[0]:
        given = [*operands[asked:end], *state]
        state = evaluate(node.param("body"), given, dims)
        if any(bad_number(x, wanted) for x in state):
            return in_step(find(node.param("body"), given, wanted, dims), f"step {t} of the loop")
        t += 1
    return None


def in_step(found: Culprit | None, step: str) -> Culprit | None:
    return None if found is None else replace(found, steps=(step, *found.steps))


def is_given(culprit: Culprit) -> bool:
    """Did the bad number come in with an argument?"""
    return culprit.node.op is parameter


# -- what is said of it ----------------------------------------------------------------------------


def described(culprit: Culprit, wanted: Sequence[str]) -> str:
    """`divide: the result f32[3] has nan at [1], from 0.0 and 0.0`."""
    told = described_op(culprit.node.op.name, culprit.operands, culprit.results, wanted)
    return told + "".join(f", in {step}" for step in culprit.steps)


def described_op(
    name: str, operands: Sequence[np.ndarray], results: Values, wanted: Sequence[str]
) -> str:
    result = next(x for x in results if bad_number(x, wanted))
    bad = bad_number(result, wanted) or wanted[0]
    places = np.argwhere(TESTS[bad](result))
    at = tuple(int(i) for i in places[0])
    place = f" at [{', '.join(map(str, at))}]" if at else ""
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    same = all(x.shape == result.shape for x in operands)
    given = f", from {' and '.join(str(x[at]) for x in operands)}" if operands and same else ""
    kind = ArrayType(as_dtype(result.dtype), result.shape)
    return f"{name}: the result {kind} has {bad}{place}{more}{given}"
