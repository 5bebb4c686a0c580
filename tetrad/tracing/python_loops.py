"""Tracing, loops in Python: what `td.scan` and its like do while `disable_jit` is set, step by
step, with values.

Receives what the functions of `tracing.loops` receive, after they have checked it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tetrad.core.tree import flatten, tree_map, unflatten
from tetrad.tracing.context import stack
from tetrad.tracing.operands import as_array, run
from tetrad.tracing.switches import jit_is_disabled


def runs_in_python() -> bool:
    """Loops are Python's where jit is disabled and everything has a value."""
    return jit_is_disabled() and all(trace.values for trace in stack.traces)


def scan(f: Callable[..., Any], init: Any, xs: Any, length: int, reverse: bool) -> tuple[Any, Any]:
    columns, tree = flatten(xs)
    carry, rows = init, []
    for t in reversed(range(length)) if reverse else range(length):
        carry, y = f(carry, unflatten(tree, [as_array(x)[t] for x in columns]))
        rows.append(y)
    ordered = rows[::-1] if reverse else rows
    return tree_map(as_array, carry), tree_map(lambda *ys: stacked(ys), *ordered)


def stacked(ys: Sequence[Any]) -> Any:
    arrays = [as_array(y) for y in ys]
    lifted = [run("reshape", y, shape=(1, *y.type.shape)) for y in arrays]
    return run("concat", *lifted, axis=0) if len(lifted) > 1 else lifted[0]


def while_loop(condition: Callable[..., Any], body: Callable[..., Any], value: Any) -> Any:
    value = tree_map(as_array, value)
    while bool(condition(value)):
        value = tree_map(as_array, body(value))
    return value
