"""Tracing, in place: `x[i] = v` on an array that has values.

The handle gets other elements; whoever shares its memory (views, other handles, programs) keeps
those he had. So the memory is copied first, unless nobody else can see it.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, NoReturn

import numpy as np

from tetrad.core import lazy
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, TraceError, UnsupportedError, an
from tetrad.core.floats import own_floats
from tetrad.tracing.array import Array, TracedArray
from tetrad.tracing.fail import fail
from tetrad.tracing.operands import convert, is_operand, wrap

OWN_REFERENCES = 3  # to the view of an array that nobody else sees: array, variable, getrefcount
INSTEAD = "x = x.at[index].set(value) gives a new array; or td.where(mask, value, x)"


def assign(x: Array, key: Any, value: Any) -> None:
    """x[key] = value"""
    if isinstance(x, TracedArray):
        refuse(x)
    if x.is_deferred or (x.dtype.is_quantized and not x.dtype.is_narrow):
        message = f"x[index] = value: {x.type} is not held as elements"
        fail(UnsupportedError, message, "convert it: td.asarray(x, copy=True) or x.dequantize()")
    parts = tuple(map(known, key)) if isinstance(key, tuple) else known(key)
    if isinstance(value, TracedArray):
        message = (
            f"x[index] = value: {value.home_trace.name} is being traced, and {x.type} from outside "
            "cannot hold its values"
        )
        fail(TraceError, message, INSTEAD)
    with own_floats():
        new = values(value, x).elements
        if x.dtype.is_narrow:  # not a NumPy element each
            changed = np.array(x.elements)
            write(changed, parts, new, x)
            x._view, x._storage = convert(wrap(changed), x.dtype).memory, None
        else:
            changed = own_view(x)
            write(changed, parts, new, x)
            x._view, x._storage = changed, None


def refuse(x: TracedArray) -> NoReturn:
    message = (
        f"x[index] = value: {x.home_trace.name} is being traced, and the traced {x.type} does not "
        "change in place"
    )
    fail(TraceError, message, INSTEAD)


def known(part: Any) -> Any:
    """A part of an index as NumPy takes it."""
    if isinstance(part, TracedArray):
        fail(TraceError, f"x[index] = value: the index {part.type} has no value yet", INSTEAD)
    return part.elements if isinstance(part, Array) else part


def values(value: Any, x: Array) -> Array:
    """What is written, in the dtype of the array."""
    if isinstance(value, list | tuple | range):
        value = lazy.provided("methods of arrays").asarray(value)
    if not is_operand(value):
        message = f"x[index] = value: {an(type(value).__name__)} is no value for {x.type}"
        fail(DtypeError, message, "values are arrays and numbers")
    return convert(value, x.dtype)


def own_view(x: Array) -> np.ndarray:
    """The elements in memory that nobody else sees. Another thread might look at any moment, so
    beside one they are always copied."""
    view = x.memory
    is_own = (
        x._storage is None
        and view.base is None
        and view.flags.writeable
        and sys.getrefcount(view) == OWN_REFERENCES
        and threading.active_count() == 1
    )
    return view if is_own else np.array(view, order="C")


def write(view: np.ndarray, key: Any, value: np.ndarray, x: Array) -> None:
    """Change the elements; NumPy looks before it writes, so an error changes nothing."""
    try:
        view[key] = value
    except IndexError as error:
        fail(BoundsError, f"x[index] = value: {error}")
    except ValueError as error:
        fail(ShapeError, f"x[index] = value: {error}", "values must broadcast to x[index]")
