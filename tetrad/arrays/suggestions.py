"""The public names: what NumPy and JAX call otherwise. Loaded when a name is asked for that is not
here.

Receives a name, returns what to say of it: the name or the expression that stands for it, or one
that is spelt alike.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tetrad.core import lazy

NAMES = {
    "ShapeDtypeStruct": "Spec", "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "around": "round",
    "array": "asarray", "bitwise_not": "bitwise_invert", "broadcast_in_dim": "broadcast_to",
    "clamp": "clip",
    "concatenate": "concat", "conjugate": "conj", "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "div": "divide", "dot": "matmul", "eq": "equal", "fabs": "abs", "ge": "greater_equal",
    "gt": "greater", "invert": "bitwise_invert", "is_finite": "isfinite", "jacobian": "jacrev",
    "le": "less_equal",
    "left_shift": "bitwise_left_shift", "logistic": "nn.sigmoid", "lt": "less",
    "make_jaxpr": "trace",
    "mod": "remainder", "mul": "multiply", "ne": "not_equal", "neg": "negative", "pmap": "vmap",
    "power": "pow",
    "promote_types": "result_type", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod",
    "reduce_sum": "sum", "rem": "remainder", "rev": "flip", "right_shift": "bitwise_right_shift",
    "rint": "round",
    "select": "where", "select_n": "where", "sub": "subtract", "tree_map": "tree.map",
    "tree_util": "tree",
    "true_divide": "divide", "unique": "unique_values",
}  # fmt: skip
EXPRESSIONS = {
    "PRNGKey": "td.random.key", "convert_element_type": "x.astype(dtype)",
    "copy": "td.asarray(x, copy=True)",
    "cross": "td.linalg.cross", "custom_gradient": "td.custom_vjp", "device_put": "td.asarray(x)",
    "diagonal": "td.linalg.diagonal", "dot_general": "td.einsum",
    "hstack": "td.concat(..., axis=1)",
    "identity": "td.eye", "iota": "td.arange", "lax": "td itself: td.scan, td.cond, ...",
    "ndim": "x.ndim",
    "numpy": "td itself: td.sum, td.einsum, ...", "outer": "td.linalg.outer",
    "ravel": "td.reshape(x, (-1,))",
    "shape": "x.shape", "size": "x.size", "swapaxes": "td.moveaxis, or x.mT for the last two",
    "rand": "td.random.uniform(key, shape)", "randn": "td.random.normal(key, shape)",
    "tensor": "td.asarray",
    "vstack": "td.concat(..., axis=0)",
}  # fmt: skip
METHODS = {
    "block_until_ready": "not needed: a call returns when its results are there",
    "conjugate": "x.conj()",
    "copy": "td.asarray(x, copy=True)", "cpu": "np.asarray(x)", "detach": "td.stop_gradient(x)",
    "diagonal": "td.linalg.diagonal(x)", "dim": "x.ndim", "dot": "x @ y",
    "fill": "td.full_like(x, value)",
    "flat": "x.flatten()", "norm": "td.linalg.vector_norm(x)", "numpy": "np.asarray(x)",
    "permute": "td.permute_dims(x, axes)", "ravel": "x.flatten()",
    "swapaxes": "td.moveaxis, or x.mT for the last two",
    "t": "x.T", "tobytes": "np.asarray(x).tobytes()", "trace": "td.linalg.trace(x)",
    "unsqueeze": "td.expand_dims(x, axis)",
}  # fmt: skip
CHANGES = {  # of x.at[index]
    "div": "divide", "increment": "add", "maximum": "max", "minimum": "min", "minus": "subtract",
    "plus": "add",
    "pow": "power", "replace": "set", "sub": "subtract", "times": "multiply", "update": "set",
}  # fmt: skip
SPACES = ("nn", "linalg", "random", "fft", "optim")
INSIDE = {  # of a namespace: what its functions are called elsewhere
    "nn": {"attention": "td.nn.dot_product_attention"},
    "linalg": {
        "dot": "td.matmul", "einsum": "td.einsum", "inner": "td.vecdot",
        "lstsq": "td.linalg.pinv(a) @ b",
        "norm": "td.linalg.vector_norm, or td.linalg.matrix_norm",
        "solve_triangular": "td.linalg.triangular_solve",
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
    inside = {n: f"{space}.{n}" for space in SPACES for n in space_names(space)}
    if name in inside:
        return f"; here it is td.{inside[name]}"
    near = difflib.get_close_matches(name.lower(), [*known, *inside], 1, 0.8)
    return f"; there is td.{near[0] if near[0] in known else inside[near[0]]}" if near else ""


def space_names(space: str) -> list[str]:
    names: list[str] = getattr(lazy.provided("the public namespace"), space).__all__
    return names


def absent(space: str, name: str) -> AttributeError:
    """The error for a name that a namespace has not."""
    known = space_names(space)
    here = INSIDE.get(space, {}).get(name)
    near = (
        []
        if here or name.startswith("_")
        else difflib.get_close_matches(name.lower(), known, 1, 0.8)
    )
    told = f"; here it is {here}" if here else f"; there is td.{space}.{near[0]}" if near else ""
    return AttributeError(f"tetrad.{space} has no function {name!r}{told}")


def instead_of_method(name: str) -> str:
    """What to write instead of a method that arrays have in NumPy or JAX: a function, mostly."""
    if name in METHODS:
        return f"; here it is {METHODS[name]}"
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
