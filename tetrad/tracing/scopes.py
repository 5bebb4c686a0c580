"""Tracing, scopes: names for parts of a program, which graphs and explanations show beside the
user's lines.

Receives a name; every node made inside carries it. Nothing computes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator, ExitStack
from functools import wraps
from typing import Any

from tetrad.core.errors import TraceError, an
from tetrad.core.source import in_scope
from tetrad.tracing.array import fail

Function = Callable[..., Any]


class named_scope(ContextDecorator):
    """A name for a part of a program: a context manager, and a decorator. Names of scopes inside
    each other are joined by `/`. Equal graphs are one, with the names of the first.

    >>> import tetrad as td
    >>> def attend(q, k):
    ...     with td.named_scope("attention"):
    ...         return q @ k.T
    >>> "attention" in str(td.trace(attend)(td.Spec((2, 4)), td.Spec((3, 4))))
    True
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            fail(TraceError, f"named_scope: a name is a text, got {an(type(name).__name__)}")
        self.name = name
        self._entered: list[ExitStack] = []

    def __enter__(self) -> named_scope:
        stack = ExitStack()
        stack.enter_context(in_scope(self.name))
        self._entered.append(stack)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop().close()

    def _recreate_cm(self) -> named_scope:
        """A function that is decorated may run in several threads."""
        return named_scope(self.name)


def named_call(fun: Function, *, name: str | None = None) -> Function:
    """A function whose operations carry its name.

    >>> import tetrad as td
    >>> def norm(x):
    ...     return td.sqrt(td.sum(x * x))
    >>> "norm" in str(td.trace(td.named_call(norm))(td.Spec((4,))))
    True
    """

    @wraps(fun)
    def called(*args: Any, **kwargs: Any) -> Any:
        with named_scope(name or str(getattr(fun, "__name__", type(fun).__name__))):
            return fun(*args, **kwargs)

    return called
