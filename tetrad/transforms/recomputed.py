"""Transforms, computed again: `checkpoint`, by which a derivative keeps less and computes more.

Receives a function and a policy, returns a function whose call is one node of the graph; what is
kept of it is decided when it is linearised (`transforms.custom_rules`).
"""

from __future__ import annotations

from functools import update_wrapper
from types import SimpleNamespace
from typing import Any

from tetrad.core.errors import TraceError
from tetrad.core.tree import flatten, unflatten
from tetrad.graph.custom import make_checkpoint
from tetrad.tracing.array import fail, node_of
from tetrad.tracing.context import current_trace
from tetrad.tracing.operands import as_array, run
from tetrad.tracing.signature import check_function, chosen
from tetrad.transforms.custom import Function, record_site, returned, without
from tetrad.transforms.custom_rules import BUT, ONLY

POLICIES = (
    "nothing_saveable", "everything_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable",
)  # fmt: skip
OTHER_NAMES = {  # JAX has these too
    "checkpoint_dots": "dots_saveable",
    "checkpoint_dots_with_no_batch_dims": "dots_with_no_batch_dims_saveable",
}  # fmt: skip


def save_only_these_names(*names: str) -> str:
    """The policy that keeps what `checkpoint_name` gave one of these names."""
    return f"{ONLY}{','.join(names)}"


def save_any_names_but_these(*names: str) -> str:
    """The policy that keeps what `checkpoint_name` gave a name, but not one of these."""
    return f"{BUT}{','.join(names)}"


checkpoint_policies = SimpleNamespace(
    **{name: name for name in POLICIES}, **OTHER_NAMES,
    save_only_these_names=save_only_these_names, save_any_names_but_these=save_any_names_but_these,
)  # fmt: skip


def checkpoint_name(x: Any, name: str) -> Any:
    """A tree of arrays under a name, by which policies of `checkpoint` keep it.

    >>> import tetrad as td
    >>> policy = td.checkpoint_policies.save_only_these_names("wave")
    >>> f = td.checkpoint(lambda x: td.sin(td.checkpoint_name(td.sin(x), "wave")), policy=policy)
    >>> td.grad(f)(0.0)
    Array(1., float32)
    """
    if not isinstance(name, str) or "," in name:
        fail(TraceError, f"checkpoint_name: a name is a text without commas, got {name!r}")
    leaves, shape = flatten(x)
    return unflatten(
        shape, [run("checkpoint_name", as_array(leaf), called=name) for leaf in leaves]
    )


def checkpoint(
    fun: Function, *, prevent_cse: bool = True, policy: Any = None, static_argnums: Any = ()
) -> Function:
    """A function whose intermediate results are not kept for its derivative but computed again from
    the arguments.

    policy   one of `td.checkpoint_policies`: what is kept nevertheless; matrix products with
             `dots_saveable`

    >>> import tetrad as td
    >>> td.grad(td.checkpoint(lambda x: td.sin(td.sin(x))))(0.0)
    Array(1., float32)
    """
    check_function("checkpoint", fun)
    is_named = isinstance(policy, str) and policy.startswith((ONLY, BUT))
    if not is_named and policy not in (None, *POLICIES):
        known = ", ".join(POLICIES)
        fail(
            TraceError,
            f"checkpoint: there is no policy {policy!r}",
            f"td.checkpoint_policies has {known}",
        )
    if policy == "everything_saveable":
        return fun
    kept = policy if policy != "nothing_saveable" else None
    fixed, _ = chosen(fun, static_argnums, (), "static")

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        outer = current_trace()
        if outer is None:
            return fun(*args, **kwargs)
        inner, arrays = without(fun, args, fixed)
        site, operands = record_site(inner, arrays, kwargs)
        nodes = [node_of(x, outer) for x in operands]
        return returned(site, make_checkpoint(site.traced.graph, nodes, site.source, policy=kept))

    update_wrapper(wrapped, fun)
    return wrapped


remat = checkpoint  # JAX has both names
