"""The graph language, custom: calls that transforms treat in a way of their own. To compute with,
all are plain calls.

    custom_call       a function whose derivative somebody else gives: `rule`
                      (transforms.custom_rules) says what it is
    checkpoint_call   a function whose inside is computed again for its derivative, not kept
    linear_call       a function linear in its last operands, whose transpose is given, not derived

`passes.inline_custom` gives the program as it is compiled, with none of them and without stopped
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
    """forward(operands), linear in those after the first `fixed`; backward takes these and
    cotangents of results."""
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
    """`policy`: what of the inside is kept nevertheless (derive.custom)."""
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
