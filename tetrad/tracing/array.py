"""Tracing, arrays: what users hold. `Array` has values now; `TracedArray` stands for a node of the
graph being built.

An op applied to arrays (`__tetrad_op__`) is evaluated or recorded by `tracing.apply_op`; what can
be written on an array is in `tracing.operators`, what others see of it in `tracing.conversions`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn, Protocol

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType, as_dtype, bool_
from tetrad.core.errors import (
    DtypeError,
    ShapeError,
    TetradError,
    TraceError,
    UnsupportedError,
    an,
)
from tetrad.core.op import REGISTRY, Op
from tetrad.core.owners import frozen, own_copy, same_bits
from tetrad.core.sizes import Shape, Size
from tetrad.core.source import user_source
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_constant, make_graph, parameter, with_inputs
from tetrad.graph.effects import is_effect
from tetrad.graph.evaluate import evaluate as evaluate_graph
from tetrad.graph.nodes import Literal, Node, topological
from tetrad.tracing.context import Trace, current_trace, stack
from tetrad.tracing.conversions import Conversions
from tetrad.tracing.device import CPU, ArrayDevice
from tetrad.tracing.fail import fail as fail  # everybody asks for it here
from tetrad.tracing.operators import Operators


class ArrayStorage(Protocol):
    """Bytes that compiled code reads and writes (the runtime has the class)."""

    ptr: int
    nbytes: int

    def as_numpy(
        self, dtype: np.dtype, shape: tuple[int, ...], writable: bool = True
    ) -> np.ndarray: ...


deferred = lazy.later("tetrad.tracing.deferred")  # products with weights of low bits
apply_op = lazy.later("tetrad.tracing.apply_op")
in_place = lazy.later("tetrad.tracing.in_place")

# by the name of the dtype: the hash of a string is at hand
_types: dict[tuple[str, Shape], ArrayType] = {}


def array_type(dtype: DType, shape: Shape) -> ArrayType:
    """The one ArrayType object for this dtype and shape: the call path of jit compares types by
    identity."""
    key = (dtype.short_name, shape)
    found = _types.get(key)
    return found if found is not None else _types.setdefault(key, ArrayType(dtype, shape))


@cache
def _quantized() -> Any:
    return lazy.provided("quantised arrays")


def noun_of(x: object) -> str:
    """What came, for an error: the type of an array, else the name of its class."""
    return str(x.type) if isinstance(x, Array) else an(type(x).__name__)


class Array(Operators, Conversions):
    """An immutable, dense array of numbers or bools. Make one with `asarray`, `zeros`, `arange`,
    ...

    >>> import tetrad as td
    >>> td.asarray([1.5, 2.0]) * 2
    Array([3., 4.], float32)
    """

    __slots__ = ("__weakref__", "_storage", "_view", "type")
    __array_priority__ = 100  # NumPy arrays on the left hand the operation over
    is_deferred = False  # is it made when its elements are asked for (`tracing.deferred`)?

    type: ArrayType
    _view: np.ndarray | None
    _storage: ArrayStorage | None

    @staticmethod
    def from_numpy(view: np.ndarray) -> Array:
        """An array of these values, in place; the caller must not change them afterwards."""
        made = Array.__new__(Array)
        made.type = array_type(as_dtype(view.dtype), view.shape)
        made._view, made._storage = view, None
        return made

    @staticmethod
    def from_bytes(view: np.ndarray, kind: ArrayType) -> Array:
        """An array of a quantised type over the bytes of its blocks, in place."""
        made = Array.__new__(Array)
        made.type = array_type(kind.dtype, kind.shape)
        made._view, made._storage = view.reshape(made.type.storage_shape), None  # type: ignore[arg-type]
        return made

    @staticmethod
    def from_storage(kind: ArrayType, storage: ArrayStorage) -> Array:
        """An array over bytes that compiled code wrote."""
        made = Array.__new__(Array)
        made.type, made._storage, made._view = kind, storage, None
        return made

    @staticmethod
    def __tetrad_op__(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return apply_op.applied(op, args, params)

    # values

    @property
    def memory(self) -> np.ndarray:
        """The values as NumPy sees them, in place; read only by convention."""
        if self._view is None:
            if self._storage is None:
                message = (
                    f"this {self.type} was donated to a compiled function, its memory is now a "
                    "result"
                )
                fail(
                    TraceError,
                    message,
                    "keep a copy, or do not list the argument in donate_argnums",
                )
            kind = self.type
            self._view = self._storage.as_numpy(kind.dtype.np, kind.storage_shape, False)  # type: ignore[arg-type]
        return self._view

    @property
    def elements(self) -> np.ndarray:
        """The values, an element each: integers of four bits, which lie two in a byte, in bytes;
        floats of eight bits in the type of ml_dtypes."""
        if self.type.dtype.is_float8:
            return self.memory.view(self.type.dtype.dtype)
        return REGISTRY["unpack_nibbles"](self).memory if self.type.dtype.is_nibble else self.memory

    def shown(self) -> np.ndarray:
        """The elements for others to read: nobody can make the view writable."""
        elements = self.elements
        found = frozen(elements)
        if self._view is elements:
            self._view = found
        return found

    def storage(self, from_numpy: Callable[[np.ndarray], ArrayStorage]) -> ArrayStorage:
        """The bytes for compiled code, contiguous; made once."""
        if self._storage is None:
            view = self.memory
            self._view = (
                view if view.flags.c_contiguous and view.flags.aligned else view.copy(order="C")
            )
            self._storage = from_numpy(self._view)
        return self._storage

    def delete(self) -> None:
        """Give up the values (a donated argument)."""
        self._storage = self._view = None

    @property
    def is_deleted(self) -> bool:
        return self._storage is None and self._view is None

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        """Copied and pickled by value, as bytes: an array could be given buffers that somebody
        writes to."""
        return _restored, (self.memory.tobytes(), self.type)

    def dequantize(self) -> Any:
        """The numbers of an array of a quantised type (`td.quant`)."""
        return _quantized().dequantize(self)

    def to_bytes(self) -> bytes:
        """The elements, or the blocks of a quantised type as its file format holds them."""
        return _quantized().to_bytes(self)  # type: ignore[no-any-return]

    # what it is

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> Size:
        return self.type.size

    @property
    def nbytes(self) -> Size:
        return self.type.nbytes

    @property
    def itemsize(self) -> int:
        return self.dtype.nbytes

    @property
    def device(self) -> ArrayDevice:
        return CPU

    def devices(self) -> set[ArrayDevice]:
        return {CPU}

    def to_device(self, device: str, /, *, stream: None = None) -> Array:
        if device != "cpu":
            fail(UnsupportedError, f"to_device: there is no device {device!r}", "devices: cpu")
        return alias(self)

    @property
    def T(self) -> Array:
        """The axes in reversed order."""
        return self._call("transpose")

    @property
    def mT(self) -> Array:
        return self._call("matrix_transpose")

    @property
    def real(self) -> Array:
        return self._call("real")

    @property
    def imag(self) -> Array:
        return self._call("imag")

    def __pos__(self) -> Array:
        return alias(self)

    def __invert__(self) -> Array:
        return self._call("logical_not" if self.dtype is bool_ else "bitwise_invert")

    def __len__(self) -> int:
        if not self.ndim:
            fail(
                DtypeError,  # a TypeError: what has no axes is no sequence
                "len: an array without axes has no length",
                "x.item() is its one element",
            )
        size = self.shape[0]
        if not isinstance(size, int):
            fail(
                TraceError,
                f"len: the leading axis of {self.type} is only known when the program runs",
                "use x.shape",
            )
        return size

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            fail(
                DtypeError,
                "iter: an array without axes has no elements to go through",
                "x.item() is its one element",
            )
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        """Is an element equal to it, as in NumPy?"""
        is_equal = self == value
        return bool(is_equal.any() if isinstance(is_equal, Array) else is_equal)

    def __getitem__(self, key: Any) -> Array:
        return self._call("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """This handle has other elements from now on; whatever else shares its memory keeps its
        own."""
        in_place.assign(self, key, value)

    def __delitem__(self, key: Any) -> NoReturn:
        message = f"del x[index]: {self.type} keeps its elements"
        fail(ShapeError, message, "x = td.delete(x, index, axis=0) is an array without them")

    @property
    def at(self) -> Any:
        """`x.at[index].set(values)`, also `add`, `multiply`, ...: a new array with those elements
        changed."""
        return lazy.provided("x.at").UpdateIndexer(self)


class Borrowed(Array):
    """An array over memory that somebody else may write to: to be read now. What stays has to be
    `kept`."""

    __slots__ = ()

    @staticmethod
    def over(view: np.ndarray) -> Borrowed:
        made = Borrowed.__new__(Borrowed)
        made.type = array_type(as_dtype(view.dtype), view.shape)
        made._view, made._storage = view, None
        return made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.memory, dtype)


def alias(x: Array) -> Array:
    """Another handle of the same elements, which `x[i] = v` does not reach."""
    if type(x) is not Array:
        return x
    made = Array.__new__(Array)
    made.type, made._view, made._storage = x.type, x._view, x._storage
    return made


def kept(x: Array) -> Array:
    """The array, in memory that nobody writes to."""
    return Array.from_numpy(own_copy(x.memory)) if type(x) is Borrowed else x


class TracedArray(Array):
    """An array whose values exist when the compiled program runs: a node of the graph of one
    trace."""

    __slots__ = ("home_trace", "node", "weak", "wide")
    is_traced = True

    node: Node
    home_trace: Trace
    weak: builtins.type | None  # a Python number handed to a traced function keeps its kind ...
    wide: Node | None  # ... and its full precision: it takes the dtype of the array it meets

    @staticmethod
    def of(node: Node, trace: Trace) -> TracedArray:
        made = TracedArray.__new__(TracedArray)
        made.type, made.node, made.home_trace = node.type, node, trace
        made._view = made._storage = made.weak = made.wide = None
        return made

    @property
    def memory(self) -> np.ndarray:
        trace_of(self)
        if (known := known_value(self)) is not None:
            return known
        self._refuse("its values", "keep to td functions; td.debug.print shows values")

    def _refuse(self, wanted: str, hint: str) -> NoReturn:
        origins = lazy.module("tetrad.tracing.origins")
        message = (
            f"{self.home_trace.name} is being traced: {self.type} has no values yet, but Python "
            f"asked for {wanted}{origins.told(self)}"
        )
        fail(TraceError, message, hint + origins.static(self))

    def __bool__(self) -> bool:
        if known_value(self) is not None:
            return super().__bool__()
        self._refuse(
            "its truth value (if, while, and, or)",
            "choose with td.where or td.cond, repeat with td.while_loop",
        )

    def __int__(self) -> int:
        if known_value(self) is not None:
            return super().__int__()
        self._refuse("an int", "compute with the array, as with x.astype(td.int32)")

    def __float__(self) -> float:
        self._check_lasting("a float")
        if known_value(self) is not None:
            return super().__float__()
        self._refuse("a float", "compute with the array, as with x.astype(td.float32)")

    def __complex__(self) -> complex:
        self._check_lasting("a complex number")
        if known_value(self) is not None:
            return super().__complex__()
        self._refuse("a complex number", "compute with the array, as with x.astype(td.complex64)")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._check_lasting("an array of NumPy")
        if known_value(self) is not None:
            return super().__array__(dtype, copy)
        trace_of(self)
        self._refuse(
            "an array of NumPy",
            "use the td function in place of NumPy's, or td.pure_callback to call NumPy",
        )

    def item(self) -> bool | int | float | complex:
        if self.size == 1 and known_value(self) is None:
            trace_of(self)
            self._refuse("a number (item)", "compute with the array; td.debug.print shows it")
        return super().item()

    def tolist(self) -> Any:
        if known_value(self) is None:
            trace_of(self)
            self._refuse("a list", "compute with the array; td.debug.print shows it")
        return super().tolist()

    def __dlpack__(self, **options: Any) -> Any:
        self._check_lasting("its memory")
        return super().__dlpack__(**options)

    def _check_lasting(self, wanted: str) -> None:
        """What becomes a constant here would be missing in the derivative, and nobody would
        notice."""
        if self.home_trace.active and is_changing(self) and known_value(self) is not None:
            message = (
                f"{self.home_trace.name} is being differentiated: {self.type} changes, but Python "
                f"asked for {wanted}"
            )
            hint = (
                "keep to td functions; td.stop_gradient(x) makes it a constant, x.item() shows a "
                "number"
            )
            fail(TraceError, message, hint)

    def __index__(self) -> int:
        if known_value(self) is not None:
            return super().__index__()
        hint = "index with td.take, repeat with td.fori_loop, and a size must be known"
        self._refuse("an index (range, list index, shape)", hint)

    @property
    def is_deleted(self) -> bool:
        return False

    def __copy__(self) -> TracedArray:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedArray:
        return self

    def __repr__(self) -> str:
        return lazy.module("tetrad.tracing.origins").shown(self)  # type: ignore[no-any-return]

    __str__ = __repr__


def _restored(data: bytes, kind: ArrayType) -> Array:
    """An array from its pickle."""
    made = Array.__new__(Array)
    made.type, made._storage = array_type(kind.dtype, kind.shape), None
    made._view = np.ndarray(kind.storage_shape, kind.dtype.np, data)  # type: ignore[arg-type]
    return made


def located(error: TetradError) -> TetradError:
    """The error with the user's line, if it has none yet."""
    return error if error.source is not None else error.located(user_source())


def trace_of(x: TracedArray) -> Trace:
    """The trace in which a new node on `x` belongs: the innermost one, as long as x is still
    alive."""
    trace = current_trace()
    if trace is None or x.home_trace not in stack.traces:
        name = x.home_trace.name
        when = (
            f"on another thread than that of {name}"
            if x.home_trace.active
            else f"after the tracing of {name} had ended"
        )
        made = lazy.module("tetrad.tracing.origins").made(x)
        message = f"a traced {x.type} was used {when}{made}"
        fail(
            TraceError,
            message,
            "return it from the traced function instead of storing it elsewhere",
        )
    return trace


def outside_of(trace: Trace) -> dict[Node, Array]:
    """What parameters of a trace stand for, of those where it is there to be asked."""
    return {node: value for value, node in trace.captured.values()} | trace.values | trace.known


def known_value(x: TracedArray) -> np.ndarray | None:
    """The value of a traced array where it has one already: what it follows from has values in this
    run."""
    trace = x.home_trace
    nodes = list(topological([x.node]))
    if any(map(is_effect, nodes)):  # it happens when the program runs
        return None
    parameters = [n for n in nodes if n.op is parameter]
    outside = outside_of(trace)
    arrays: list[np.ndarray] = []
    for node in parameters:
        value = outside.get(node)
        view = (
            known_value(value)
            if isinstance(value, TracedArray)
            else value.memory
            if value is not None
            else None
        )
        if view is None:
            return None
        arrays.append(view)
    return evaluate_graph(make_graph(trace.name, parameters, [x.node]), arrays)[0]


def is_changing(x: TracedArray, by_nearest: bool = True) -> bool:
    """Does a derivative that is being taken depend on it? Not `by_nearest`: one around the nearest,
    which asks the rule of the function that x is an argument of."""
    trace, outside = x.home_trace, outside_of(x.home_trace)
    through = by_nearest or bool(trace.changing or trace.known)
    stack, seen = [x.node], {x.node}
    while stack:
        node = stack.pop()
        if node.op.stops_gradient or not any(
            t.dtype.is_float or t.dtype.is_complex for t in node.types
        ):
            continue
        if by_nearest and node in trace.changing:
            return True
        outer = outside.get(node)
        if isinstance(outer, TracedArray) and is_changing(
            outer, through and node not in trace.known
        ):
            return True
        fresh = [i for i in node.inputs if i not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return False


def node_of(x: Array, trace: Trace) -> Node:
    """The node that stands for an array inside a trace."""
    if isinstance(x, TracedArray):
        if x.home_trace is trace:
            return x.node
        trace_of(x)
        if is_inline(x):  # what is computed as it is read is computed here, from its operands
            operands = [node_of(TracedArray.of(i, x.home_trace), trace) for i in x.node.inputs]
            return with_inputs(x.node, tuple(operands))
        return trace.capture(x, id(x.node), x.type)
    if x.is_deferred:
        return deferred.node_of_deferred(x, trace)  # type: ignore[no-any-return]
    if type(x) is Borrowed:
        if x.memory.nbytes <= Literal.SMALL:  # it may hold another value next time
            return make_constant(x.memory, x.type)
        x = value_seen(x)
    view = x.memory
    key = id(view)  # of what it holds now: `x[i] = v` makes it hold another
    if trace.is_inner and view.nbytes > Literal.SMALL:
        # Large constants enter sub-graphs as arguments, so that equal layers with different weights
        # stay equal.
        return trace.capture(alias(x), key, x.type)
    if key not in trace.constants:
        trace.constants[key] = (view, make_constant(view, x.type))
    return trace.constants[key][1]


def is_inline(x: Array) -> bool:
    """Is it the numbers of a weight of low bits, seen through views and conversions?"""
    if not isinstance(x, TracedArray):
        return x.is_deferred
    node = x.node
    while node.op.view or node.op.strided or node.op.converts:
        node = node.inputs[0]
    return node.op.inline


def value_seen(x: Array) -> Array:
    """What a program keeps of an array that is not ours: its value now. Equal ones that lie in one
    place are one."""
    seen: dict[Any, Array] = stack.traces[0].seen
    place = (x.memory.__array_interface__["data"][0], x.memory.strides, x.type)
    if place not in seen or not same_bits(seen[place].memory, x.memory):
        seen[place] = kept(x)
    return seen[place]
