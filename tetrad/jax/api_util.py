"""JAX's names: `jax.api_util`, what libraries ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.core.tree import flatten, unflatten
from tetrad.jax.core import get_aval as shaped_abstractify  # noqa: F401
from tetrad.jax.extend.linear_util import WrappedFun, wrap_init


def debug_info(traced_for: str, fun: Callable[..., Any], *_: Any, **__: Any) -> Any:
    """What an error says of a function: its name."""
    return getattr(fun, "__name__", str(fun))


def safe_map(f: Callable[..., Any], *args: Any) -> list[Any]:
    return [f(*values) for values in zip(*args, strict=True)]


def flatten_fun(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable[[], Any]]:
    """The function over leaves of its arguments, and the tree of what it gave last."""
    seen: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = unflatten(in_tree, leaves)
        found, tree = flatten(fun.call_wrapped(*args, **kwargs))
        seen.append(tree)
        return found

    return wrap_init(flat), lambda: seen[-1]


def flatten_fun_nokwargs(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable[[], Any]]:
    seen: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        found, tree = flatten(fun.call_wrapped(*unflatten(in_tree, leaves)))
        seen.append(tree)
        return found

    return wrap_init(flat), lambda: seen[-1]


def flatten_axes(name: str, treedef: Any, axis_tree: Any, **_: Any) -> list[Any]:
    """One entry of a prefix for each leaf of a tree."""
    wide: list[Any] = []

    def add(axes: Any, part: Any) -> None:
        wide.extend([axes] * len(flatten(part)[0]))

    whole = unflatten(treedef, [0] * treedef.num_leaves)
    if axis_tree is None or isinstance(axis_tree, int):
        add(axis_tree, whole)
    else:
        for axes, part in zip(axis_tree, whole, strict=True):
            add(axes, part)
    return wide
