"""The public names: what NumPy and JAX call otherwise. Loaded when a name is asked for that is not
here.

Receives a name, returns what to say of it: the name or the expression that stands for it, or one
that is spelt alike.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tetrad.arrays import meanings
from tetrad.core import lazy

NEAR = 0.85  # how alike two names are spelt: gradient and randint are not
NAMES = {
    "broadcast_in_dim": "broadcast_to",
    "clamp": "clip",
    "div": "divide", "eq": "equal", "ge": "greater_equal",
    "gt": "greater", "is_finite": "isfinite", "jacobian": "jacrev",
    "bessel_i0e": "special.i0e", "bessel_i1e": "special.i1e", "beta": "special.beta",
    "erf_inv": "special.erfinv", "gamma": "special.gamma", "lbeta": "special.betaln",
    "le": "less_equal", "lgamma": "special.gammaln", "mvlgamma": "special.multigammaln",
    "logistic": "nn.sigmoid", "lt": "less",
    "make_jaxpr": "trace",
    "mul": "multiply", "ne": "not_equal", "neg": "negative", "pmap": "vmap",
    "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod",
    "reduce_sum": "sum", "rem": "remainder", "rev": "flip",
    "select_n": "where", "sub": "subtract",
    "tree_util": "tree",
}  # fmt: skip
EXPRESSIONS = {
    "PRNGKey": "td.random.key", "convert_element_type": "x.astype(dtype)",
    "custom_gradient": "td.custom_vjp",
    "dot_general": "td.einsum",
    "iota": "td.arange", "lax": "td itself: td.scan, td.cond, ...",
    "numpy": "td itself: td.sum, td.einsum, ...",
    "rand": "td.random.uniform(key, shape)", "randn": "td.random.normal(key, shape)",
    "tensor": "td.asarray",
}  # fmt: skip
METHODS = {
    "cpu": "np.asarray(x)", "detach": "td.stop_gradient(x)",
    "dim": "x.ndim",
    "fill": "td.full_like(x, value)",
    "flat": "x.flatten()", "norm": "td.linalg.vector_norm(x)", "numpy": "np.asarray(x)",
    "permute": "td.permute_dims(x, axes)",
    "t": "x.T",
    "unsqueeze": "td.expand_dims(x, axis)",
}  # fmt: skip
CHANGES = {  # of x.at[index]
    "div": "divide", "increment": "add", "maximum": "max", "minimum": "min", "minus": "subtract",
    "plus": "add",
    "pow": "power", "replace": "set", "sub": "subtract", "times": "multiply", "update": "set",
}  # fmt: skip
SPACES = ("special", "nn", "linalg", "random", "fft", "optim")  # the last of a name wins
INSIDE = {  # of a namespace: what its functions are called elsewhere
    "nn": {
        "attention": "td.nn.dot_product_attention", "conv": "td.nn.conv2d",
        "convolution": "td.nn.conv2d", "conv_transpose": "td.nn.conv_transpose2d",
    },
    "linalg": {
        "dot": "td.matmul", "einsum": "td.einsum", "inner": "td.vecdot",
    },
    "random": {
        "default_rng": "td.random.key", "integers": "td.random.randint",
        "rand": "td.random.uniform",
        "randn": "td.random.normal", "random": "td.random.uniform", "seed": "td.random.key",
        "shuffle": "td.random.permutation", "standard_normal": "td.random.normal",
    },
}  # fmt: skip


def advice(name: str, known: Sequence[str]) -> str:
    """What to write instead, to be put behind the message; nothing if nobody knows."""
    if name in EXPRESSIONS:
        return f"; here it is {EXPRESSIONS[name]}"
    if name in NAMES:
        return f"; here it is td.{NAMES[name]}"
    if name.startswith("_"):  # asked by programs, not by people
        return ""
    if name in meanings.FUNCTIONS:
        return f"; here it is {meanings.FUNCTIONS[name]}"
    inside = {n: f"{space}.{n}" for space in SPACES for n in space_names(space)}
    if name in inside:
        return f"; here it is td.{inside[name]}"
    near = difflib.get_close_matches(name.lower(), [*known, *inside], 1, NEAR)
    return f"; there is td.{near[0] if near[0] in known else inside[near[0]]}" if near else ""


def space_names(space: str) -> list[str]:
    names: list[str] = getattr(lazy.provided("the public namespace"), space).__all__
    return names


def absent(space: str, name: str) -> AttributeError:
    """The error for a name that a namespace has not."""
    known = space_names(space)
    here = INSIDE.get(space, {}).get(name) or meanings.INSIDE.get(space, {}).get(name)
    near = (
        []
        if here or name.startswith("_")
        else difflib.get_close_matches(name.lower(), known, 1, NEAR)
    )
    told = f"; here it is {here}" if here else f"; there is td.{space}.{near[0]}" if near else ""
    return AttributeError(f"tetrad.{space} has no function {name!r}{told}")


def instead_of_method(name: str) -> str:
    """What to write instead of a method that arrays have in NumPy or JAX: a function, mostly."""
    if told := METHODS.get(name) or meanings.METHODS.get(name):
        return f"; here it is {told}"
    public = dir(lazy.provided("the public namespace"))
    if name in NAMES:
        return f"; here it is td.{NAMES[name]}(x, ...)"
    return f"; here it is td.{name}(x, ...)" if name in public else ""


def instead_of_change(name: str, known: Sequence[str]) -> str:
    """What `x.at[index]` has: all of it, the nearest to the name first."""
    meant = CHANGES.get(name, name)
    near = sorted(
        known, key=lambda other: difflib.SequenceMatcher(None, meant, other).ratio(), reverse=True
    )
    return f"; there are {', '.join(near)}"
