"""Tracing, settings: arguments of a transformed function that are no arrays, and are passed on as
they are.

Receives a call and which of its leaves are inputs; returns a function of those alone, and the call
without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from tetrad.core.tree import flatten, unflatten
from tetrad.tracing.operands import is_operand
from tetrad.tracing.trace import WIDE

Function = Callable[..., Any]
Call = tuple[Function, Sequence[Any], dict[str, Any]]


def is_values(leaf: Any) -> bool:
    """An array of some kind, rather than a number of Python, which may be a setting."""
    return is_operand(leaf) and type(leaf) not in WIDE


def without_settings(
    fun: Function, args: Sequence[Any], kwargs: dict[str, Any], is_input: list[bool]
) -> Call:
    """The call with its inputs only; the function gets the other leaves from here."""
    if all(is_input):
        return fun, args, kwargs
    leaves, tree = flatten((tuple(args), kwargs))

    def inner(*rest: Any, **named_rest: Any) -> Any:
        given = iter(flatten((rest, named_rest))[0])
        whole = [next(given) if keep else leaf for leaf, keep in zip(leaves, is_input, strict=True)]
        all_args, all_kwargs = unflatten(tree, whole)
        return fun(*all_args, **all_kwargs)

    kept = unflatten(
        tree, [leaf if keep else None for leaf, keep in zip(leaves, is_input, strict=True)]
    )
    return update_wrapper(inner, fun), kept[0], kept[1]
