"""Tracing, callbacks: a function of the user's that runs in Python, from inside a traced program.

Receives a function, what it promises to return and arrays; returns arrays. Outside a trace it just
runs. The ops are in `ops.callback`: a pure function may be called less often than it is written,
one with effects is called once a step, in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tetrad.core.errors import DtypeError, TraceError
from tetrad.core.source import user_source
from tetrad.core.tree import flatten, unflatten
from tetrad.core.types import ArrayType
from tetrad.graph.build import intern, results
from tetrad.graph.effects import TOKEN
from tetrad.ops.callback.op import METHODS, HostFunction, effect
from tetrad.ops.callback.op import callback as callback_op
from tetrad.tracing.array import Array, TracedArray, array_type, fail, known_value, node_of
from tetrad.tracing.context import current_trace, stack
from tetrad.tracing.effects import last_token, note
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
    return called("callback", f, result, args, kwargs, vmap_method)


def pure_callback(
    f: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """`td.callback` by JAX's name. `sharding` changes nothing: there is one device.

    >>> import numpy as np, tetrad as td
    >>> td.jit(lambda x: td.pure_callback(np.sort, x, x))(td.asarray([3.0, 1.0]))
    Array([1., 3.], float32)
    """
    name = "pure_callback"
    return called(name, f, result_shape_dtypes, args, kwargs, vmap_method or "sequential")


def io_callback(
    f: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """f(*args, **kwargs) for what it does and what it returns: inside a program it is called each
    time the program comes there, also if nobody needs the result and if the arguments are those of
    another call. Otherwise as `td.callback`.

    result_shape_dtypes   what f returns, as a tree of `td.Spec`; None for nothing
    ordered               as in JAX; calls are in the order of the program in any case

    It has no derivative: `td.stop_gradient` around an argument makes that a constant.

    >>> import tetrad as td
    >>> numbers = iter(range(10))
    >>> def read():
    ...     return next(numbers)
    >>> f = td.jit(lambda: td.io_callback(read, td.Spec((), td.int32)))
    >>> f().item(), f().item()
    (0, 1)
    """
    name = "io_callback"
    return called(name, f, result_shape_dtypes, args, kwargs, "sequential", happens=True)


def called(
    name: str,
    f: Callable[..., Any],
    result: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    vmap_method: str,
    happens: bool = False,
) -> Any:
    """A call of f, as part of the program that is traced, if one is. `happens`: it has effects."""
    check_function(f"{name}: f", f, f"td.{name}(f, result, *args)")
    if vmap_method not in METHODS:
        known = ", ".join(map(repr, METHODS))
        fail(TraceError, f"{name}: there is no vmap_method {vmap_method!r}", f"one of {known}")
    specs, gives = flatten(result)
    names = gives.leaf_names("result")
    kinds = [kind_of(name, spec, leaf) for spec, leaf in zip(specs, names, strict=True)]
    if not kinds and not happens:
        hint = "give a td.Spec, or a tree of them; td.debug.callback is for what returns nothing"
        fail(TraceError, f"{name}: result promises no array", hint)
    leaves, given = flatten((args, kwargs))
    names = given.leaf_names("args")
    arrays = [operand(name, x, leaf) for x, leaf in zip(leaves, names, strict=True)]
    shown = [seen_by_host(kind) for kind in kinds]
    function = HostFunction(hashable(f), given, gives, tuple(kind.dtype for kind in shown), name)
    settings: dict[str, Any] = {
        "function": function, "shapes": tuple(kind.shape for kind in kinds),
        "vmap_method": vmap_method,
    }  # fmt: skip
    made = (happened if happens else applied)(arrays, settings, shown)
    return unflatten(gives, [convert(x, kind.dtype) for x, kind in zip(made, kinds, strict=True)])


def hashable(f: Callable[..., Any]) -> Callable[..., Any]:
    """Equal calls are found by it; an object without a hash equals itself alone."""
    try:
        hash(f)
    except TypeError:
        return partial(f)
    return f


def kind_of(what: str, spec: Any, name: str) -> ArrayType:
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        fail(TraceError, f"{what}: {name} is {spec!r}, which has no shape and dtype", "td.Spec")
    kind = array_type(dtype_of(spec.dtype), check_shape(what, spec.shape))
    refuse_blocks(what, kind, name)
    return kind


def refuse_blocks(what: str, kind: ArrayType, name: str) -> None:
    """NumPy has no blocks of quantised numbers."""
    if kind.dtype.is_quantized and not kind.dtype.is_nibble:
        hint = "convert with astype: x.astype(td.float32) for f, and its result back"
        fail(DtypeError, f"{what}: {name} is {kind}, f sees arrays of NumPy's only", hint)


def seen_by_host(kind: ArrayType) -> ArrayType:
    """What stands for it in NumPy: a byte for a nibble."""
    return array_type(BYTES.get(kind.dtype, kind.dtype), kind.shape)


def operand(what: str, x: Any, name: str) -> Array:
    if not is_operand(x):
        hint = "close over it, or use functools.partial"
        fail(TraceError, f"{what}: {name} is {x!r}, not an array", hint)
    array = as_array(x)
    refuse_blocks(what, array.type, name)
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


_serial = itertools.count()


def happened(arrays: list[Array], settings: dict[str, Any], kinds: list[ArrayType]) -> list[Any]:
    """What the function gives, called now, or each time the traced program comes here. A derivative
    taken on values calls it now as well."""
    trace = current_trace()
    values = values_now(arrays)
    if trace is None or values is not None:
        shapes, function = settings["shapes"], settings["function"]
        shown = [np.array(x) for x in (values or [])]
        return [wrap(np.array(x)) for x in function(shown, shapes, user_source())]
    nodes = [*(node_of(x, trace) for x in arrays), *last_token(trace)]
    items = settings | {"count": len(arrays), "serial": next(_serial)}
    types = (*kinds, TOKEN)
    node = intern(effect, tuple(nodes), tuple(sorted(items.items())), types, user_source())
    note(trace, [node])
    parts = results(node) if kinds else ()
    return [TracedArray.of(part, trace) for part in parts[:-1]]


def values_now(arrays: list[Array]) -> list[np.ndarray] | None:
    """The values of arrays, if what is traced runs on values (a derivative outside jit) or nothing
    is."""
    if any(not trace.values for trace in stack.traces):
        return None
    found = [known_value(x) if isinstance(x, TracedArray) else x.memory for x in arrays]
    return None if any(x is None for x in found) else found  # type: ignore[return-value]
