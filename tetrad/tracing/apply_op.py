"""Tracing, apply an op to arrays: at once, with NumPy, or as a node of the current trace.

Receives an op and its operands; evaluates it if all are concrete, else records it. Elements of four
or eight bits are moved as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import NanError, TetradError
from tetrad.core.floats import are_plain, own_floats
from tetrad.core.op import REGISTRY, Op
from tetrad.core.source import user_source
from tetrad.core.types import ArrayType
from tetrad.graph.build import apply
from tetrad.tracing.array import (
    Array,
    Borrowed,
    TracedArray,
    array_type,
    kept,
    located,
    node_of,
    trace_of,
)
from tetrad.tracing.switches import checked_values

deferred = lazy.later("tetrad.tracing.deferred")  # products with weights of low bits


def applied(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """What an op gives for these operands."""
    if op.kind == "movement" and not op.typed and any(is_narrow(a) for a in args):
        return move_narrow(op, args, params)
    if any(isinstance(a, TracedArray) for a in args):
        return record(op, args, params)
    return evaluate(op, args, params)


def is_narrow(x: Any) -> bool:
    """Is it an array of elements of four or eight bits that are moved as bytes?"""
    return isinstance(x, Array) and x.type.dtype.is_narrow


def move_narrow(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Elements of four or eight bits are moved as bytes."""
    kind = next(a.type.dtype for a in args if is_narrow(a))
    name = "float8" if kind.is_float8 else "nibbles"
    settings = {"dtype": kind} if kind.is_float8 else {}
    wide = [REGISTRY[f"unpack_{name}"](a) if is_narrow(a) else a for a in args]
    return REGISTRY[f"pack_{name}"](op(*wide, **params), **settings)


def evaluate(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an op to concrete arrays, now, with NumPy; a tuple when it has several results."""
    if not are_plain():
        with own_floats():
            return evaluate(op, args, params)
    arrays = [a if isinstance(a, Array) else Borrowed.over(np.asarray(a)) for a in args]
    may_defer = op.kind != "elementwise" or op.converts
    if may_defer and (op.inline or any([a.is_deferred for a in arrays])):
        made = deferred.applied(op, arrays, params)
        if made is not None:
            return made
    views = [a.memory for a in arrays]
    try:
        kinds = tuple(a.type for a in arrays)
        kind = op.type(*kinds, **params)
        result = op.reference(*views, **(params | {"types": kinds} if op.typed else params))
    except TetradError as error:
        raise located(error) from None
    if wanted := checked_values():
        check_result(op, views, result, wanted)
    if isinstance(kind, tuple):
        return tuple(_made(k, np.asarray(r), arrays) for k, r in zip(kind, result, strict=True))
    found = np.asarray(result)
    if op.kind != "elementwise":
        return _made(kind, found, arrays)
    return kept(_made(kind, found.copy() if any(found is v for v in views) else found, arrays))


def check_result(op: Op, operands: Sequence[np.ndarray], result: Any, wanted: Any) -> None:
    """Refuse a number that is an error now, unless an operand has it."""
    culprits = lazy.module("tetrad.graph.culprit")
    made = tuple(map(np.asarray, result if isinstance(result, tuple) else (result,)))
    if any(culprits.bad_number(x, wanted) for x in made):
        if any(culprits.bad_number(x, wanted) for x in operands):
            return
        told = culprits.described_op(op.name, tuple(operands), made, wanted)
        raise NanError(told, source=user_source(), hint=culprits.HINT)


def _made(kind: ArrayType, view: np.ndarray, operands: Sequence[Array]) -> Array:
    made = Array.__new__(Array)
    for x in operands:
        # else it is fresh
        is_part = type(x) is Borrowed and (view.base is not None or view is x._view)
        if is_part and np.may_share_memory(view, x.memory):
            made = Borrowed.__new__(Borrowed)
    made.type, made._view, made._storage = array_type(kind.dtype, kind.shape), view, None
    return made


def record(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an op to arrays of which some are traced: a node of the current trace, a tuple for
    several results."""
    trace = trace_of(next(a for a in args if isinstance(a, TracedArray)))
    nodes = [
        node_of(a if isinstance(a, Array) else Borrowed.over(np.asarray(a)), trace) for a in args
    ]
    made = apply(op, nodes, params)
    return (
        tuple(TracedArray.of(n, trace) for n in made)
        if isinstance(made, tuple)
        else TracedArray.of(made, trace)
    )
