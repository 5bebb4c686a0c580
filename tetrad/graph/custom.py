"""Graph language, custom: calls that transforms treat in their own way. To the evaluator they are
plain calls.

    custom_call       a function with a derivative of its own: `rule` (transforms.custom_rules)
    checkpoint_call   a function whose intermediate values are recomputed for its derivative
    linear_call       a function linear in its last operands, with a transpose of its own

`passes.inline_custom` returns the program to be compiled: without these calls and without stopped
gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.errors import UnsupportedError
from tetrad.core.op import op
from tetrad.core.source import Source, user_source
from tetrad.core.types import ArrayType
from tetrad.graph.build import intern, results
from tetrad.graph.nodes import Graph, Node
from tetrad.graph.routine import routine

Types = tuple[ArrayType, ...]
Arrays = tuple[np.ndarray, ...]
Dims = Mapping[str, int] | None


def call_types(*kinds: ArrayType, graph: Graph, **_: Any) -> Types:
    return tuple(o.type for o in graph.outputs)


@op(type=call_types, kind="structural", public=False)
def custom_call(*operands: np.ndarray, graph: Graph, rule: Any, dims: Dims = None) -> Arrays:
    """graph(operands)."""
    return tuple(routine(graph, dims or {})(operands))


@op(type=call_types, kind="structural", public=False)
def checkpoint_call(
    *operands: np.ndarray, graph: Graph, policy: str | None = None, dims: Dims = None
) -> Arrays:
    """graph(operands)."""
    return tuple(routine(graph, dims or {})(operands))


def linear_types(
    *kinds: ArrayType, forward: Graph | None, backward: Graph, fixed: int, gives: Types
) -> Types:
    return gives


@op(type=linear_types, kind="structural", public=False)
def linear_call(
    *operands: np.ndarray,
    forward: Graph | None,
    backward: Graph,
    fixed: int,
    gives: Types,
    dims: Dims = None,
) -> Arrays:
    """forward(operands), linear in the operands after the first `fixed`. backward takes the first
    `fixed` operands and the cotangents of the results."""
    return tuple(routine(known_forward(forward), dims or {})(operands))


def known_forward(forward: Graph | None) -> Graph:
    if forward is None:
        message = "a function with a custom vjp has no forward derivative"
        raise UnsupportedError(
            message, hint="td.grad and td.vjp work; td.custom_jvp gives a rule for both"
        )
    return forward


def make_custom(
    graph: Graph, operands: Sequence[Node], rule: Any, source: Source | None = None
) -> tuple[Node, ...]:
    kinds = tuple(o.type for o in graph.outputs)
    params = (("graph", graph), ("rule", rule))
    return results(intern(custom_call, tuple(operands), params, kinds, source or user_source()))


def make_checkpoint(
    graph: Graph,
    operands: Sequence[Node],
    source: Source | None = None,
    *,
    policy: str | None = None,
) -> tuple[Node, ...]:
    """`policy`: which intermediate values are kept nevertheless (transforms.custom_rules)."""
    kinds = tuple(o.type for o in graph.outputs)
    params = (("graph", graph), ("policy", policy))
    return results(intern(checkpoint_call, tuple(operands), params, kinds, source or user_source()))


def make_linear(
    forward: Graph | None,
    backward: Graph,
    fixed: Sequence[Node],
    moving: Sequence[Node],
    gives: Types,
    source: Source | None = None,
) -> tuple[Node, ...]:
    params = (("backward", backward), ("fixed", len(fixed)), ("forward", forward), ("gives", gives))
    return results(intern(linear_call, (*fixed, *moving), params, gives, source or user_source()))
