"""JAX's names: `jax.extend.linear_util`: a function in a wrapper, as the interpreters of JAX take
it. There are none here, so it is only called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class WrappedFun:
    """A function and its settings."""

    def __init__(self, f: Callable[..., Any], params: dict[str, Any]) -> None:
        self.f, self.params = f, params

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **{**self.params, **kwargs})


def wrap_init(f: Callable[..., Any], params: Any = None, **_: Any) -> WrappedFun:
    return WrappedFun(f, dict(params or {}))


def transformation(f: Callable[..., Any]) -> Callable[..., Any]:
    """A part of an interpreter of JAX: it is kept, and cannot run."""
    return f


transformation_with_aux = transformation
