"""JAX's names: `jax.ad_checkpoint`: what a derivative keeps, and what it computes again.

Policies are those of `td`. There is one memory, so what JAX would move to another one is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td

TABLE = tables.same("checkpoint checkpoint_name remat")
EVERYTHING = "everything_saveable"
DOTS = "dots_with_no_batch_dims_saveable"
ONLY = "save_only_these_names:"
ORDER = ("nothing_saveable", ONLY, "save_any_names_but_these:", DOTS, "dots_saveable", EVERYTHING)


def keeps_more(policy: str) -> int:
    """The place of a policy among those that keep less and more."""
    kind, has_names, _ = policy.partition(":")
    return ORDER.index(f"{kind}{has_names}")


def save_from_both_policies(first: str, second: str) -> str:
    """The policy that keeps the names of both; of other policies the one that keeps more."""
    if first.startswith(ONLY) and second.startswith(ONLY):
        return f"{first},{second.removeprefix(ONLY)}"
    return max(first, second, key=keeps_more)


class CheckpointPolicies:
    """`jax.checkpoint_policies`: those of `td`, and what they mean by other names of JAX."""

    save_from_both_policies = staticmethod(save_from_both_policies)

    def save_anything_except_these_names(self, *names: str) -> str:
        """Keep all; the names as well, which changes no result."""
        return EVERYTHING

    def save_and_offload_only_these_names(
        self, *, names_which_can_be_saved: Sequence[str],
        names_which_can_be_offloaded: Sequence[str], offload_src: str, offload_dst: str,
    ) -> Any:  # fmt: skip
        names = [*names_which_can_be_saved, *names_which_can_be_offloaded]
        return self.save_only_these_names(*names)

    def offload_dot_with_no_batch_dims(self, offload_src: str, offload_dst: str) -> str:
        return DOTS

    def __getattr__(self, name: str) -> Any:
        return getattr(td.checkpoint_policies, name)


checkpoint_policies = CheckpointPolicies()


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print what the derivative of a call keeps, one array a line."""
    for kept in td.tree.leaves(td.vjp(lambda *xs: f(*xs, **kwargs), *args)[1]):
        shape = ",".join(map(str, kept.shape))
        print(f"{kept.dtype}[{shape}] kept for the derivative of {getattr(f, '__name__', f)}")


__getattr__, __dir__ = tables.offers(globals(), TABLE)
