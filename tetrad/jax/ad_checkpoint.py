"""JAX's names: `jax.ad_checkpoint`: what a derivative keeps, and what it computes again.

Policies by name are taken and kept simple: values with names are computed again like others (or
kept like others, where the policy keeps all but some). Results are the same, memory differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td

TABLE = tables.same("checkpoint remat")
NOTHING, EVERYTHING = "nothing_saveable", "everything_saveable"
DOTS = "dots_with_no_batch_dims_saveable"


def checkpoint_name(x: Any, name: str) -> Any:
    """The value; its name is for policies."""
    return x


def named(policy: str) -> Callable[..., str]:
    """A policy of names: they are not looked at."""

    def chosen(*names: Any, **settings: Any) -> str:
        return policy

    return chosen


def save_from_both_policies(first: str, second: str) -> str:
    """The one of two policies that keeps more."""
    order = (NOTHING, DOTS, "dots_saveable", EVERYTHING)
    return max(first, second, key=order.index)


class CheckpointPolicies:
    """`jax.checkpoint_policies`."""

    save_only_these_names = staticmethod(named(NOTHING))
    save_any_names_but_these = staticmethod(named(NOTHING))
    save_anything_except_these_names = staticmethod(named(EVERYTHING))
    save_and_offload_only_these_names = staticmethod(named(NOTHING))
    offload_dot_with_no_batch_dims = staticmethod(named(DOTS))
    save_from_both_policies = staticmethod(save_from_both_policies)

    def __getattr__(self, name: str) -> Any:
        return getattr(td.checkpoint_policies, name)


checkpoint_policies = CheckpointPolicies()


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print what the derivative of a call keeps, one array a line."""
    for kept in td.tree.leaves(td.vjp(lambda *xs: f(*xs, **kwargs), *args)[1]):
        shape = ",".join(map(str, kept.shape))
        print(f"{kept.dtype}[{shape}] kept for the derivative of {getattr(f, '__name__', f)}")


def __getattr__(name: str) -> Any:
    return tables.reexported(globals(), TABLE, name)
