"""Tracing, callbacks: a function of the user's that runs in Python, from inside a traced program.

Receives a function, what it promises to return and arrays; returns arrays. Outside a trace it just
runs. The op is in `ops.callback`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tetrad.core.errors import DtypeError, TraceError
from tetrad.core.source import user_source
from tetrad.core.tree import flatten, unflatten
from tetrad.core.types import ArrayType
from tetrad.graph.build import intern, results
from tetrad.ops.callback.op import METHODS, HostFunction
from tetrad.ops.callback.op import callback as callback_op
from tetrad.tracing.array import Array, TracedArray, array_type, fail
from tetrad.tracing.context import current_trace
from tetrad.tracing.operands import (
    BYTES,
    as_array,
    check_shape,
    convert,
    dtype_of,
    is_operand,
    traced,
    wrap,
)
from tetrad.tracing.signature import check_function


def callback(
    f: Callable[..., Any],
    result: Any,
    *args: Any,
    vmap_method: str = "sequential",
    **kwargs: Any,
) -> Any:
    """f(*args, **kwargs), computed by Python: inside a jitted function it is called whenever the
    program comes there, on the thread that called the program. `f` gets copies of the arrays, as
    NumPy's, and returns arrays of NumPy's (or of ours, or numbers), which are copied. Arrays of
    int4 and uint4 are arrays of int8 and uint8 to it, in and out.

    f             must be pure: it may be called once for two equal calls, or not at all if nobody
                  needs the result. What it raises reaches the caller as it is
    result        what f returns, as a tree of `td.Spec`, or of anything with a shape and a dtype
    vmap_method   under `td.vmap`: "sequential" calls f for every row; "expand_dims" calls it once,
                  arrays with the axis in front, of size 1 for those that are not batched;
                  "broadcast_all" with all of them at the size of the batch

    It has no derivative; `td.custom_vjp` around it gives one.

    >>> import numpy as np, tetrad as td
    >>> def middle(x):
    ...     return np.float32(np.median(x))
    >>> td.jit(lambda x: 2 * td.callback(middle, td.Spec(()), x))(td.asarray([1.0, 5.0, 2.0]))
    Array(4., float32)
    """
    check_function("callback: f", f, "td.callback(f, result, *args)")
    if vmap_method not in METHODS:
        known = ", ".join(map(repr, METHODS))
        fail(TraceError, f"callback: there is no vmap_method {vmap_method!r}", f"one of {known}")
    specs, gives = flatten(result)
    kinds = [
        kind_of(spec, name) for spec, name in zip(specs, gives.leaf_names("result"), strict=True)
    ]
    if not kinds:
        fail(TraceError, "callback: result promises no array", "give a td.Spec, or a tree of them")
    leaves, given = flatten((args, kwargs))
    arrays = [operand(x, name) for x, name in zip(leaves, given.leaf_names("args"), strict=True)]
    shown = [seen_by_host(kind) for kind in kinds]
    function = HostFunction(hashable(f), given, gives, tuple(kind.dtype for kind in shown))
    settings = {
        "function": function, "shapes": tuple(kind.shape for kind in kinds),
        "vmap_method": vmap_method,
    }  # fmt: skip
    made = applied(arrays, settings, shown)
    return unflatten(gives, [convert(x, kind.dtype) for x, kind in zip(made, kinds, strict=True)])


def hashable(f: Callable[..., Any]) -> Callable[..., Any]:
    """Equal calls are found by it; an object without a hash equals itself alone."""
    try:
        hash(f)
    except TypeError:
        return partial(f)
    return f


def kind_of(spec: Any, name: str) -> ArrayType:
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        fail(TraceError, f"callback: {name} is {spec!r}, which has no shape and dtype", "td.Spec")
    kind = array_type(dtype_of(spec.dtype), check_shape("callback", spec.shape))
    refuse_blocks(kind, name)
    return kind


def refuse_blocks(kind: ArrayType, name: str) -> None:
    """NumPy has no blocks of quantised numbers."""
    if kind.dtype.is_quantized and not kind.dtype.is_nibble:
        hint = "convert with astype: x.astype(td.float32) for f, and its result back"
        fail(DtypeError, f"callback: {name} is {kind}, f sees arrays of NumPy's only", hint)


def seen_by_host(kind: ArrayType) -> ArrayType:
    """What stands for it in NumPy: a byte for a nibble."""
    return array_type(BYTES.get(kind.dtype, kind.dtype), kind.shape)


def operand(x: Any, name: str) -> Array:
    if not is_operand(x):
        hint = "close over it, or use functools.partial"
        fail(TraceError, f"callback: {name} is {x!r}, not an array", hint)
    array = as_array(x)
    refuse_blocks(array.type, name)
    return convert(array, seen_by_host(array.type).dtype)


def applied(arrays: list[Array], settings: dict[str, Any], kinds: list[ArrayType]) -> list[Any]:
    """The op on arrays. Where a program is traced it is part of it, even if all values are known
    by then, or there are none."""
    trace = current_trace()
    if arrays:
        made = callback_op(*(arrays if trace is None else map(traced, arrays)), **settings)
        return list(made) if isinstance(made, tuple) else [made]
    if trace is None:
        made = callback_op.reference(**settings)
        return [wrap(x) for x in (made if isinstance(made, tuple) else (made,))]
    items = tuple(sorted(settings.items()))
    node = intern(callback_op, (), items, tuple(kinds), user_source())
    parts = results(node) if len(kinds) > 1 else (node,)
    return [TracedArray.of(part, trace) for part in parts]
