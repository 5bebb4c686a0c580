"""Optim, clipping: steps that bound gradients, each element or the length of all of them
together."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32
from tetrad.core.tree import flatten, tree_map
from tetrad.optim.base import GradientTransformation, Tree, real, squared, stateless
from tetrad.optim.settings import check_positive
from tetrad.tracing.array import Array
from tetrad.tracing.operands import as_array


def clip(max_delta: float) -> GradientTransformation:
    """Each element held between -max_delta and max_delta."""
    check_positive("clip", "max_delta", max_delta)
    return stateless(
        lambda updates, params: tree_map(lambda u: td.clip(u, -max_delta, max_delta), updates)
    )


def global_norm(tree: Tree) -> Array:
    """The root of the sum of all squares in a tree.

    >>> import tetrad as td
    >>> global_norm({"w": td.asarray([3.0]), "b": td.asarray([[4.0]])})
    Array(5., float32)
    """
    sums = [squares(leaf) for leaf in flatten(tree)[0]]
    return td.sqrt(reduce(add, sums)) if sums else td.zeros(())


def squares(x: Any) -> Array:
    """The sum of squares, of narrow floats in f32: 256 squared is beyond f16."""
    x = as_array(x)
    return td.sum(real(squared(td.astype(x, f32) if x.dtype.bits < 32 else x)))


def clip_by_global_norm(max_norm: float) -> GradientTransformation:
    """All updates times one number, so that their global norm is at most max_norm.

    >>> import tetrad as td
    >>> step = clip_by_global_norm(1.0)
    >>> step.update(td.asarray([3.0, 4.0]), step.init(None))[0]
    Array([0.6, 0.8], float32)
    """
    check_positive("clip_by_global_norm", "max_norm", max_norm)

    def update(updates: Tree, params: Tree) -> Tree:
        # exactly 1 below the bound, also for norm 0
        factor = max_norm / td.maximum(global_norm(updates), max_norm)
        return tree_map(lambda u: u * td.astype(factor, as_array(u).dtype), updates)

    return stateless(update)
