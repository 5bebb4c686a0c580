"""JAX's names: `jax.ad_checkpoint`: what a derivative keeps, and what it computes again.

What would be moved to another memory is kept: there is one. A policy that keeps all but some names
keeps those too. Results are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tetrad.core.errors import UnsupportedError
from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import fail
from tetrad.transforms.custom_rules import ONLY

TABLE = tables.same("checkpoint checkpoint_name remat")
NOTHING, EVERYTHING = "nothing_saveable", "everything_saveable"
DOTS = "dots_with_no_batch_dims_saveable"
ORDER = (NOTHING, DOTS, "dots_saveable", EVERYTHING)


def save_anything_except_these_names(*names: str) -> str:
    return EVERYTHING


def save_and_offload_only_these_names(
    *, names_which_can_be_saved: Iterable[str], names_which_can_be_offloaded: Iterable[str],
    offload_src: str, offload_dst: str,
) -> Any:  # fmt: skip
    """The policy that keeps both: there is one memory."""
    return td.checkpoint_policies.save_only_these_names(
        *names_which_can_be_saved, *names_which_can_be_offloaded
    )


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> str:
    return DOTS


def save_from_both_policies(first: str, second: str) -> str:
    """The policy that keeps what either does: the one of two that keeps more, or all the names."""
    if first in ORDER and second in ORDER:
        return max(first, second, key=ORDER.index)
    for one, other in ((first, second), (second, first)):
        if one in (NOTHING, EVERYTHING):
            return other if one == NOTHING else one
    if not (first.startswith(ONLY) and second.startswith(ONLY)):
        fail(
            UnsupportedError,
            f"save_from_both_policies: {first} and {second} together are no policy",
            "join policies of products, or policies of names",
        )
    return ",".join((first, second.removeprefix(ONLY)))


OWN = {
    f.__name__: f
    for f in (
        offload_dot_with_no_batch_dims, save_and_offload_only_these_names,
        save_anything_except_these_names, save_from_both_policies,
    )
}  # fmt: skip


class CheckpointPolicies:
    """`jax.checkpoint_policies`."""

    def __getattr__(self, name: str) -> Any:
        return OWN[name] if name in OWN else getattr(td.checkpoint_policies, name)


checkpoint_policies = CheckpointPolicies()


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print what the derivative of a call keeps, one array a line."""
    for kept in td.tree.leaves(td.vjp(lambda *xs: f(*xs, **kwargs), *args)[1]):
        shape = ",".join(map(str, kept.shape))
        print(f"{kept.dtype}[{shape}] kept for the derivative of {getattr(f, '__name__', f)}")


__getattr__, __dir__ = tables.offers(globals(), TABLE)
