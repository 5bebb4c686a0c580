"""jax.checkpoint and its policies: what is kept is not computed again."""

from __future__ import annotations

import pytest

import tetrad as td
import tetrad.jax as jax
import tetrad.jax.numpy as jnp
from tetrad.graph.nested import innermost_first

POLICIES = jax.checkpoint_policies
FIRST, SECOND = (POLICIES.save_only_these_names(name) for name in ("first", "second"))


def f(x: td.Array) -> td.Array:
    y = jax.ad_checkpoint.checkpoint_name(jnp.sin(x), "first")
    return jnp.sum(jnp.exp(jax.ad_checkpoint.checkpoint_name(jnp.sin(y), "second")))


@pytest.mark.parametrize(
    ("policy", "sines"),
    [
        (POLICIES.nothing_saveable, 4),
        (POLICIES.everything_saveable, 2),
        (FIRST, 3),
        (POLICIES.save_any_names_but_these("second"), 3),
        (POLICIES.save_anything_except_these_names("second"), 2),
        (POLICIES.save_from_both_policies(FIRST, SECOND), 2),
        (POLICIES.save_from_both_policies(POLICIES.nothing_saveable, FIRST), 3),
        (POLICIES.save_from_both_policies(FIRST, POLICIES.everything_saveable), 2),
        (
            POLICIES.save_and_offload_only_these_names(
                names_which_can_be_saved=["first"], names_which_can_be_offloaded=["second"],
                offload_src="device", offload_dst="pinned_host",
            ),
            2,
        ),
    ],
)  # fmt: skip
def test_what_a_policy_keeps_is_not_computed_again(policy: str, sines: int) -> None:
    x = jnp.asarray([0.1, 0.2])
    kept = jax.checkpoint(f, policy=policy)
    graph = td.trace(jax.value_and_grad(kept))(x)
    inside = (node for part in innermost_first(graph) for node in part.nodes())
    assert sum(node.op.name == "sin" for node in inside) == sines
    assert jnp.allclose(jax.grad(kept)(x), jax.grad(f)(x))
